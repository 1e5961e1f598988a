"""Convolution for a stack of seeds, against its definition; the kernels in Triton's interpreter
and on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nps.kernels import conv2d_stack
from nps.kernels.conv2d_stack import convolve
from tests.interpreter import interpreted, kernels

# images, side, channels, kernel, stride, before, up, output channels, side of the output
CASES = [
    (2, 9, 1, 4, 2, 0, 1, 16, 3),
    (3, 8, 16, 4, 2, 0, 1, 32, 3),
    (2, 8, 64, 4, 1, 2, 2, 32, 17),
    (2, 9, 32, 4, 1, 1, 2, 16, 17),
    (2, 9, 16, 3, 1, 1, 2, 1, 16),
    (2, 11, 16, 3, 3, 0, 1, 5, 3),
    (2, 7, 3, 3, 1, 0, 1, 24, 5),
]


def by_hand(image, weight, bias, stride, before, size):
    """Pixel by pixel, tap by tap."""
    up, out, kernel = weight.shape[0], weight.shape[2], weight.shape[-1]
    height = image.shape[1]
    result = image.new_zeros(len(image), size, size, out)
    for y in range(size):
        for x in range(size):
            for i in range(kernel):
                for j in range(kernel):
                    row = min(max(y // up * stride + i - before, 0), height - 1)
                    column = min(max(x // up * stride + j - before, 0), height - 1)
                    taps = weight[y % up, x % up, :, :, i, j]
                    result[:, y, x] += image[:, row, column] @ taps.T
    return result + bias


def inputs(case, dtype=torch.float64, device="cpu", seeds=()):
    count, side, channels, kernel, _, _, up, out, _ = case
    draw = torch.Generator().manual_seed(0)
    shapes = [
        (count, side, side, channels),
        (up, up, out, channels, kernel, kernel),
        (out,),
    ]
    made = (torch.randn(*seeds, *shape, generator=draw, dtype=torch.float64) for shape in shapes)
    return [x.to(device, dtype).requires_grad_() for x in made]


def with_gradients(case, tensors, call=convolve):
    stride, before, size = case[4], case[5], case[8]
    result = call(*tensors, stride=stride, before=before, size=size)
    weights = torch.linspace(-1, 2, result.numel(), device=result.device, dtype=result.dtype)
    gradients = torch.autograd.grad((result * weights.view_as(result)).sum(), tensors)
    return [result.detach(), *gradients]


@pytest.mark.parametrize("case", CASES)
def test_the_plain_form_is_the_definition(case):
    tensors = inputs(case)

    def reference(image, weight, bias, *, stride, before, size):
        return by_hand(image, weight, bias, stride, before, size)

    for ours, theirs in zip(
        with_gradients(case, tensors), with_gradients(case, tensors, reference), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_without_size_and_border_it_is_an_ordinary_convolution():
    image, weight, bias = inputs(CASES[1])
    theirs = F.conv2d(image.permute(0, 3, 1, 2), weight[0, 0], bias, 2).permute(0, 2, 3, 1)
    torch.testing.assert_close(convolve(image, weight, bias, stride=2), theirs)


def compare_kernels(device: str) -> None:
    """Values and gradients of every case, one seed and a stack, against float64 by torch."""
    for case in CASES:
        for seeds in ((), (3,)):
            exact = inputs(case, seeds=seeds)
            single = [x.detach().to(device, torch.float32).requires_grad_() for x in exact]
            call = torch.func.vmap(convolve) if seeds else convolve
            theirs = with_gradients(case, exact, call)
            with kernels(conv2d_stack):
                ours = with_gradients(case, single, call)
            for a, b in zip(ours, theirs, strict=True):
                scale = b.abs().max().item()
                torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=3e-6 * scale)


@pytest.mark.gpu
def test_the_kernels_on_a_gpu():
    compare_kernels("cuda")


@pytest.mark.gpu
def test_the_kernels_repeat_bit_for_bit():
    case = CASES[2]
    tensors = inputs(case, torch.float32, "cuda", seeds=(4,))
    call = torch.func.vmap(convolve)
    assert conv2d_stack.supported(tensors[0][0], tensors[1][0], case[4])
    first, again = with_gradients(case, tensors, call), with_gradients(case, tensors, call)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.gpu
def test_in_bf16_under_autocast():
    case = CASES[3]
    exact = inputs(case)
    tensors = [x.detach().to("cuda", torch.float32).requires_grad_() for x in exact]
    with torch.autocast("cuda", torch.bfloat16):
        ours = with_gradients(case, tensors)
    for a, b in zip(ours, with_gradients(case, exact), strict=True):
        error = (a.cpu().double() - b).norm() / b.norm()
        assert error < 0.01


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    interpreted(f"from {__name__} import compare_kernels; compare_kernels('cpu')")
