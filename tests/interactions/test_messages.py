"""What an edge of the GNN gets, against a loop over pairs; the kernels too, on a GPU or in Triton's
interpreter."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional as F

from nps.interactions import GNN
from nps.interactions import messages as module
from nps.interactions.messages import pairs
from nps.networks import normalised
from nps.training.stack import Stack
from tests.gradients import (
    assert_close_and_repeated,
    assert_same,
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
    assert_same(with_gradients(pairs, tensors), with_gradients(by_loop, tensors), 1e-12)


def test_a_single_slot_has_no_pairs():
    assert pairs(normal(3, 1, 4), normal(3, 1, 4)).shape == (3, 1, 0, 4)


def test_what_the_kernels_take(monkeypatch):
    """bf16, which autocast makes of the products before; the rest goes by torch."""
    monkeypatch.setattr(module.kernels, "possible", lambda _: True)

    def taken(*shape, dtype=torch.bfloat16):
        return module._has_kernels(torch.empty(*shape, dtype=dtype, device="meta"))

    assert taken(4, 3, 512)
    assert taken(4, 3, 2048)
    assert not taken(4, 3, 2049)
    assert not taken(4, 1, 512)
    assert not taken(4, 3, 512, dtype=torch.float32)
    assert not taken(0, 3, 512)


# -- the kernels -----------------------------------------------------------------------------------


def compare_kernels(device: str) -> None:
    """Values and gradients of every case, one seed and a stack, against the loop in float64."""
    for case in CASES:
        for seeds in ((), (2,)):
            tensors = inputs(case, seeds)
            expected = with_gradients(one_by_one(by_loop) if seeds else by_loop, tensors)
            with kernels(module):
                given = [v.to(device, torch.float32) for v in tensors]
                found = with_gradients(vmap(pairs) if seeds else pairs, given)
            assert_same(found, expected, 1e-6)


def compare_transforms(device: str) -> None:
    """The kernels in a gradient inside vmap, and in a stack of stacks; none is derived twice."""
    receiver, sender = (v.to(device, torch.float32) for v in inputs(CASES[0], (2, 3)))

    def loss(receiver, sender):
        return pairs(receiver, sender).sin().sum()

    each = vmap(vmap(grad(loss), (0, None)))
    with kernels(module, False):
        expected = each(receiver.double(), sender[:, 0].double())
    with kernels(module):
        found = each(receiver, sender[:, 0])
        x = receiver[0, 0].clone().requires_grad_()
        (once,) = torch.autograd.grad(loss(x, sender[0, 0]), x, create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivatives on CUDA"):
            torch.autograd.grad(once.sum(), x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def compare_a_gnn(device: str) -> None:
    """A stack of GNNs with the kernels of edges and networks, and without."""
    torch.manual_seed(0)
    stack = Stack([GNN(6, hidden_dim=32, action_dim=2).to(device) for _ in range(3)])
    slots, action = torch.randn(3, 7, 4, 6, device=device), torch.randn(3, 7, 4, 2, device=device)
    found = []
    for taken in (False, True):
        with kernels(module, taken), kernels(normalised, taken):
            new = stack.each(lambda model, s, a: model(s, a), slots, action)
            found.append([new, stack.gradient(new.sin().sum((1, 2, 3)))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    program = f"""if True:
        from {__name__} import compare_a_gnn, compare_kernels, compare_transforms
        compare_kernels("cpu"); compare_transforms("cpu"); compare_a_gnn("cpu")"""
    interpreted(program)


@pytest.mark.gpu
def test_the_kernels_on_a_gpu():
    compare_kernels("cuda")
    compare_transforms("cuda")
    compare_a_gnn("cuda")


@pytest.mark.gpu
def test_in_bf16_a_stack_is_exact_up_to_rounding_and_repeats_bit_for_bit():
    tensors = inputs((300, 5, 512), (3,))
    expected = with_gradients(one_by_one(by_loop), tensors)
    given = [v.cuda().bfloat16() for v in tensors]
    assert module._has_kernels(given[0][0])
    assert_close_and_repeated(vmap(pairs), given, expected)


@pytest.mark.gpu
def test_a_gnn_under_autocast_takes_them_and_agrees(monkeypatch):
    torch.manual_seed(0)
    gnn, slots, found = GNN(8, hidden_dim=512).cuda(), torch.randn(200, 5, 8).cuda(), []
    for taken in (True, False):
        if not taken:
            for each in (module, normalised):
                monkeypatch.setattr(each, "_has_kernels", lambda _: False)
        with torch.autocast("cuda", torch.bfloat16):
            new = gnn(slots)
        found.append([new, *torch.autograd.grad(new.sin().sum(), list(gnn.parameters()))])
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype
        assert (a.double() - b.double()).norm() / b.double().norm() < 0.02
