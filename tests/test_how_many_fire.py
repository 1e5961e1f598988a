"""The example in which a layer decides how many slots fire."""

import dataclasses
import importlib
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("how_many_fire")


def test_a_block_goes_where_its_action_says(example):
    data = example.pushed_blocks(40, 1)
    state, after = data["state"], data["after"]
    place, action = state[..., :2], state[..., 3:]
    acts = action.abs().sum(-1) > 0
    moved = (after != place).any(-1)
    assert torch.equal(moved, data["changed"])
    torch.testing.assert_close(after[acts & moved], (place + action)[acts & moved])
    pushed = moved & ~acts
    assert pushed.any()
    assert (moved.sum(-1) <= 2).all()
    assert (pushed.sum(-1) <= (moved & acts).sum(-1)).all()  # nobody is pushed by one who stays


@pytest.mark.parametrize("name", ["arithmetic", "blocks", "balls"])
def test_every_layer_trains_and_the_adaptive_one_has_two_ends(example, name):
    world = example.worlds()[name]
    data = {key: x[:400] for key, x in world.train.items()}
    world = dataclasses.replace(world, train=data)
    for label, kind in example.LAYERS.items():
        if kind in (None, "gnn") and name != "balls":
            continue
        torch.manual_seed(0)
        model = example.Model(
            None if kind is None else kind if kind.startswith("seq") else kind.removesuffix(" 1"),
            world,
        )
        example.train(model, world, 3)
        assert len(example.test(model, data).split()) == (2 if kind in (None, "gnn") else 5), label
    assert example.test(model, data).split()[-3] == "100.0%"  # it fires everywhere at first
    model.layer.most = 1
    assert float(example.test(model, data).split()[-1]) <= 1
