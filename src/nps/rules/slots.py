"""Reading slots by one-hot choices, and changing the primary ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def pick(
    choice: Float[Tensor, "*batch P M"], slots: Float[Tensor, "*batch M *slot"], events: int = 1
) -> Float[Tensor, "*batch P *slot"]:
    """The chosen slots. A product with one-hot rows is exact: it adds only zeros to one slot."""
    if events == 3:
        # Feature maps: long sums of few products, which cuBLAS does badly. Channels last, as
        # convolutions want them.
        flat = slots.movedim(-3, -1)
        picked = choice.to(slots.dtype).unsqueeze(-1) * flat.flatten(-3).unsqueeze(-3)
        maps: Tensor = picked.sum(-2).unflatten(-1, flat.shape[-3:]).movedim(-1, -3)
        return maps
    choice, flat = choice.to(slots.dtype), slots.flatten(-events)
    if choice.shape[-2] == 1 and slots.device.type == "cpu":  # slow at many tiny products
        picked = (choice.mT * flat).sum(-2, keepdim=True)
    else:
        with torch.autocast(slots.device.type, enabled=False):
            picked = choice @ flat
    return picked.reshape(*picked.shape[:-1], *slots.shape[-events:])


def residual(
    slots: Float[Tensor, "*batch M *slot"],
    primary: Float[Tensor, "*batch M"],
    update: Float[Tensor, "*batch #M *slot"],
    events: int = 1,
) -> Float[Tensor, "*batch M *slot"]:
    """slots + primary · update, where slots that are not primary come back bit for bit.

    Adding 0 · update would turn -0.0 into 0.0, and an overflow of the update into NaN everywhere.
    The gradient to `primary` is that of the plain formula for every slot, primary or not.
    """
    primary = unsqueeze_right(primary, events)
    if torch.compiler.is_compiling():
        return _plain_residual(slots, primary, update)
    new: Tensor = Residual.apply(slots, primary, update)
    return new


class Residual(torch.autograd.Function):
    """Forward: primary slots get the update. Backward: that of slots + primary · update."""

    generate_vmap_rule = True

    @staticmethod
    def forward(slots: Tensor, primary: Tensor, update: Tensor) -> Tensor:
        return torch.where(primary > 0, slots + update.to(slots.dtype), slots)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        primary, update = ctx.saved_tensors
        to_primary = (grad * update).sum_to_size(primary.shape)
        to_update = (grad * primary).sum_to_size(update.shape)
        return grad, to_primary.to(primary.dtype), to_update.to(update.dtype)


def _plain_residual(slots: Tensor, primary: Tensor, update: Tensor) -> Tensor:
    """`Residual` for the compiler, which fuses this form and loses the other's vmapped gradient."""
    change = (primary * update).to(slots.dtype)
    unchanged = slots - (change.detach() - change)
    return torch.where(primary.detach() > 0, slots + change, unchanged)


def unsqueeze_right(x: Tensor, dims: int) -> Tensor:
    """Append `dims` dimensions of size one, to broadcast over a slot's own dimensions."""
    return x.reshape(*x.shape, *[1] * dims)
