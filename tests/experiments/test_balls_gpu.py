"""Bouncing balls on CUDA: a captured step is the eager one, and reads nothing on the host.

python -m pytest -m gpu
"""

import dataclasses

import pytest
import torch

from nps.experiments.balls import PRESETS, BallsTask
from nps.training import checkpoint
from nps.worlds.balls import make_scenes, render
from tests.on_gpu import CUDA, assert_reads_nothing_on_the_host, go

pytestmark = pytest.mark.gpu

SMALL = {
    "size": 32,
    "width": 16,
    "frames": 4,
    "scene_frames": 10,
    "train_scenes": 32,
    "batch_size": 8,
    "epochs": 2,
    "validate_every": 1,
    "validation_scenes": 6,
    "test_scenes": 4,
    "seen_frames": 5,
    "rollout_frames": 4,
}


def task_of(preset, **changes):
    return BallsTask(dataclasses.replace(PRESETS[preset].config, **SMALL, **changes), CUDA)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("preset", PRESETS)
def test_captured_equals_eager(tmp_path, preset, precision):
    """Through every phase, each of which is captured anew."""
    zero_start = PRESETS[preset].config.zero_start
    task = task_of(preset, interact_from=0.3 * zero_start, settle_from=0.7)
    saved = []
    for way in (True, False):
        run = go(tmp_path / str(way), task, capture=way, precision=precision)[0]
        saved.append(checkpoint.newest(run.checkpoints, print))
        assert run.provenance()[0]["captured"] is way
    for name, tensor in saved[1].tensors["model"].items():
        torch.testing.assert_close(saved[0].tensors["model"][name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_step_reads_nothing_on_the_host(preset):
    assert_reads_nothing_on_the_host(task_of(preset), seeds=(0,))


def test_a_stopped_training_ends_the_same(tmp_path):
    task = task_of("balls")
    whole = go(tmp_path / "whole", task, precision="bf16")[0]
    go(tmp_path / "parts", task, precision="bf16", stop_at=5)
    parts = go(tmp_path / "parts", task, precision="bf16")[0]
    ours, theirs = (checkpoint.newest(run.checkpoints, print) for run in (parts, whole))
    for name, tensor in theirs.tensors["model"].items():
        assert torch.equal(ours.tensors["model"][name], tensor), name


def test_scenes_and_images_are_those_of_the_cpu():
    here, there = (make_scenes(50, 12, seed=1, balls=(4, 8), device=d) for d in ("cpu", CUDA))
    assert torch.equal(here.collided, there.collided.cpu())
    torch.testing.assert_close(here.position, there.position.cpu())
    shown = (here.position, here.radius, here.present, here.colour)
    images, labels = render(*shown, curtain=here.curtain)
    others = render(*(x.to(CUDA) for x in shown), curtain=here.curtain.to(CUDA))
    assert (labels != others.labels.cpu()).float().mean() < 1e-4  # pixels on the border of a ball
    assert (images != others.images.cpu()).float().mean() < 1e-4


def test_a_test_runs_on_the_gpu():
    task = task_of("balls")
    found = task.test(task.make_model(0).eval())
    assert found["transfer_copy_mse"] > 0
