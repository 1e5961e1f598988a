"""Picking slots and changing the primary ones: exact values, and the gradient of plain formulas."""

import pytest
import torch

from nps.rules.slots import pick, residual, unsqueeze_right

SHAPES = pytest.mark.parametrize(("slot", "rows"), [((3,), 1), ((3,), 4), ((2, 2, 3), 4)], ids=str)


def case(slot, rows, dtype=torch.float64):
    torch.manual_seed(0)
    slots = torch.randn(5, 4, *slot, dtype=dtype, requires_grad=True)
    primary = (torch.rand(5, 4) < 0.5).to(dtype).requires_grad_()
    update = torch.randn(5, rows, *slot, dtype=dtype, requires_grad=True)
    return slots, primary, update


def plain(slots, primary, update):
    return slots + unsqueeze_right(primary, slots.dim() - 2) * update


@SHAPES
def test_residual_equals_the_plain_formula_with_its_gradients(slot, rows):
    inputs = case(slot, rows)
    weights = torch.randn_like(inputs[0])
    ours, expected = residual(*inputs, len(slot)), plain(*inputs)
    assert torch.equal(ours, expected)
    ours, expected = (torch.autograd.grad((y * weights).sum(), inputs) for y in (ours, expected))
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)


@SHAPES
def test_residual_under_vmap_equals_the_plain_formula(slot, rows):
    inputs = case(slot, rows)
    weights = torch.randn_like(inputs[0])
    stacked = torch.vmap(lambda *x: residual(*x, len(slot)))(*inputs)
    ours = torch.autograd.grad((stacked * weights).sum(), inputs)
    expected = torch.autograd.grad((plain(*inputs) * weights).sum(), inputs)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_residual_has_second_derivatives():
    inputs = case((3,), 1)

    def second(f):
        grads = torch.autograd.grad(f(*inputs).pow(3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), inputs)

    for a, b in zip(second(lambda *x: residual(*x, 1)), second(plain), strict=True):
        torch.testing.assert_close(a, b)


def test_residual_leaves_other_slots_bit_for_bit():
    slots = torch.tensor([[-0.0, 0.0, 1.0], [-0.0, 0.0, 1.0]], requires_grad=True)
    primary = torch.tensor([0.0, 1.0], requires_grad=True)
    update = torch.tensor([[1.0, float("inf"), float("nan")]], requires_grad=True)
    new = residual(slots, primary, update, 1)
    assert torch.equal(new[0].view(torch.int32), slots[0].view(torch.int32))
    assert new[1].tolist()[:2] == [1.0, float("inf")]
    assert new[1, 2].isnan()


def test_residual_of_half_precision_slots_has_gradients_in_each_own_type():
    slots = torch.randn(5, 4, 3, dtype=torch.bfloat16, requires_grad=True)
    primary = torch.ones(5, 4, requires_grad=True)
    update = torch.randn(5, 1, 3, requires_grad=True)
    new = residual(slots, primary, update, 1)
    assert new.dtype == torch.bfloat16
    new.float().square().sum().backward()
    assert slots.grad.dtype == torch.bfloat16
    assert primary.grad.dtype == update.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("slot", [(7,), (2, 3, 3)], ids=str)
@pytest.mark.parametrize("picks", [1, 2])
def test_pick_gives_the_slots_themselves(picks, slot, dtype):
    torch.manual_seed(0)
    slots = torch.randn(6, 5, *slot).to(dtype)
    index = torch.randint(5, (6, picks))
    choice = torch.eye(5)[index]
    expected = torch.stack([slots[b, index[b]] for b in range(6)])
    assert torch.equal(pick(choice, slots, len(slot)), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(pick(choice, slots, len(slot)), expected)


def test_pick_of_nothing_is_zero():
    assert (pick(torch.zeros(6, 1, 5), torch.randn(6, 5, 3)) == 0).all()
