"""Bilinear enlargement ×2 and a convolution, as one convolution that never makes the large image.

Bilinear enlargement, a replicated border and a convolution are all linear, so together they are one
convolution of the small image for each of the four positions of a pixel pair. The result is the
same up to rounding with a quarter of the memory, which is the cost of a decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps import kernels
from nps.kernels.conv2d_stack import convolve

if TYPE_CHECKING:
    from jaxtyping import Float


class EnlargeConv(nn.Module):
    """Bilinear ×2, ReplicationPad2d(padding), Conv2d(in_channels, out_channels, kernel).

    Shapes: (B, H, H, in) -> (B, H', H', out), H' = 2H + 2·padding - kernel + 1.
    """

    taps: Tensor

    def __init__(self, in_channels: int, out_channels: int, kernel: int, padding: int) -> None:
        super().__init__()
        self.kernel, self.padding = kernel, padding
        bound = (in_channels * kernel**2) ** -0.5  # torch's default for a convolution
        self.weight = nn.Parameter(
            torch.empty(out_channels, in_channels, kernel, kernel).uniform_(-bound, bound)
        )
        self.bias = nn.Parameter(torch.empty(out_channels).uniform_(-bound, bound))
        taps, self._first = joint_taps(kernel, padding)
        self.register_buffer("taps", taps, persistent=False)

    def forward(self, image: Float[Tensor, "B H H in"]) -> Float[Tensor, "B H2 H2 out"]:
        if not supported():
            return step_by_step(image, self.weight, self.bias, self.padding)
        size = 2 * image.shape[1] + 2 * self.padding - self.kernel + 1
        weight = torch.einsum("oiac,pya,qxc->pqoiyx", self.weight, self.taps, self.taps)
        return convolve(image, weight, self.bias, before=-self._first, size=size)


def step_by_step(
    image: Float[Tensor, "B H H in"],
    weight: Float[Tensor, "out in kernel kernel"],
    bias: Float[Tensor, "out"],
    padding: int,
) -> Float[Tensor, "B H2 H2 out"]:
    """The plain twin: enlarge, replicate the border, convolve."""
    large = F.interpolate(image.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear")
    if padding:
        large = F.pad(large, (padding,) * 4, mode="replicate")
    return convolve(large.permute(0, 2, 3, 1), weight[None, None], bias)


def supported() -> bool:
    """On every device, unless it is switched off."""
    return kernels.is_on("enlarge")


def joint_taps(kernel: int, padding: int) -> tuple[Float[Tensor, "2 small kernel"], int]:
    """How much each small pixel contributes to each tap of the kernel, along one axis.

    The large pixel 2u is ¼ of small pixel u - 1 and ¾ of u; 2u + 1 is ¾ of u and ¼ of u + 1. Output
    pixel 2t + p reads the large pixels 2t + p + a - padding, a = 0 … kernel - 1.

    Returns:
        the shares [p, s, a], and the position of the first small pixel relative to t.
    """
    shares: dict[tuple[int, int, int], float] = {}
    for p in range(2):
        for a in range(kernel):
            u, odd = divmod(p + a - padding, 2)
            near, far = (u, u + 1) if odd else (u, u - 1)
            shares[p, near, a], shares[p, far, a] = 0.75, 0.25
    places = [place for _, place, _ in shares]
    first = min(places)
    taps = torch.zeros(2, max(places) - first + 1, kernel)
    for (p, place, a), share in shares.items():
        taps[p, place - first, a] = share
    return taps, first
