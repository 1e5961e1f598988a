"""The world against a scalar transcription of the task."""

import pytest
import torch

from nps.worlds.arithmetic import OPERATIONS, demonstrate


@pytest.mark.parametrize("reading", ["any", "other"])
def test_every_example_is_its_operation(reading):
    data = demonstrate(500, seed=3, reading=reading)
    for before, after, operation, primary, context in zip(*data, strict=True):
        axis, sign = {
            "x addition": (0, 1),
            "x subtraction": (0, -1),
            "y addition": (1, 1),
            "y subtraction": (1, -1),
        }[OPERATIONS[operation]]
        expected = [list(point) for point in before.tolist()]
        argument = before[context][axis].item()
        expected[primary][axis] = (before[primary][axis] + sign * argument).item()
        assert torch.equal(after, torch.tensor(expected))


def test_readings():
    other = demonstrate(1000, seed=0, reading="other")
    assert (other.context == 1 - other.primary).all()
    either = demonstrate(4000, seed=0, reading="any")
    assert (either.context == either.primary).float().mean().item() == pytest.approx(0.5, abs=0.04)


def test_seeded_and_spread():
    a, b, c = demonstrate(4000, 1), demonstrate(4000, 1), demonstrate(4000, 2)
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(a.before, c.before)
    shares = torch.bincount(a.operation, minlength=4) / 4000
    assert (shares - 0.25).abs().max() < 0.04
    assert 0 <= a.before.min() < a.before.max() < 1
