"""Convolutional layers for images laid out (B, H, W, C), with the parameters of nn.Conv2d."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from nps.kernels.conv2d import conv2d, conv2d_relu

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


class Conv(nn.Conv2d):
    """nn.Conv2d with channels last. Images may be bytes, which become numbers from 0 to 1."""

    def forward(self, image: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B H2 W2 out"]:
        stride, padding = int(self.stride[0]), int(self.padding[0])
        return conv2d(image, self.weight, self.bias, stride=stride, padding=padding)


class XavierConv(Conv):
    """Initialised as C-SWM does."""

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class ConvReLU(XavierConv):
    """A convolution that keeps the size of the image, and ReLU."""

    def __init__(self, size_in: int, size_out: int, kernel: int) -> None:
        super().__init__(size_in, size_out, kernel, padding=kernel // 2)

    def forward(self, image: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B H W out"]:
        assert self.bias is not None
        return conv2d_relu(image, self.weight, self.bias)
