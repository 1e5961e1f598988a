"""Vectors of length 1, against torch's own."""

import pytest
import torch
from torch.nn import functional as F

from nps.models.unit import unit


@pytest.mark.parametrize("dim", [0, 2, -1])
def test_values_and_gradients_are_those_of_torch(dim):
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    found, expected = unit(x, dim), F.normalize(x, dim=dim)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert torch.autograd.gradcheck(lambda y: unit(y, dim), x)


def test_nothing_stays_nothing():
    x = torch.zeros(2, 3, requires_grad=True)
    y = unit(x, -1)
    assert torch.equal(y, x)
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


def test_halves_become_float32_and_get_halves_back():
    x = torch.randn(4, 8).bfloat16().requires_grad_()
    y = unit(x, 1)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.norm(dim=1), torch.ones(4))
    assert torch.autograd.grad(y.sum(), x)[0].dtype == torch.bfloat16
