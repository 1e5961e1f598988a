"""World models of Atari games on CUDA: a captured step is the eager one, and reads nothing on the
host.

python -m pytest -m gpu
"""

import dataclasses

import pytest
import torch

from nps.experiments.atari import PRESETS, AtariTask
from nps.training import checkpoint
from nps.training.feed import Feed
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.stack import Stack
from nps.training.update import Update
from tests.experiments.test_atari import TINY, files  # noqa: F401  (a fixture)

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
SOME = ("atari-nps-5", "atari-gnn-aligned")


def task_of(preset: str) -> AtariTask:
    changes = {**TINY, "extractor": "medium", "epochs": 2}
    return AtariTask(dataclasses.replace(PRESETS[preset].config, **changes), CUDA)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
@pytest.mark.parametrize("preset", SOME)
def test_captured_equals_eager(tmp_path, preset, seeds):
    task, states = task_of(preset), []
    for capture in (True, False):
        runs = {s: Run(tmp_path / f"{capture}-{s}") for s in seeds}
        for run in runs.values():
            run.folder.mkdir()
        train(task, task.config, runs, CUDA, Settings(capture=capture), lambda text: None)
        found = [checkpoint.newest(run.checkpoints, print) for run in runs.values()]
        states.append([one.tensors["model"] for one in found])
    for captured, eager in zip(*states, strict=True):
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


def test_the_test_set_is_ranked_there():
    task = task_of("atari-nps")
    model = task.make_model(0).eval()
    assert task.test(model)["copy_h1_10"] == task.copied["copy_h1_10"]
