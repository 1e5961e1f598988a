"""F.conv2d for images laid out (B, H, W, C), for one model or a stack of seeds.

The plain twin is F.conv2d on a permuted view. There are two fast forms: cuDNN seed by seed, where
the images of one seed fill the GPU (conv2d_cudnn.py), and a kernel for all seeds at once, where
they do not (conv2d_stack.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.kernels import conv2d_cudnn
from nps.kernels.conv2d_stack import convolve
from nps.kernels.unroll import to_unit_range

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped


def conv2d(
    image: Shaped[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K K"],
    bias: Float[Tensor, "out"] | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
) -> Float[Tensor, "B H2 W2 out"]:
    """A convolution with a border of zeros. Bytes become numbers from 0 to 1."""
    keeps_size = stride == 1 and 2 * padding + 1 == weight.shape[-1]
    if keeps_size and bias is None and conv2d_cudnn.supported(image, weight):
        return conv2d_cudnn.conv2d_same(image, weight)
    image = to_unit_range(image)
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    if padding:  # `convolve` by itself would replicate the border
        image = F.pad(image, (0, 0, padding, padding, padding, padding))
    return convolve(image, weight[None, None], bias, stride=stride)


def conv2d_relu(
    image: Shaped[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K K"],
    bias: Float[Tensor, "out"],
) -> Float[Tensor, "B H W out"]:
    """A convolution that keeps the size of the image, K odd, and ReLU.

    For many channels: a model by itself goes to cuDNN whatever its size.
    """
    if conv2d_cudnn.supported(image, weight):
        return conv2d_cudnn.conv2d_same(image, weight, bias)
    padding = weight.shape[-1] // 2
    if torch._C._functorch.is_functorch_wrapped_tensor(weight):  # a stack of seeds
        return conv2d(image, weight, bias, padding=padding).relu()
    # The permuted view is the layout that cuDNN calls channels_last.
    x = F.conv2d(to_unit_range(image).permute(0, 3, 1, 2), weight, bias, padding=padding)
    return x.relu().permute(0, 2, 3, 1)
