"""Surgery reports equal pictures where they are equal, and only there."""

import copy

import pytest
import torch

from nps.experiments.mnist import surgery
from nps.experiments.mnist.surgery import compare, deletion, fifth
from nps.worlds.transformations import matrices, transform
from tests.experiments.test_mnist_compose import shuffled, without_rules
from tests.models.test_digits import images, make, obedient


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(surgery, "CHUNK", 4)


def mse(model, operation: int, count: int = 10) -> float:
    chosen = torch.full((count,), operation)
    target = transform(images(count), chosen, matrices())
    with torch.no_grad():
        return (model(images(count), chosen).sigmoid() - target).square().mean().item()


def test_deleting_a_rule_changes_its_operation_alone():
    model = shuffled()
    rows = deletion(model, images(10), matrices())
    assert [(row["deleted"], row["rule"]) for row in rows] == [(0, 1), (1, 2), (2, 3), (3, 0)]
    for row in rows:
        own = row["deleted"]
        assert row["equal"] == [o != own for o in range(4)]
        without = copy.deepcopy(model)
        without.layer.rules.remove(row["rule"])
        for o in range(4):
            assert row["before"][o] == pytest.approx(mse(model, o), rel=1e-5)
            assert row["after"][o] == pytest.approx(mse(without, o), rel=1e-5)
            if o != own:
                assert row["after"][o] == row["before"][o]
    assert len(model.layer.rules) == 4  # the model itself is whole


def test_operations_that_share_a_rule_are_reported():
    model = obedient(make())
    with torch.no_grad():
        model.operations.weight[3] = model.operations.weight[0]
    rows = deletion(model, images(10), matrices())
    assert rows[0]["equal"] == rows[3]["equal"] == [False, True, True, False]


def test_no_rule_to_spare():
    assert deletion(without_rules(), images(4), matrices()) == []


def test_a_small_change_of_one_rule_is_a_difference():
    model = obedient(make())
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.layer.rules.bias_out[2] += 1e-5
    row = compare(model, [other], images(10), matrices())[0]
    assert row.equal == [True, True, False, True]


@pytest.mark.parametrize("greedy", [False, True], ids=["keeps out", "takes over"])
def test_the_fifth_rule_beside_the_old_four(greedy):
    original = obedient(make())
    model = copy.deepcopy(original)
    torch.manual_seed(1)
    model.add_operation()
    model.eval()
    with torch.no_grad():
        # All its scores are zero, never the best; or twice those of rule 0.
        model.layer.rules.embedding[4] = 40.0 if greedy else 0.0
        model.operations.added.zero_()
        model.operations.added[0, 3] = 20.0  # the mark of an operation
    measured = fifth(original, model, images(10), matrices())
    assert measured["equal"] == [not greedy, True, True, True]
    assert measured["before"] == pytest.approx([mse(original, o) for o in range(4)], rel=1e-5)
    assert measured["after"] == pytest.approx([mse(model, o) for o in range(4)], rel=1e-5)
    assert measured["mse"] == pytest.approx(mse(model, 4), rel=1e-5)
    flipped = images(10).flip(-1)
    assert measured["black"] == pytest.approx(flipped.square().mean().item(), rel=1e-5)
    assert measured["copy"] == pytest.approx(
        (flipped - images(10)).square().mean().item(), rel=1e-4
    )
    assert sum(measured["uses"]) == 10
    assert len(measured["uses"]) == 5
