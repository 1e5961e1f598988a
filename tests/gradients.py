"""Values and gradients of functions of tensors, to compare two ways of computing them."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import pytest
import torch
from torch.func import vmap

from nps.training.stack import Stack
from tests.interpreter import decisions, kernels


def normal(*size: int, seed: int = 0) -> torch.Tensor:
    """Numbers that bf16 has, too, in float64."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=draw, dtype=torch.float64).bfloat16().double()


def one_by_one(call):
    """What vmap(call) should be."""

    def each(*tensors):
        return torch.stack([call(*one) for one in zip(*tensors, strict=True)])

    return each


def with_gradients(call, tensors):
    """The result, and the gradients of all inputs."""
    tensors = [v.detach().requires_grad_() for v in tensors]
    out = call(*tensors)
    weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).bfloat16().to(out)
    return [out.detach(), *torch.autograd.grad((out * weights.view_as(out)).sum(), tensors)]


def assert_same(found, expected, tolerance):
    """Relative to the largest number of each."""
    for a, b in zip(found, expected, strict=True):
        far = tolerance * max(1.0, b.abs().max().item())
        torch.testing.assert_close(a.cpu().double(), b.cpu().double(), rtol=0, atol=far)


def assert_close_and_repeated(call, tensors, expected, share=0.01):
    """In fewer bits: within a share of the exact ones, and twice the same to the bit."""
    found, again = (with_gradients(call, tensors) for _ in range(2))
    for a, b, c in zip(found, again, expected, strict=True):
        assert torch.equal(a, b)
        assert (a.cpu().double() - c).norm() / c.norm() < share


def compare_kernels(module, call, reference, cases: Iterable[Callable], device, tolerance):
    """Values and gradients with the module's kernels, of one seed and of a stack.

    Args:
        call: what has kernels.
        reference: what it should be, in float64.
        cases: from the number of seeds, () or (S,), to tensors.
    """
    for case in cases:
        for seeds in ((), (2,)):
            tensors = case(seeds)
            expected = with_gradients(one_by_one(reference) if seeds else reference, tensors)
            with kernels(module):
                given = [v.to(device, torch.float32) for v in tensors]
                found = with_gradients(vmap(call) if seeds else call, given)
            assert_same(found, expected, tolerance)


def assert_not_derived_twice(module, loss, x):
    """With kernels, and that is said."""
    with kernels(module):
        x = x.clone().requires_grad_()
        (once,) = torch.autograd.grad(loss(x), x, create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivatives on CUDA"):
            torch.autograd.grad(once.sum(), x)


def kernels_take(module, monkeypatch):
    """(shape, dtype) -> would the kernels be taken on a GPU?"""
    monkeypatch.setattr(module.kernels, "possible", lambda _: True)

    def taken(*shape, dtype=torch.bfloat16):
        return module.supported(torch.empty(*shape, dtype=dtype, device="meta"))

    return taken


def assert_taken_and_close(models, of: tuple[int, ...], *modules):
    """A stack under autocast on a GPU takes the modules' kernels, and is what it is without."""
    stack, found = Stack([model.cuda() for model in models]), []
    x = torch.randn(len(models), 500, *of, device="cuda")
    for wanted in (True, False):
        with ExitStack() as within:
            within.enter_context(torch.autocast("cuda", torch.bfloat16))
            if wanted:
                offers = within.enter_context(decisions(*modules))
            else:
                for module in modules:
                    within.enter_context(kernels(module, False))
            y = stack.each(lambda model, one: model(one), x)
        found.append([y, stack.gradient(y.sin().flatten(1).sum(1))])
    assert {module for module, _ in offers} == set(modules)
    assert all(module.supported(tensor) for module, tensor in offers)
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype
        assert (a.double() - b.double()).norm() / b.double().norm() < 0.02
