"""Compositions against plain loops, one digit and one operation at a time."""

import pytest
import torch

from nps.experiments.mnist import compose as module
from nps.experiments.mnist.compose import (
    compose,
    composition,
    in_the_slot,
    rules_in_use,
    through_pictures,
)
from nps.models.digits import DigitTransformation, OneMLP
from nps.worlds.transformations import matrices, paste, transform
from tests.models.test_digits import D, make, obedient

OPERATIONS = 4


def digits(count: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(5)
    return torch.randint(256, (count, 28, 28), generator=draw, dtype=torch.uint8)


def without_rules() -> DigitTransformation:
    torch.manual_seed(2)
    return DigitTransformation(OneMLP(D, 64), D, OPERATIONS).eval()


def shuffled() -> DigitTransformation:
    """Operation o uses rule (o + 1) mod 4."""
    model = obedient(make())
    with torch.no_grad():
        model.operations.weight.copy_(model.operations.weight[[1, 2, 3, 0]])
    return model


def test_the_rules_in_use_are_those_that_fire():
    images = paste(digits(6))
    assert rules_in_use(shuffled(), images, OPERATIONS) == [1, 2, 3, 0]
    assert rules_in_use(without_rules(), images, OPERATIONS) == [0, 1, 2, 3]
    same = obedient(make())
    with torch.no_grad():
        same.operations.weight[3] = same.operations.weight[0]  # two operations on one rule
    assert rules_in_use(same, images, OPERATIONS) == [0, 1, 2, 0]


@pytest.mark.parametrize("model", [shuffled, without_rules])
def test_both_ways_against_single_calls(model):
    """The model asked for each operation in turn does the same as its rules taken by hand."""
    model, images = model(), paste(digits(5))
    sequence = torch.tensor([[0, 3, 2, 1, 1], [2, 2, 1, 0, 3], [1, 0, 1, 3, 3]])
    rule_of = rules_in_use(model, images, OPERATIONS)
    shown = compose(model, images, sequence, rule_of, matrices())
    for b in range(5):
        truth = picture = images[b : b + 1]
        slot = model.encode(picture)
        for k in range(3):
            operation = sequence[k, b : b + 1]
            truth = transform(truth, operation, matrices())
            picture = model(picture, operation).sigmoid()
            slot = model.step(slot, operation)
            torch.testing.assert_close(shown.truth[k, b], truth[0])
            torch.testing.assert_close(shown.pictures[k, b], picture[0])
            torch.testing.assert_close(shown.slot[k, b], model.decode(slot)[0])


def test_one_rule_is_the_same_both_ways_and_two_are_not():
    model, images = obedient(make()), paste(digits(3))
    rules = torch.tensor([[2, 2, 0], [1, 3, 0]])
    with torch.no_grad():
        one, two = through_pictures(model, images, rules), in_the_slot(model, images, rules)
    assert torch.equal(one[0], two[0])
    assert not torch.allclose(one[1], two[1])


def test_errors_by_length_against_a_plain_sum(monkeypatch):
    model, count = shuffled(), 7
    monkeypatch.setattr(module, "DIGITS", count)
    monkeypatch.setattr(module, "CHUNK", 3)  # an incomplete chunk at the end
    drawn: list[torch.Tensor] = []
    true_pictures = module.true_pictures

    def spy(images, operations, matrices):
        drawn.append(operations)
        return true_pictures(images, operations, matrices)

    monkeypatch.setattr(module, "true_pictures", spy)
    measured = composition(model, digits(20), matrices())
    sequence = torch.cat(drawn, 1)
    assert sequence.shape == (5, count)
    assert measured["length"] == [1, 2, 3, 4, 5]
    assert measured["rules"] == [1, 2, 3, 0]
    images = paste(digits(20)[:count])
    truth, picture = images, images
    with torch.no_grad():
        for k in range(5):
            before = truth
            truth = transform(truth, sequence[k], matrices())
            picture = model(picture, sequence[k]).sigmoid()
            for name, answer in (("pictures", picture), ("black", 0 * truth), ("copy", before)):
                error = (answer - truth).square().mean().item()
                assert measured[name][k] == pytest.approx(error, rel=1e-4)
    assert measured["slot"][0] == pytest.approx(measured["pictures"][0])
    assert composition(model, digits(20), matrices()) == measured  # the same sequences every time


def test_a_model_that_is_right_composes_without_error(monkeypatch):
    """With the true operation in place of the network only the floors are left."""
    model = obedient(make())
    model.encode = model.decode = lambda images: images
    model.act = lambda images, rule: transform(images, torch.full((len(images),), rule), matrices())
    monkeypatch.setattr(module, "rules_in_use", lambda *_: [0, 1, 2, 3])
    measured = composition(model, digits(4), matrices())
    assert measured["pictures"] == measured["slot"] == [0.0] * 5
    assert min(measured["black"]) > 0
    assert min(measured["copy"]) > 0
