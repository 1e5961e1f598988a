"""Enlarge an image twofold, then convolve it, without ever making the large image.

Bilinear enlargement, replication of the border and a convolution are all linear, so together they
are one convolution of the small image for each of the four positions of a pixel pair. The numbers
are the same (up to rounding) with a quarter of the memory, which is what a decoder costs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from jaxtyping import Float


class EnlargeConv(nn.Module):
    """Bilinear ×2, ReplicationPad2d(padding), Conv2d(in_channels, out_channels, kernel).

    Shapes: (B, in, H, H) -> (B, out, 2H + 2·padding - kernel + 1, ·).
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

    def forward(self, image: Float[Tensor, "B in H H"]) -> Float[Tensor, "B out H2 H2"]:
        height = image.shape[-1]
        size = 2 * height + 2 * self.padding - self.kernel + 1
        pairs = math.ceil(size / 2)
        before = -self._first
        after = pairs + self.taps.shape[1] - 1 - before - height
        small = F.pad(image, (before, after, before, after), mode="replicate")
        # Channels ordered as pixel_shuffle wants them: (out, row of the pair, column of the pair).
        weight = torch.einsum("oiac,pya,qxc->opqiyx", self.weight, self.taps, self.taps)
        pixels = F.conv2d(small, weight.flatten(0, 2), self.bias.repeat_interleave(4))
        return F.pixel_shuffle(pixels, 2)[..., :size, :size]


def joint_taps(kernel: int, padding: int) -> tuple[Float[Tensor, "2 small kernel"], int]:
    """How much each small pixel gives to each tap of the kernel, along one axis.

    The large pixel 2u is ¼ of small pixel u - 1 and ¾ of u; 2u + 1 is ¾ of u and ¼ of u + 1. Output
    pixel 2t + p reads the large pixels 2t + p + a - padding, a = 0 … kernel - 1.

    Returns:
        [p, s, a], and the place of the first small pixel relative to t.
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
