"""Normalising and pooling features, against plain loops; the kernels in Triton's interpreter and
on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nps.kernels import attention, feature_norm, without
from nps.kernels.attention import Affine, attend, attention_weights, pool
from nps.kernels.feature_norm import normalise_features
from tests.interpreter import interpreted, kernels

# seeds (none: no stack), images, features, size of a feature, slots
CASES = [((), 2, 100, 64, 5), ((3,), 2, 64, 16, 3), ((2,), 3, 7, 6, 1), ((), 1, 130, 32, 17)]


def inputs(case) -> list[Tensor]:
    """Features, what is added, queries, offsets."""
    seeds, images, n, size, slots = case
    draw = torch.Generator().manual_seed(0)
    shapes = [(images, n, size), (n, size), (images, slots, size), (images, slots)]
    return [torch.randn(*seeds, *s, generator=draw, dtype=torch.float64) for s in shapes]


def pooled(x: Tensor, added: Tensor, queries: Tensor, offsets: Tensor) -> Tensor:
    """Normalise and pool, with and without something added to the features."""
    features = normalise_features(x, added), normalise_features(x)
    with_added, alone = (pool(each, queries, offsets) for each in features)
    return with_added + alone


def with_gradients(case, tensors: list[Tensor]) -> list[Tensor]:
    tensors = [x.requires_grad_() for x in tensors]
    result = (torch.func.vmap(pooled) if case[0] else pooled)(*tensors)
    weights = torch.linspace(-1, 2, result.numel(), device=result.device).view_as(result)
    return [result.detach(), *torch.autograd.grad((result * weights).sum(), tensors)]


def compare_kernels(device: str) -> None:
    for case in CASES:
        exact = inputs(case)
        single = [x.to(device, torch.float32) for x in exact]
        theirs = with_gradients(case, exact)
        with kernels(attention), kernels(feature_norm):
            ours = with_gradients(case, single)
        for a, b in zip(ours, theirs, strict=True):
            scale = b.abs().max().item()
            torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=1e-5 * scale)


def test_each_slot_pools_its_share():
    """Feature by feature, in plain loops."""
    x, added, queries, offsets = inputs(CASES[0])
    seen = normalise_features(x, added)
    result = pool(seen, queries, offsets)
    for image in range(len(x)):
        rows = x[image] + added
        rows = (rows - rows.mean(1, keepdim=True)) / (
            rows.var(1, keepdim=True, correction=0)
        ).sqrt()
        torch.testing.assert_close(seen[image], rows, rtol=1e-4, atol=1e-4)
        sums, total = torch.zeros(5, 64).double(), torch.zeros(5).double()
        for row in seen[image]:
            scores = torch.tensor(
                [row @ q + o for q, o in zip(queries[image], offsets[image], strict=True)]
            )
            won = scores.exp() / scores.exp().sum()
            sums += torch.outer(won, row)
            total += won
        torch.testing.assert_close(result[image], sums / total[:, None], rtol=1e-6, atol=1e-6)


def test_keys_and_values_need_not_be_made():
    """Slot by slot with keys and values as the paper of slot attention writes them."""
    draw = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, dtype=torch.float64)

    x, query = normal(2, 30, 6), normal(2, 3, 8)
    key, value = Affine(normal(8, 6), normal(8)), Affine(normal(8, 6), normal(8))
    keys, values = (x @ layer.weight.T + layer.bias for layer in (key, value))
    shares = torch.einsum("bmd,bnd->bmn", query, keys).softmax(1)
    means = shares @ values / shares.sum(2, keepdim=True)
    torch.testing.assert_close(attention_weights(x, query, key), shares)
    torch.testing.assert_close(attend(x, query, key, value), means, rtol=1e-6, atol=1e-6)


@pytest.mark.gpu
def test_the_kernels_on_a_gpu():
    compare_kernels("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_repeat_bit_for_bit(dtype):
    case = ((2,), 40, 2500, 64, 5)
    tensors = [x.to("cuda", torch.float32) for x in inputs(case)]
    tensors[0] = tensors[0].to(dtype)
    first, again = (with_gradients(case, [x.clone() for x in tensors]) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.gpu
def test_in_bf16_they_are_no_further_off_than_torch_s_operations():
    """Gradients that nearly cancel lose digits in any bf16; the kernels lose no more than torch."""
    case = ((), 8, 2500, 64, 5)
    exact = inputs(case)
    exact[2] /= 8  # scores of about 1, as at the start of training
    tensors = [x.to("cuda", torch.float32) for x in exact]
    tensors[0] = tensors[0].bfloat16()
    theirs = with_gradients(case, exact)
    ours = with_gradients(case, [x.clone() for x in tensors])
    with without("attention", "feature_norm"):
        usual = with_gradients(case, [x.clone() for x in tensors])
    for a, b, c in zip(ours, theirs, usual, strict=True):
        off, torch_s = ((x.cpu().double() - b).norm() / b.norm() for x in (a, c))
        assert off < torch_s * 1.1
        assert off < 0.1


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    interpreted(f"from {__name__} import compare_kernels; compare_kernels('cpu')")
