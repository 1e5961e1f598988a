"""C-SWM's MLP is its layers; linear layers keep autocast's type, alone and in a stack."""

import copy

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional as F

from nps.interactions import GNN
from nps.kernels import norm_relu_sum
from nps.networks import NormalisedMLP, linear
from nps.perception.slot_encoder import SlotEncoder
from nps.training.stack import Stack
from tests.interpreter import decisions


def inputs(*seeds):
    torch.manual_seed(0)
    return torch.randn(*seeds, 7, 4), torch.randn(*seeds, 5, 4), torch.randn(*seeds, 5)


def test_the_network_is_its_layers_bit_for_bit():
    torch.manual_seed(0)
    network, x = NormalisedMLP(5, 16, 3), torch.randn(2, 7, 5)
    layers = nn.Sequential(*copy.deepcopy(network))
    assert [type(layer).__name__ for layer in layers] == [
        "Linear", "ReLU", "Linear", "LayerNorm", "ReLU", "Linear",
    ]  # fmt: skip
    assert list(network.state_dict()) == list(layers.state_dict())
    found = [
        [y := model(x), *torch.autograd.grad(y.sin().sum(), list(model.parameters()))]
        for model in (network, layers)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_linear_without_autocast_is_torch_s():
    assert torch.equal(linear(*inputs()), F.linear(*inputs()))


def test_linear_under_autocast_is_torch_s():
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = linear(*inputs()), F.linear(*inputs())
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)


def test_linear_in_a_stack_keeps_autocast_s_type():
    tensors = inputs(3)
    with torch.autocast("cpu", torch.bfloat16):
        found = vmap(linear)(*tensors)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), vmap(F.linear)(*tensors), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("make", "places"),
    [
        (lambda: NormalisedMLP(8, 16, 8), [norm_relu_sum]),
        (lambda: GNN(8, hidden_dim=16), [norm_relu_sum, norm_relu_sum]),
    ],
    ids=["network", "gnn"],
)
def test_in_a_stack_the_kernels_get_bf16(make, places):
    """The only type that they support."""
    stack: Stack[nn.Module] = Stack([make() for _ in range(3)])
    with torch.autocast("cpu", torch.bfloat16), decisions(*set(places)) as seen:
        stack.each(lambda model, x: model(x), torch.randn(3, 7, 4, 8))
    assert [(module, x.dtype) for module, x in seen] == [(p, torch.bfloat16) for p in places]


def test_pixels_of_a_stack_are_bf16_as_those_of_one():
    """There are 2,500 to an image, so that float32 would cost twice the memory."""
    torch.manual_seed(0)
    stack = Stack([SlotEncoder(2, 8, size=10, width=8) for _ in range(2)])
    images = torch.rand(2, 3, 10, 10, 3)
    with torch.autocast("cpu", torch.bfloat16):
        together = stack.each(lambda model, x: model.features(x), images)
        alone = stack.model.features(images[0])
    assert together.dtype == alone.dtype == torch.bfloat16
