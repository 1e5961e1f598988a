"""Convolutions seed by seed against F.conv2d: layout and gradients on a CPU, bf16 on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nps.kernels import conv2d_cudnn
from nps.kernels.conv2d_cudnn import conv2d_same
from nps.kernels.unroll import has_few_channels
from nps.perception.conv import Conv

# images, height, width, channels, kernel, output channels, with bias and ReLU
CASES = [
    (2, 7, 8, 3, 9, 4, False),
    (3, 6, 6, 6, 3, 8, True),
    (2, 5, 4, 1, 5, 2, False),
    (2, 5, 7, 3, 3, 4, True),
    (2, 6, 6, 16, 3, 8, True),
    (2, 6, 6, 8, 5, 8, False),
]


def inputs(case, seeds=()):
    count, height, width, channels, kernel, out, biased = case
    draw = torch.Generator().manual_seed(0)
    shapes = [(count, height, width, channels), (out, channels, kernel, kernel)]
    shapes += [(out,)] if biased else []
    made = (torch.randn(*seeds, *shape, generator=draw, dtype=torch.float64) for shape in shapes)
    return [x.requires_grad_() for x in made]


def by_torch(image, weight, bias=None):
    y = F.conv2d(image.permute(0, 3, 1, 2), weight, bias, padding=weight.shape[-1] // 2)
    return (y if bias is None else y.relu()).permute(0, 2, 3, 1)


def with_gradients(call, tensors):
    result = call(*tensors)
    weights = torch.linspace(-1, 2, result.numel(), device=result.device, dtype=result.dtype)
    wanted = [x for x in tensors if x.requires_grad]
    gradients = torch.autograd.grad((result * weights.view_as(result)).sum(), wanted)
    return [result.detach(), *gradients]


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_conv2d(case):
    tensors = inputs(case)
    assert has_few_channels(*tensors[:2]) == (case[3] < 8 and case[2] % 2 == 0)
    for ours, theirs in zip(
        with_gradients(conv2d_same, tensors), with_gradients(by_torch, tensors), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shared", [False, True])
def test_a_stack_is_each_seed_alone(case, shared):
    """With images of its own for each seed, or the same ones for all."""
    seeds = 3
    tensors = inputs(case, (seeds,))
    if shared:
        tensors[0] = tensors[0][0].detach().requires_grad_()
    dims = (None if shared else 0, *[0] * (len(tensors) - 1))
    stacked = with_gradients(torch.vmap(conv2d_same, dims), tensors)

    def one_by_one(*tensors):
        each = [
            [x if d is None else x[s] for x, d in zip(tensors, dims, strict=True)]
            for s in range(seeds)
        ]
        return torch.stack([by_torch(*one) for one in each])

    for ours, theirs in zip(stacked, with_gradients(one_by_one, tensors), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("channels", [3, 8])
def test_bytes_are_numbers_from_0_to_1(channels):
    image = torch.arange(2 * 6 * 6 * channels).remainder(256).view(2, 6, 6, channels).byte()
    weight = torch.randn(4, channels, 5, 5, generator=torch.Generator().manual_seed(0))
    expected = by_torch(image / 255.0, weight)
    torch.testing.assert_close(conv2d_same(image, weight), expected)


def test_a_cpu_is_not_supported():
    assert not conv2d_cudnn.supported(torch.zeros(200, 50, 50, 3), torch.zeros(32, 3, 9, 9))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("channels", "kernel", "biased"), [(3, 9, False), (6, 9, False), (3, 3, True), (64, 3, True)]
)
def test_in_bf16_a_stack_is_exact_up_to_rounding(channels, kernel, biased):
    """Against float64, on positive images: gradients of pure noise cancel."""
    case = (112, 50, 50, channels, kernel, 64 if biased else 32, biased)
    tensors = [x.detach().bfloat16().double() for x in inputs(case, (2,))]
    tensors[0] = tensors[0].abs()
    theirs = with_gradients(
        lambda *stack: torch.stack([by_torch(*one) for one in zip(*stack, strict=True)]),
        [x.cuda().requires_grad_() for x in tensors],
    )
    ours = [x.cuda().float().requires_grad_() for x in tensors]
    with torch.autocast("cuda", torch.bfloat16):
        assert conv2d_cudnn.supported(ours[0][0], ours[1][0])
        ours = with_gradients(torch.vmap(conv2d_same), ours)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.double() - b).norm() / b.norm() < 0.02


@pytest.mark.gpu
def test_a_large_convolution_under_autocast_takes_it():
    conv = Conv(3, 32, 9, padding=4, bias=False).cuda()
    image = torch.randint(256, (112, 50, 50, 3), dtype=torch.uint8, device="cuda")
    exact = conv(image)
    with torch.autocast("cuda", torch.bfloat16):
        fast = conv(image)
    assert fast.dtype == torch.bfloat16
    assert fast.shape == exact.shape
    assert (fast.float() - exact).norm() / exact.norm() < 0.01
