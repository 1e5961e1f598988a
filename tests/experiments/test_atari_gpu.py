"""World models of Atari games on CUDA: a captured step is the eager one, and reads nothing on the
host.

python -m pytest -m gpu
"""

import dataclasses

import pytest
import torch

from nps.experiments.atari import PRESETS, AtariTask
from nps.training import checkpoint
from tests.experiments.test_atari import files, tiny  # noqa: F401  (a fixture)
from tests.on_gpu import CUDA, assert_reads_nothing_on_the_host, go

pytestmark = pytest.mark.gpu

SOME = ("atari-nps-5", "atari-gnn-aligned", "atari-slots-gnn", "atari-cswm-nps")


def task_of(preset: str) -> AtariTask:
    encoder = PRESETS[preset].config.extractor
    return AtariTask(dataclasses.replace(tiny(preset, epochs=2), extractor=encoder), CUDA)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("preset", SOME)
def test_captured_equals_eager(tmp_path, preset, seeds):
    task = task_of(preset)
    pair = (go(tmp_path / str(way), task, seeds, capture=way) for way in (True, False))
    for runs in zip(*(each.values() for each in pair), strict=True):
        captured, eager = (checkpoint.newest(run.checkpoints, print) for run in runs)
        for name, tensor in eager.tensors["model"].items():
            ours = captured.tensors["model"][name]
            torch.testing.assert_close(ours, tensor, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("preset", SOME)
def test_a_step_reads_nothing_on_the_host(preset):
    assert_reads_nothing_on_the_host(task_of(preset))


def test_the_test_set_is_ranked_there():
    task = task_of("atari-nps")
    model = task.make_model(0).eval()
    assert task.test(model)["copy_h1_10"] == task.copied["copy_h1_10"]
