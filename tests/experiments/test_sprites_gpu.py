"""Sprites-MOT on CUDA: a captured step is the eager one, and pictures are those of the CPU.

python -m pytest -m gpu
"""

import dataclasses

import pytest
import torch

from nps.experiments.sprites import PRESETS, SpritesTask
from nps.training import checkpoint
from nps.worlds.sprites import make_videos, render
from tests.on_gpu import CUDA, assert_reads_nothing_on_the_host, go

pytestmark = pytest.mark.gpu

PRESETS_TO_TRY = ["sprites", "sprites-op3", "sprites-pnps", "sprites-none"] + [
    f"sprites-tracker{end}" for end in ("", "-pnps", "-attention", "-gnn", "-none")
]
SMALL = {
    "size": 16,
    "slots": 3,
    "latent_dim": 8,
    "channels": 8,
    "memory_dim": 16,
    "first_refinements": 2,
    "refinements": 1,
    "frames": 3,
    "video_frames": 6,
    "batch_size": 4,
    "epochs": 3,
    "validate_every": 1,
    "train_videos": 4,
    "validation_videos": 3,
    "test_videos": 3,
}


def task_of(preset, **changes):
    return SpritesTask(dataclasses.replace(PRESETS[preset].config, **SMALL, **changes), CUDA)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("preset", PRESETS_TO_TRY)
def test_captured_equals_eager(tmp_path, preset, precision):
    """Refinement takes gradients within the step, which is captured whole."""
    task = task_of(preset, settle_from=0.6)
    saved = []
    for way in (True, False):
        run = go(tmp_path / str(way), task, capture=way, precision=precision)[0]
        saved.append(checkpoint.newest(run.checkpoints, print))
        assert run.provenance()[0]["captured"] is way
    for name, tensor in saved[1].tensors["model"].items():
        torch.testing.assert_close(saved[0].tensors["model"][name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("preset", PRESETS_TO_TRY)
def test_a_step_reads_nothing_on_the_host(preset):
    assert_reads_nothing_on_the_host(task_of(preset), seeds=(0,))


@pytest.mark.parametrize("preset", ["sprites", "sprites-tracker"])
def test_a_test_runs_on_the_gpu(preset):
    task = task_of(preset)
    assert task.test(task.make_model(0).eval())["copy1_mse"] > 0


def test_pictures_are_those_of_the_cpu():
    drawn = [render(make_videos(4, 0, device=device)) for device in ("cpu", CUDA)]
    for here, there in zip(*drawn, strict=True):
        assert (here != there.cpu()).float().mean() < 1e-4
