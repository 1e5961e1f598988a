"""Normalisation, ReLU and sum as one, against the formula; the kernels in Triton's interpreter and
on a GPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional as F

from nps.interactions import GNN
from nps.kernels import norm_relu_sum as module
from nps.kernels.norm_relu_sum import norm_relu_sum
from nps.networks import NormalisedMLP
from nps.training.stack import Stack
from tests.gradients import (
    assert_close_and_repeated,
    assert_not_derived_twice,
    assert_same,
    assert_taken_and_close,
    compare_kernels,
    kernels_take,
    normal,
    one_by_one,
    with_gradients,
)
from tests.interpreter import interpreted, kernels

# sums, rows to a sum, width
CASES = [
    (3, 1, 16),
    (10, 4, 24),
    (2, 2, 512),
    (280, 3, 20),  # several programs, the last of which has not all its rows
]


def by_formula(x, weight, bias):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    return F.relu((x - mean) / (variance + 1e-5).sqrt() * weight + bias).sum(-2)


def inputs(case, seeds=()):
    """x, weight, bias, which bf16 can represent: rounding across the bend of a ReLU would change a
    gradient."""
    x = (normal(*seeds, *case) * 3 + 1).bfloat16().double()
    norm = [normal(*seeds, case[-1], seed=seed) + 0.5 for seed in (1, 2)]
    return [x, *norm]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_the_formula(case):
    tensors = inputs(case)
    found = with_gradients(norm_relu_sum, tensors)
    assert_same(found, with_gradients(by_formula, tensors), 1e-9)


def test_a_sum_of_no_rows_is_zero():
    x, weight, bias = inputs((3, 2, 8))
    assert torch.equal(norm_relu_sum(x[:, :0], weight, bias), x.new_zeros(3, 8))


def test_what_the_kernels_take(monkeypatch):
    """bf16, the type of the product before it under autocast; the rest takes the plain twin."""
    taken = kernels_take(module, monkeypatch)
    assert taken(4, 1, 512)
    assert taken(4, 3, 2048)
    assert not taken(4, 3, 2049)
    assert not taken(4, 3, 512, dtype=torch.float32)
    assert not taken(4, 0, 512)


# -- the kernels -----------------------------------------------------------------------------------


def compare(device: str) -> None:
    """Against the formula in float64, and in a gradient inside nested vmaps."""
    cases = [partial(inputs, case) for case in CASES]
    compare_kernels(module, norm_relu_sum, by_formula, cases, device, 1e-5)
    x, weight, bias = (v.to(device, torch.float32) for v in inputs(CASES[1], (2, 3)))

    def loss(x, weight, bias):
        return norm_relu_sum(x, weight, bias).sin().sum()

    each = vmap(vmap(grad(loss, (0, 1)), (0, None, 0)))
    with kernels(module, False):
        expected = each(x.double(), weight[:, 0].double(), bias.double())
    with kernels(module):
        found = each(x, weight[:, 0], bias)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
    assert_not_derived_twice(module, lambda one: loss(one, weight[0, 0], bias[0, 0]), x[0, 0])


def compare_a_gnn(device: str) -> None:
    """A stack of GNNs with the kernels of its networks, and without."""
    torch.manual_seed(0)
    stack = Stack([GNN(6, hidden_dim=32, action_dim=2).to(device) for _ in range(3)])
    slots, action = torch.randn(3, 7, 4, 6, device=device), torch.randn(3, 7, 4, 2, device=device)
    found = []
    for taken in (False, True):
        with kernels(module, taken):
            new = stack.each(lambda model, s, a: model(s, a), slots, action)
            found.append([new, stack.gradient(new.sin().sum((1, 2, 3)))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    program = f"""if True:
        from {__name__} import compare, compare_a_gnn
        compare("cpu"); compare_a_gnn("cpu")"""
    interpreted(program)


@pytest.mark.gpu
def test_the_kernels_on_a_gpu():
    compare("cuda")
    compare_a_gnn("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 4])
def test_in_bf16_a_stack_is_exact_up_to_rounding_and_repeats_bit_for_bit(rows):
    tensors = inputs((3000, rows, 512), (3,))
    expected = with_gradients(one_by_one(by_formula), tensors)
    given = [tensors[0].cuda().bfloat16(), *(v.cuda().float() for v in tensors[1:])]
    assert module.supported(given[0][0])
    assert_close_and_repeated(vmap(norm_relu_sum), given, expected)


@pytest.mark.gpu
def test_networks_under_autocast_take_them_and_agree():
    torch.manual_seed(0)
    assert_taken_and_close([NormalisedMLP(100, 512, 64) for _ in range(3)], (100,), module)


@pytest.mark.gpu
def test_gnns_under_autocast_take_them_and_agree():
    torch.manual_seed(0)
    assert_taken_and_close([GNN(8, hidden_dim=512) for _ in range(3)], (5, 8), module)
