"""Falling towers on CUDA: a captured step is the eager one, and pictures are those of the CPU.

python -m pytest -m gpu
"""

import dataclasses

import numpy as np
import pytest
import torch

from nps.experiments.stacks import PRESETS, StacksTask
from nps.training import checkpoint
from nps.worlds import stacks
from nps.worlds.stacks.making import HEIGHTS, Falls
from nps.worlds.stacks.towers import draw_tower
from tests.on_gpu import CUDA, assert_reads_nothing_on_the_host, go

pytestmark = pytest.mark.gpu

SMALL = {
    "pixels": 32,
    "width": 16,
    "rule_hidden_dim": 8,
    "frames": 3,
    "test_frames": 5,
    "batch_size": 4,
    "epochs": 3,
    "validate_every": 1,
    "episodes": 8,
    "validation_episodes": 4,
    "test_episodes": 4,
    "samples": 10,
}


@pytest.fixture(autouse=True)
def towers(monkeypatch):
    """Towers that slide sideways: there need be no MuJoCo on a machine with a GPU."""

    def sliding(height):
        found = []
        for i in range(8):
            tower = draw_tower(np.random.default_rng(i), height)
            way = 0.05 * np.arange(32)[:, None, None] * np.array([1.0, 0.5, 0.0])
            place = np.float32(tower.position + way * np.arange(height)[:, None])
            turn = np.broadcast_to(np.float32(tower.rotation), (32, height, 4))
            touched = np.zeros((32, height, height), bool)
            breaks = np.array(tower.breaks, np.uint8)
            constant = (tower.kind, np.float32(tower.size), tower.colour, breaks)
            found.append(Falls(*constant, place, turn, touched, touched[..., 0]))
        return Falls(*(np.stack(x) for x in zip(*found, strict=True)))

    made = {name: sliding(height) for name, height in HEIGHTS.items()}
    sets = {name: stacks.Episodes.of(falls, CUDA) for name, falls in made.items()}
    monkeypatch.setattr(stacks, "load", lambda settings, device: sets)
    return made


def task_of(preset, **changes):
    return StacksTask(dataclasses.replace(PRESETS[preset].config, **SMALL, **changes), CUDA)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("preset", PRESETS)
def test_captured_equals_eager(tmp_path, preset, precision):
    task = task_of(preset, settle_from=0.6)
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


def test_a_test_runs_on_the_gpu():
    task = task_of("stacks")
    found = task.test(task.make_model(0).eval())
    assert found["four_still_p1"] > 0


def test_pictures_are_those_of_the_cpu(towers):
    here, there = (stacks.Episodes.of(towers["test"], d) for d in ("cpu", CUDA))
    images = [stacks.render(e.shapes(3), e.colour, pixels=64).cpu() for e in (here, there)]
    assert (images[0].int() - images[1].int()).abs().float().mean() < 0.05
    masks = [stacks.masks(e.shapes(3)).cpu() for e in (here, there)]
    assert (masks[0] != masks[1]).float().mean() < 1e-3
