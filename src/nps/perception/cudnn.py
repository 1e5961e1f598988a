"""Convolutions that keep a GPU busy with a single seed: cuDNN's, one seed after the other.

The kernels of convolution_kernels.py take a stack of seeds at once, for seeds that have little to
do each. Where one seed alone fills the GPU, in bf16, cuDNN is several times as fast, if it is given
what it is made for: images with many channels. An image of three is laid out anew (unroll.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.perception.convolution import numbers
from nps.perception.unroll import few, unroll, widened
from nps.seeds import stacked

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

LARGE = 2**18
"""Pixels of a seed's images from which on cuDNN takes the seeds one by one."""


def suits(image: Shaped[Tensor, "B H W C"], weight: Float[Tensor, "out C K K"]) -> bool:
    """Is this one for cuDNN: in bf16, large, of stride 1 and with the size kept?"""
    if not image.is_cuda or not torch.backends.cudnn.is_available():
        return False
    half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    many = few(image, weight) or image.shape[-1] % 8 == 0
    large = image.shape[:3].numel() >= LARGE
    return half and many and large and len(weight) % 8 == 0 and not torch.compiler.is_compiling()


def convolve(
    image: Shaped[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K K"],
    bias: Float[Tensor, "out"] | None = None,
) -> Float[Tensor, "B H W out"]:
    """A convolution within a border of zeros that keeps the image's size, K odd.

    Args:
        image: numbers, or bytes, which stand for numbers from 0 to 1.
        weight: of an ordinary convolution.
        bias: if there is one, it is added and ReLU is applied, both on cuDNN's way out.
    """
    if torch.is_autocast_enabled(image.device.type):
        kind = torch.get_autocast_dtype(image.device.type)
        weight, bias = weight.to(kind), None if bias is None else bias.to(kind)
    around = weight.shape[-1] // 2
    if few(image, weight):
        pairs: Tensor = Convolution.apply(
            unroll(image, weight.shape[-1], weight.dtype),
            widened(weight),
            None if bias is None else bias.repeat(2),
            (around, 0),
        )
        result: Tensor = pairs.unflatten(-1, (2, -1)).flatten(2, 3)
        return result
    result = Convolution.apply(numbers(image).to(weight.dtype), weight, bias, (around, around))
    return result


class Convolution(torch.autograd.Function):
    """With its gradients, for one seed or, under vmap, a stack of them."""

    @staticmethod
    def forward(
        image: Tensor, weight: Tensor, bias: Tensor | None, around: tuple[int, int]
    ) -> Tensor:
        if weight.dim() == 4:
            return _one(image, weight, bias, around)
        result = image.new_empty(*image.shape[:-1], weight.shape[1])
        for seed, part in enumerate(result):
            _one(image[seed], weight[seed], None if bias is None else bias[seed], around, part)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        image, weight, bias, ctx.around = inputs
        ctx.save_for_backward(image, weight, None if bias is None else output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        image, weight, rectified = ctx.saved_tensors
        if rectified is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, rectified, 0)
        wanted = [ctx.needs_input_grad[0], True, rectified is not None]
        if weight.dim() == 4:
            return *_one_back(gradient, image, weight, ctx.around, wanted), None
        seeds = [
            _one_back(*tensors, ctx.around, wanted)
            for tensors in zip(gradient, image, weight, strict=True)
        ]
        to_image, to_weight, to_bias = (
            torch.stack(parts) if want else None
            for want, parts in zip(wanted, zip(*seeds, strict=True), strict=True)
        )
        return to_image, to_weight, to_bias, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, around = inputs
        return Convolution.apply(*stacked(info.batch_size, in_dims[:-1], tensors), around), 0


def _one(
    image: Float[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K L"],
    bias: Float[Tensor, "out"] | None,
    around: tuple[int, int],
    result: Float[Tensor, "B H W out"] | None = None,
) -> Float[Tensor, "B H W out"]:
    """One seed's, into `result` if it is given. cuDNN reads channels that are last as they are."""
    x, weight = image.permute(0, 3, 1, 2), _ordered(weight)
    if image.is_cuda and bias is None:
        if result is None:
            result = image.new_empty(*image.shape[:-1], len(weight))
        how, y = torch.backends.cudnn, result.permute(0, 3, 1, 2)
        torch.ops.aten.cudnn_convolution.out(
            x, weight, around, (1, 1), (1, 1), 1, how.benchmark, how.deterministic, False, out=y
        )
        return result
    if image.is_cuda:
        y = torch.cudnn_convolution_relu(x, weight, bias, (1, 1), around, (1, 1), 1)
    else:
        y = F.conv2d(x, weight, bias, padding=around)
        y = y if bias is None else y.relu()
    y = y.permute(0, 2, 3, 1)
    return y if result is None else result.copy_(y)


def _one_back(
    gradient: Float[Tensor, "B H W out"],
    image: Float[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K L"],
    around: tuple[int, int],
    wanted: list[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients to image, weight and bias, as far as they are wanted."""
    g, x = (t.contiguous().permute(0, 3, 1, 2) for t in (gradient, image))
    weight = _ordered(weight)
    one, out = [1, 1], [len(weight)]
    to_image, to_weight, to_bias = torch.ops.aten.convolution_backward(
        g, x, weight, out, one, around, one, False, [0, 0], 1, wanted
    )
    return None if to_image is None else to_image.permute(0, 2, 3, 1), to_weight, to_bias


def _ordered(weight: Float[Tensor, "out C K L"]) -> Float[Tensor, "out C K L"]:
    """cuDNN wants the channels of weights last too; torch on a CPU may not."""
    if weight.is_cuda:
        return weight.contiguous(memory_format=torch.channels_last)
    return weight.contiguous()
