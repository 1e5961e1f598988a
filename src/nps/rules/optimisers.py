"""Changing the number of rules under an optimiser.

An optimiser holds the parameters that it trains, and moments of the same shapes. A parameter
therefore stays the same object when rows are added or removed, and an optimiser that is passed
along gets the same rows added to, or removed from, its moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nps.rules.check import require_type


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
        optimizer: its moments change too.
    """
    count, grad = len(parameter), parameter.grad
    parameter.grad = None
    # While a graph that uses a parameter is alive, autograd expects gradients of the old shape. A
    # change of the dtype resets that.
    other = torch.float64 if parameter.dtype != torch.float64 else torch.float32
    parameter.data = parameter.data.new_empty(0, dtype=other)
    parameter.data = rows
    parameter.grad = None if grad is None else change(grad)
    if optimizer is None or parameter not in optimizer.state:
        return
    state = optimizer.state[parameter]
    for name, moment in state.items():
        # The rest of the state, such as the number of steps, does not depend on the rules.
        if isinstance(moment, Tensor) and moment.dim() == rows.dim() and len(moment) == count:
            state[name] = change(moment)
