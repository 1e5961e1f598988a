"""The joint convolution against its three parts, one after the other."""

import pytest
import torch
from torch.nn import functional as F

from nps.kernels import without
from nps.kernels.enlarge import EnlargeConv


def by_parts(layer: EnlargeConv, image: torch.Tensor) -> torch.Tensor:
    large = F.interpolate(
        image.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear", align_corners=False
    )
    bordered = F.pad(large, [layer.padding] * 4, mode="replicate")
    return F.conv2d(bordered, layer.weight, layer.bias).permute(0, 2, 3, 1)


@pytest.mark.parametrize(
    ("channels", "kernel", "padding", "size"),
    [
        ((3, 4), 4, 2, 8),
        ((2, 3), 4, 1, 17),
        ((5, 1), 3, 0, 33),
        ((1, 2), 1, 0, 5),
        ((2, 2), 5, 3, 6),
    ],
)
def test_values_and_gradients_are_those_of_the_parts(channels, kernel, padding, size):
    torch.manual_seed(0)
    layer = EnlargeConv(*channels, kernel, padding).double()
    image = torch.randn(3, size, size, channels[0], dtype=torch.double, requires_grad=True)
    ours, theirs = layer(image), by_parts(layer, image)
    torch.testing.assert_close(ours, theirs)
    pull = torch.randn_like(theirs)
    wanted = (image, layer.weight, layer.bias)
    for one, other in zip(
        torch.autograd.grad(ours, wanted, pull),
        torch.autograd.grad(theirs, wanted, pull),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_switched_off_it_is_the_parts():
    torch.manual_seed(0)
    layer, image = EnlargeConv(3, 4, 4, 2).double(), torch.randn(3, 8, 8, 3).double()
    with without("enlarge"):
        plain = layer(image)
    torch.testing.assert_close(plain, by_parts(layer, image))


def test_a_stack_of_weights_under_vmap():
    torch.manual_seed(0)
    layers = [EnlargeConv(3, 2, 4, 2) for _ in range(2)]
    state = torch.func.stack_module_state(layers)
    images = torch.randn(2, 4, 8, 8, 3)

    def one(parameters, buffers, image):
        return torch.func.functional_call(layers[0], (parameters, buffers), (image,))

    stacked = torch.func.vmap(one)(*state, images)
    for layer, image, result in zip(layers, images, stacked, strict=True):
        torch.testing.assert_close(result, layer(image), atol=1e-5, rtol=1e-5)
