"""World models of blocks on CUDA: a captured step is the eager one, and reads nothing on the host.

python -m pytest -m gpu
"""

import dataclasses

import pytest
import torch

from nps.experiments.blocks import PRESETS, BlocksTask
from nps.training import checkpoint
from nps.training.feed import Feed
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.stack import Stack
from nps.training.update import Update

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
SMALL = {
    "train_episodes": 16,
    "train_steps": 10,
    "validation_episodes": 10,
    "test_episodes": 10,
    "batch_size": 20,
    "epochs": 2,
    "validate_every": 1,
}
SOME = ("shapes-gnn", "blocks-nps-episode", "blocks-fixed-nps-linear", "blocks-fixed-slots-nps")


def task_of(preset: str) -> BlocksTask:
    return BlocksTask(dataclasses.replace(PRESETS[preset].config, **SMALL), CUDA)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("preset", SOME)
def test_captured_equals_eager(tmp_path, preset, seeds):
    """With the running statistics of batch normalisation, which a step changes in place."""
    task, states = task_of(preset), []
    for capture in (True, False):
        runs = {s: Run(tmp_path / f"{capture}-{s}") for s in seeds}
        for run in runs.values():
            run.folder.mkdir()
        train(task, task.config, runs, CUDA, Settings(capture=capture), lambda text: None)
        found = [checkpoint.newest(run.checkpoints, print) for run in runs.values()]
        states.append([one.tensors["model"] for one in found])
    for captured, eager in zip(*states, strict=True):
        assert eager.get("encoder.extractor.1.num_batches_tracked", 16) == 16
        for name, tensor in eager.items():
            torch.testing.assert_close(captured[name], tensor, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("preset", SOME)
def test_a_step_reads_nothing_on_the_host(preset):
    task = task_of(preset)
    stack = Stack([task.make_model(seed) for seed in (0, 1)])
    feed = Feed(task.examples, 20, task.noise_size, (0, 1), CUDA)
    update = Update(task, task.config, stack, feed, 80)
    feed.prepare(0)
    update()
    try:
        torch.cuda.set_sync_debug_mode("error")
        update()
    finally:
        torch.cuda.set_sync_debug_mode("default")
