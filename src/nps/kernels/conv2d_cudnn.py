"""Convolutions that fill a GPU with a single seed: by cuDNN, one seed after the other.

The kernels of conv2d_stack.py take a stack of seeds at once, for seeds that have little to do each.
Where the images of one seed fill the GPU, cuDNN is several times as fast in bf16, if it is given
many channels; an image of three is laid out differently first (unroll.py). The plain twin of all of
it is F.conv2d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nps import kernels
from nps.kernels.stacks import seeds_first
from nps.kernels.unroll import MULTIPLE, has_few_channels, to_unit_range, unroll, unroll_weight

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

LARGE = 2**18
"""Number of pixels in the images of one seed above which cuDNN takes the seeds one by one."""


def conv2d_same(
    image: Shaped[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K K"],
    bias: Float[Tensor, "out"] | None = None,
) -> Float[Tensor, "B H W out"]:
    """A convolution with a border of zeros that keeps the size of the image, K odd.

    Args:
        image: numbers, or bytes, which become numbers from 0 to 1.
        weight: as of F.conv2d.
        bias: if given, it is added and ReLU is applied, both within cuDNN's kernel.
    """
    if torch.is_autocast_enabled(image.device.type):
        dtype = torch.get_autocast_dtype(image.device.type)
        weight, bias = weight.to(dtype), None if bias is None else bias.to(dtype)
    padding = weight.shape[-1] // 2
    if has_few_channels(image, weight):
        pairs: Tensor = Convolution.apply(
            unroll(image, weight.shape[-1], weight.dtype),
            unroll_weight(weight),
            None if bias is None else bias.repeat(2),
            (padding, 0),
        )
        result: Tensor = pairs.unflatten(-1, (2, -1)).flatten(2, 3)
        return result
    image = to_unit_range(image).to(weight.dtype)
    result = Convolution.apply(image, weight, bias, (padding, padding))
    return result


def supported(image: Shaped[Tensor, "B H W C"], weight: Float[Tensor, "out C K K"]) -> bool:
    """Large images under autocast to bf16, with channels that cuDNN can take."""
    if not image.is_cuda or not torch.backends.cudnn.is_available():
        return False
    half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    large = image.shape[:3].numel() >= LARGE
    channels = has_few_channels(image, weight) or image.shape[-1] % MULTIPLE == 0
    fits = half and large and channels and len(weight) % MULTIPLE == 0
    return fits and not torch.compiler.is_compiling() and kernels.is_on("conv2d_cudnn")


class Convolution(torch.autograd.Function):
    """(image, weight, bias, padding) -> result, for one seed or, under vmap, a stack of them."""

    @staticmethod
    def forward(
        image: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]
    ) -> Tensor:
        if weight.dim() == 4:
            return _one_seed(image, weight, bias, padding)
        result = image.new_empty(*image.shape[:-1], weight.shape[1])
        for seed, part in enumerate(result):
            _one_seed(
                image[seed], weight[seed], None if bias is None else bias[seed], padding, part
            )
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        image, weight, bias, ctx.padding = inputs
        ctx.save_for_backward(image, weight, None if bias is None else output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        image, weight, activated = ctx.saved_tensors
        if activated is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, activated, 0)
        wanted = [ctx.needs_input_grad[0], True, activated is not None]
        if weight.dim() == 4:
            return *_one_seed_backward(gradient, image, weight, ctx.padding, wanted), None
        seeds = [
            _one_seed_backward(*tensors, ctx.padding, wanted)
            for tensors in zip(gradient, image, weight, strict=True)
        ]
        to_image, to_weight, to_bias = (
            torch.stack(parts) if want else None
            for want, parts in zip(wanted, zip(*seeds, strict=True), strict=True)
        )
        return to_image, to_weight, to_bias, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, padding = inputs
        return Convolution.apply(*seeds_first(info.batch_size, in_dims[:-1], tensors), padding), 0


def _one_seed(
    image: Float[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K L"],
    bias: Float[Tensor, "out"] | None,
    padding: tuple[int, int],
    result: Float[Tensor, "B H W out"] | None = None,
) -> Float[Tensor, "B H W out"]:
    """One seed, into `result` if given. Channels last is a layout that cuDNN reads directly."""
    x, weight = image.permute(0, 3, 1, 2), _in_layout(weight)
    if image.is_cuda and bias is None:
        if result is None:
            result = image.new_empty(*image.shape[:-1], len(weight))
        flags, y = torch.backends.cudnn, result.permute(0, 3, 1, 2)
        torch.ops.aten.cudnn_convolution.out(
            x,
            weight,
            padding,
            (1, 1),
            (1, 1),
            1,
            flags.benchmark,
            flags.deterministic,
            False,
            out=y,
        )
        return result
    if image.is_cuda:
        y = torch.cudnn_convolution_relu(x, weight, bias, (1, 1), padding, (1, 1), 1)
    else:
        y = F.conv2d(x, weight, bias, padding=padding)
        y = y if bias is None else y.relu()
    y = y.permute(0, 2, 3, 1)
    return y if result is None else result.copy_(y)


def _one_seed_backward(
    gradient: Float[Tensor, "B H W out"],
    image: Float[Tensor, "B H W C"],
    weight: Float[Tensor, "out C K L"],
    padding: tuple[int, int],
    wanted: list[bool],
) -> tuple[Tensor | None, ...]:
    """Those gradients of image, weight and bias that are needed."""
    g, x = (t.contiguous().permute(0, 3, 1, 2) for t in (gradient, image))
    weight = _in_layout(weight)
    one, out = [1, 1], [len(weight)]
    to_image, to_weight, to_bias = torch.ops.aten.convolution_backward(
        g, x, weight, out, one, padding, one, False, [0, 0], 1, wanted
    )
    return None if to_image is None else to_image.permute(0, 2, 3, 1), to_weight, to_bias


def _in_layout(weight: Float[Tensor, "out C K L"]) -> Float[Tensor, "out C K L"]:
    """Channels of the weight last for cuDNN, contiguous for torch on a CPU."""
    if weight.is_cuda:
        return weight.contiguous(memory_format=torch.channels_last)
    return weight.contiguous()
