"""World models of blocks on CUDA: a captured step is the eager one, and reads nothing on the host.

python -m pytest -m gpu
"""

import dataclasses

import pytest
import torch

from nps.experiments.blocks import PRESETS, BlocksTask
from nps.training import checkpoint
from tests.on_gpu import CUDA, assert_reads_nothing_on_the_host, go

pytestmark = pytest.mark.gpu

SMALL = {
    "train_episodes": 16,
    "train_steps": 10,
    "validation_episodes": 10,
    "test_episodes": 10,
    "batch_size": 20,
    "epochs": 2,
    "validate_every": 1,
}
SOME = (
    "shapes-gnn",
    "blocks-nps-episode",
    "blocks-fixed-nps-linear",
    "blocks-fixed-slots-nps",
    "blocks-best",
)


def task_of(preset: str) -> BlocksTask:
    return BlocksTask(dataclasses.replace(PRESETS[preset].config, **SMALL), CUDA)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("preset", SOME)
def test_captured_equals_eager(tmp_path, preset, seeds):
    """With the running statistics of batch normalisation, which a step changes in place."""
    task = task_of(preset)
    pair = (go(tmp_path / str(way), task, seeds, capture=way) for way in (True, False))
    for runs in zip(*(each.values() for each in pair), strict=True):
        captured, eager = (checkpoint.newest(run.checkpoints, print) for run in runs)
        assert eager.tensors["model"].get("encoder.extractor.1.num_batches_tracked", 16) == 16
        for name, tensor in eager.tensors["model"].items():
            ours = captured.tensors["model"][name]
            torch.testing.assert_close(ours, tensor, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("preset", SOME)
def test_a_step_reads_nothing_on_the_host(preset):
    assert_reads_nothing_on_the_host(task_of(preset))
