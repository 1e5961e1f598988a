"""Attention and the transformer layer: torch's modules behind the call of the rule layers."""

import pytest
import torch

from nps.interactions import Attention, TransformerLayer

BOTH = pytest.mark.parametrize("kind", [Attention, TransformerLayer])


@pytest.fixture(autouse=True)
def _fresh_compiler():
    yield
    torch._dynamo.reset()


def make(kind, seed=0):
    torch.manual_seed(seed)
    return kind(8, heads=2)


def attend(module, x):
    """Multi-head attention from its matrices, head by head."""
    q, k, v = (x @ module.in_proj_weight.T + module.in_proj_bias).chunk(3, -1)
    heads = []
    for head in range(module.num_heads):
        part = slice(head * module.head_dim, (head + 1) * module.head_dim)
        scores = q[..., part] @ k[..., part].transpose(-1, -2) / module.head_dim**0.5
        heads.append(scores.softmax(-1) @ v[..., part])
    return torch.cat(heads, -1) @ module.out_proj.weight.T + module.out_proj.bias


@pytest.mark.parametrize("training", [True, False])
def test_attention_equals_its_formula(training):
    layer = make(Attention).train(training)
    slots = torch.randn(4, 5, 8)
    with torch.no_grad():
        torch.testing.assert_close(layer(slots), slots + attend(layer.attention, slots))


@pytest.mark.parametrize("training", [True, False])
def test_transformer_equals_its_formula(training):
    layer = make(TransformerLayer).train(training)
    slots, inner = torch.randn(4, 5, 8), layer.layer
    with torch.no_grad():
        x = slots + attend(inner.self_attn, inner.norm1(slots))
        hidden = inner.linear1(inner.norm2(x)).relu()
        torch.testing.assert_close(layer(slots), x + inner.linear2(hidden))


@BOTH
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
@pytest.mark.parametrize("m", [1, 4])
def test_any_leading_dimensions_and_a_single_slot(kind, lead, m):
    layer = make(kind)
    slots = torch.randn(*lead, m, 8)
    new = layer(slots)
    assert new.shape == slots.shape
    torch.testing.assert_close(new.reshape(-1, m, 8), layer(slots.reshape(-1, m, 8)))


@BOTH
def test_equivariant_to_the_order_of_slots(kind):
    layer = make(kind)
    slots, order = torch.randn(6, 5, 8), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(layer(slots[:, order]), layer(slots)[:, order])


@BOTH
def test_compiled_equals_eager_and_gradients_reach_all(kind):
    layer = make(kind)
    slots = torch.randn(6, 5, 8, requires_grad=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    new, expected = compiled(slots), layer(slots)
    torch.testing.assert_close(new, expected)
    wanted = [slots, *layer.parameters()]
    pairs = zip(
        torch.autograd.grad(new.square().sum(), wanted),
        torch.autograd.grad(expected.square().sum(), wanted),
        strict=True,
    )
    for grad, its_grad in pairs:
        torch.testing.assert_close(grad, its_grad, rtol=1e-4, atol=1e-5)
        assert (grad != 0).any()


@BOTH
def test_wrong_arguments_are_one_line(kind):
    for options, message in (
        ({"slot_dim": 8, "heads": 3}, "heads: got 3, expected a divisor of slot_dim = 8"),
        ({"slot_dim": 0}, "slot_dim: got 0, expected at least 1"),
        ({"slot_dim": 8, "heads": 0}, "heads: got 0, expected at least 1"),
    ):
        with pytest.raises(ValueError) as caught:
            kind(**options)
        assert str(caught.value) == message
    with pytest.raises(ValueError, match="slots: got shape"):
        make(kind)(torch.zeros(2, 3, 7))
    with pytest.raises(ValueError, match="slots: got inf at index"):
        make(kind)(torch.full((2, 3, 8), torch.inf))
