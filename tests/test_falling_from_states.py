"""The example that learns falls from true states."""

import importlib.util
from pathlib import Path

import pytest
import torch

from nps.experiments.stacks import evaluation
from nps.worlds import stacks
from nps.worlds.stacks.making import Settings, make_all

PATH = Path(__file__).parents[1] / "examples/falling_from_states.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(PATH.stem, PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sets():
    pytest.importorskip("mujoco")
    made = make_all(Settings(train=6, validation=3, test=3, four=1))
    return {name: stacks.Episodes.of(falls) for name, falls in made.items()}


def test_a_mirrored_tower_looks_mirrored(example, sets):
    shapes, mirrored = (e.shapes(9) for e in (sets["train"], example.mirrored(sets["train"])))
    ids, flipped = (stacks.segment(s, pixels=64).view(6, 64, 64) for s in (shapes, mirrored))
    assert (ids.flip(2) == flipped).float().mean() > 0.999
    assert (ids != flipped).any()


def test_errors_are_those_of_the_experiment(example):
    torch.manual_seed(0)
    predicted, true = torch.randn(2, 4, 30, 3, 2)
    expected = evaluation.errors(predicted, true).mean(0)
    found = example.errors(predicted.flatten(1), true.flatten(1))
    assert found == pytest.approx((expected[:15].mean().item(), expected[15:].mean().item()))


def test_it_learns_the_falls_that_it_is_shown(example, sets, monkeypatch):
    monkeypatch.setattr(stacks, "load", lambda: dict.fromkeys(sets, sets["train"]))
    monkeypatch.setattr(example, "BATCH", 4)
    near, far = example.train(0)
    places = stacks.centres(sets["train"].position[:, :31])
    still = evaluation.errors(places[:, :1], places[:, 1:]).mean(0)
    assert near < 0.2 * still[:15].mean()
    assert far < 0.2 * still[15:].mean()
