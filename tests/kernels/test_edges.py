"""Inputs of the GNN's edges against a loop over pairs; the kernels too, on a GPU or in Triton's
interpreter."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional as F

from nps.interactions import GNN
from nps.kernels import edges as module
from nps.kernels import norm_relu_sum
from nps.kernels.edges import edge_inputs
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

# graphs, slots, width
CASES = [(3, 2, 16), (5, 5, 24), (1, 3, 512)]


def by_loop(receiver, sender):
    graphs, m, width = receiver.shape
    rows = [F.relu(receiver[:, i] + sender[:, j]) for i in range(m) for j in range(m) if j != i]
    return torch.stack(rows, 1).view(graphs, m, m - 1, width)


def inputs(case, seeds=()):
    return [normal(*seeds, *case, seed=seed) for seed in (0, 1)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_those_of_the_loop(case):
    tensors = inputs(case)
    assert_same(with_gradients(edge_inputs, tensors), with_gradients(by_loop, tensors), 1e-12)


def test_a_single_slot_has_no_pairs():
    assert edge_inputs(normal(3, 1, 4), normal(3, 1, 4)).shape == (3, 1, 0, 4)


def test_what_the_kernels_take(monkeypatch):
    """bf16, which autocast makes of the products before; the rest goes by torch."""
    taken = kernels_take(module, monkeypatch)
    assert taken(4, 3, 512)
    assert taken(4, 3, 2048)
    assert not taken(4, 3, 2049)
    assert not taken(4, 1, 512)
    assert not taken(4, 3, 512, dtype=torch.float32)
    assert not taken(0, 3, 512)


# -- the kernels -----------------------------------------------------------------------------------


def compare(device: str) -> None:
    """With the loop in float64; in a gradient inside vmap, and in a stack of stacks."""
    cases = [partial(inputs, case) for case in CASES]
    compare_kernels(module, edge_inputs, by_loop, cases, device, 1e-6)
    receiver, sender = (v.to(device, torch.float32) for v in inputs(CASES[0], (2, 3)))

    def loss(receiver, sender):
        return edge_inputs(receiver, sender).sin().sum()

    each = vmap(vmap(grad(loss), (0, None)))
    with kernels(module, False):
        expected = each(receiver.double(), sender[:, 0].double())
    with kernels(module):
        found = each(receiver, sender[:, 0])
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    assert_not_derived_twice(module, lambda x: loss(x, sender[0, 0]), receiver[0, 0])


def compare_a_gnn(device: str) -> None:
    """A stack of GNNs with the kernels of edges and networks, and without."""
    torch.manual_seed(0)
    stack = Stack([GNN(6, hidden_dim=32, action_dim=2).to(device) for _ in range(3)])
    slots, action = torch.randn(3, 7, 4, 6, device=device), torch.randn(3, 7, 4, 2, device=device)
    found = []
    for taken in (False, True):
        with kernels(module, taken), kernels(norm_relu_sum, taken):
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
def test_in_bf16_a_stack_is_exact_up_to_rounding_and_repeats_bit_for_bit():
    tensors = inputs((300, 5, 512), (3,))
    expected = with_gradients(one_by_one(by_loop), tensors)
    given = [v.cuda().bfloat16() for v in tensors]
    assert module.supported(given[0][0])
    assert_close_and_repeated(vmap(edge_inputs), given, expected)


@pytest.mark.gpu
def test_gnns_under_autocast_take_them_and_agree():
    torch.manual_seed(0)
    assert_taken_and_close(
        [GNN(8, hidden_dim=512) for _ in range(3)], (5, 8), module, norm_relu_sum
    )
