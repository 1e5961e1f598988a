"""Changing the number of rules under an optimiser.

An optimiser holds the parameters that it trains, and moments of the same shapes. A parameter
therefore stays the same object when rows are added or removed, and every optimiser that has taken a
step gets the same rows added to, or removed from, its moments. A parameter does not know its
optimisers, so a hook notes each one as it steps. The hook also refuses moments with another number
of rows: torch's fused Adam would write outside of them and crash the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from nps.rules.check import require_type

_stepped: WeakSet[Optimizer] = WeakSet()
"""All optimisers of this process that have taken a step, whatever they train."""
_changed = WeakIdKeyDictionary()
"""The parameters whose number of rows has changed, as keys."""
_lock = threading.Lock()


def require_optimiser(optimizer: Optimizer | None, parameters: Sequence[nn.Parameter]) -> None:
    """Refuse what is not an optimiser, or trains none of these parameters."""
    if optimizer is None:
        return
    require_type("optimizer", optimizer, Optimizer, "a torch.optim.Optimizer")
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if trained.isdisjoint(map(id, parameters)):
        raise ValueError("optimizer: got one that trains none of these rules, expected theirs")


def set_rows(
    parameter: nn.Parameter,
    rows: Tensor,
    change: Callable[[Tensor], Tensor],
    optimizer: Optimizer | None,
) -> None:
    """Replace the rows of a parameter by another number of rows.

    Args:
        parameter: stays the same object.
        rows: its new values.
        change: from the old rows of its gradient and moments to the new ones.
        optimizer: its moments change too, as do those of all optimisers that have taken a step.
    """
    count, grad = len(parameter), parameter.grad
    parameter.grad = None
    # While a graph that uses a parameter is alive, autograd expects gradients of the old shape. A
    # change of the dtype resets that.
    other = torch.float64 if parameter.dtype != torch.float64 else torch.float32
    parameter.data = parameter.data.new_empty(0, dtype=other)
    parameter.data = rows
    parameter.grad = None if grad is None else change(grad)
    with _lock:
        _changed[parameter] = None
        optimisers = set(_stepped) if optimizer is None else {*_stepped, optimizer}
    for each in optimisers:
        state = each.state.get(parameter, {})
        for name, moment in state.items():
            # The rest of the state, such as the number of steps, does not depend on the rules.
            if _has_rows(moment, parameter) and len(moment) == count:
                state[name] = change(moment)


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """Note the optimiser, and refuse it if its moments have another number of rows."""
    with _lock:
        _stepped.add(optimizer)
        changed = list(_changed) if _changed else []
    for parameter in changed:
        state = optimizer.state.get(parameter, {})
        counts = [len(moment) for moment in state.values() if _has_rows(moment, parameter)]
        # One that fits is enough: Adafactor's moments of columns have one row for any number.
        if counts and len(parameter) not in counts:
            raise RuntimeError(
                f"optimizer: got moments of {max(counts)} rules, expected {len(parameter)}; make a "
                "new optimiser, or pass this one to rules.add and rules.remove as optimizer="
            )


def _has_rows(moment: object, parameter: nn.Parameter) -> bool:
    return isinstance(moment, Tensor) and moment.dim() == parameter.dim()


register_optimizer_step_pre_hook(_before_step)
