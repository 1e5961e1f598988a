"""Normalisation of features against torch's; the kernels in Triton's interpreter and on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional as F

from nps.kernels import feature_norm as module
from nps.kernels.feature_norm import normalise_features
from tests.gradients import assert_same, normal, one_by_one, with_gradients
from tests.interpreter import interpreted, kernels

# images, features, size of a feature
CASES = [(2, 100, 64), (3, 7, 6), (1, 130, 128)]


def by_torch(x: Tensor, added: Tensor) -> Tensor:
    return F.layer_norm(x + added, x.shape[-1:])


def inputs(case, seeds=()) -> list[Tensor]:
    return [normal(*seeds, *case), normal(*seeds, *case[1:], seed=1)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_torch_s(case):
    tensors = inputs(case)
    found = with_gradients(normalise_features, tensors)
    assert_same(found, with_gradients(by_torch, tensors), 1e-9)
    assert torch.equal(normalise_features(tensors[0]), F.layer_norm(tensors[0], case[-1:]))


def test_autocast_leaves_the_type_alone():
    x, added = (v.bfloat16() for v in inputs(CASES[1]))
    with torch.autocast("cpu", torch.bfloat16):
        assert normalise_features(x, added.float()).dtype == torch.bfloat16


def test_what_the_kernels_take(monkeypatch):
    monkeypatch.setattr(module.kernels, "possible", lambda _: True)

    def taken(size, dtype):
        return module.supported(torch.empty(2, 3, size, dtype=dtype, device="meta"))

    assert taken(64, torch.bfloat16)
    assert taken(128, torch.float32)
    assert not taken(129, torch.float32)
    assert not taken(64, torch.float64)


def compare(device: str) -> None:
    """One model and a stack, with something added and without, against float64 by torch."""
    for case in CASES:
        for seeds in ((), (2,)):
            exact = inputs(case, seeds)
            single = [v.to(device, torch.float32) for v in exact]
            reference, call = by_torch, normalise_features
            if seeds:
                reference, call = one_by_one(by_torch), vmap(normalise_features)
            with kernels(module):
                assert_same(with_gradients(call, single), with_gradients(reference, exact), 1e-5)
                alone = with_gradients(call, single[:1])
            zero = [exact[0], torch.zeros_like(exact[1])]
            assert_same(alone, with_gradients(reference, zero)[:2], 1e-5)


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    interpreted(f"from {__name__} import compare; compare('cpu')")


@pytest.mark.gpu
def test_the_kernels_on_a_gpu():
    compare("cuda")
