"""One-line errors that name the argument, the value given and what was expected."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def shown(value: object) -> str:
    """A value short enough for one line, or the name of its type."""
    text = repr(value)
    return text if len(text) < 60 and "\n" not in text else type(value).__name__


LARGEST = 2**31 - 1
"""No size or count is larger."""


def require_int(
    name: str, value: object, *, at_least: int | None = None, at_most: int = LARGEST
) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: got {shown(value)}, expected an integer")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name}: got {value}, expected at least {at_least}")
    if value > at_most:
        raise ValueError(f"{name}: got {value}, expected at most {at_most}")


def require_number(name: str, value: object, low: float, high: float, *, open_top: bool) -> None:
    """low <= value < high, or <= high when the top is closed."""
    bounds = f"[{low:g}, {high:g}" + (")" if open_top else "]")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ValueError(f"{name}: got {shown(value)}, expected a number in {bounds}")
    if value < low or value > high or (open_top and value == high):
        raise ValueError(f"{name}: got {value:g}, expected a number in {bounds}")


def require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: got {shown(value)}, expected one of {', '.join(choices)}")


def require_type(name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{name}: got {shown(value)}, expected {expected}")


def require_finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and infinity in eager code on the CPU, where the check needs no device sync.

    Reading a GPU tensor would stall every step, and compiled or vmapped code cannot read values at
    all; there the training loop's guard on the loss takes over.
    """
    if torch.compiler.is_compiling() or tensor.device.type != "cpu":
        return
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return
    if math.isfinite(tensor.detach().sum().item()):  # a sum never loses an infinity or NaN
        return
    finite = torch.isfinite(tensor)
    if not finite.all():  # finite numbers can have an infinite sum
        where = tuple(torch.nonzero(~finite)[0].tolist())
        value = tensor[where].item()
        raise ValueError(f"{name}: got {value} at index {where}, expected finite numbers")


def require_dtype(name: str, tensor: Tensor, weights: torch.dtype) -> None:
    """Raise where `nn.Linear` would: for a dtype other than the weights', unless autocast casts."""
    if tensor.dtype == weights:
        return
    cast = torch.float64 not in (tensor.dtype, weights)
    if not (cast and torch.is_autocast_enabled(tensor.device.type)):
        raise RuntimeError(
            f"{name}: got {tensor.dtype}, expected {weights} as the weights have "
            "(convert one of them, or use torch.autocast)"
        )


def require_slots(slots: Tensor, slot_mask: Tensor | None, slot_dim: int, events: int) -> None:
    """Check slots (..., M, D), or (..., M, C, H, W) with three event dimensions, and their mask."""
    layout, size = ("(..., M, D)", "D") if events == 1 else ("(..., M, C, H, W)", "C")
    if not isinstance(slots, Tensor) or not slots.is_floating_point():
        kind = slots.dtype if isinstance(slots, Tensor) else type(slots).__name__
        raise ValueError(f"slots: got {kind}, expected a floating point tensor")
    if slots.dim() < 1 + events or slots.shape[-events] != slot_dim:
        raise ValueError(
            f"slots: got shape {tuple(slots.shape)}, expected {layout} with {size} = {slot_dim}"
        )
    if slots.shape[-1 - events] == 0:
        raise ValueError(f"slots: got shape {tuple(slots.shape)}, expected at least one slot")
    if slot_mask is None:
        return
    require_type("slot_mask", slot_mask, Tensor, "a tensor")
    expected = tuple(slots.shape[:-events])
    if slot_mask.dtype != torch.bool or tuple(slot_mask.shape) != expected:
        raise ValueError(
            f"slot_mask: got {slot_mask.dtype} of shape {tuple(slot_mask.shape)}, "
            f"expected torch.bool of shape {expected}"
        )
