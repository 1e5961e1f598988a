"""Run a model under edits: rules disabled, scaled or shifted, and choices made by hand.

The edits hold for one layer object while a context is open, whatever calls it, and leave no trace
behind. Where an edit does not apply, the layer computes what it always does, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.errors import UserError
from nps.inspect.edits import Edits, Forced, Placed
from nps.inspect.forcing import Forcing
from nps.inspect.workbench import require_index
from nps.inspect.wrapping import wrapped
from nps.rules import RuleLayer, RuleSet
from nps.rules.slots import unsqueeze_right

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

Directions = Mapping[str, "Float[ndarray, 'S']"]
"""Feature -> the change of a slot that raises it by 1. Shorter vectors change the slot's beginning:
of world models, the slot without its action."""


@contextmanager
def intervened(
    layer: RuleLayer | None,
    edits: Edits,
    directions: Directions | None = None,
    *,
    first: int = 0,
) -> Iterator[None]:
    """While it is open, a layer in evaluation mode runs under edits.

    ::

        with intervened(bench.layer, edits, directions), recorded(bench.layer) as recorder:
            ...

    It applies `disabled`, `scaled`, `added` and `forced`. What a rule's network gives is multiplied
    by its factors, then the added features follow. Features that are set (`placed`) and other
    actions (`acted`) are up to whoever runs the steps: see `nps.inspect.workbench.placed`.

    Forcing a rule on a slot, in sequential NPS, makes that pair the one of the stage; a rule of -1
    lets nothing fire in it. In parallel NPS both concern that slot alone. Of `OperandNPS`, which
    changes one slot by a rule, they say which slot that is.

    Args:
        layer: None for a model without rules, which has nothing to disable, scale or force.
        edits: all of them; those that do not concern the layer are ignored.
        directions: of the features in `edits.added`.
        first: the step that the first call is, if a roll-out does not begin at step 0.
    """
    with ExitStack() as stack:
        if layer is None:
            require_no_rules(edits)
        else:
            require_rules(edits, len(layer.rules))
            if edits.disabled:
                stack.enter_context(layer.rules.disabled(*edits.disabled))
            if edits.scaled or edits.added:
                change = Rescaled(layer.rules, edits, directions or {})
                stack.enter_context(wrapped(layer, "_act", change))
            if edits.forced:
                stack.enter_context(Forcing(layer, edits.forced, first).open())
        yield


class Rescaled:
    """The outputs of rules times their factors, plus what is added to their features."""

    def __init__(self, rules: RuleSet, edits: Edits, directions: Directions) -> None:
        self.factor, self.bias = factors(rules, edits), biases(rules, edits, directions)
        self.events = rules.event_dims

    def __call__(self, act: Any, primary: Tensor, context: Tensor, rule: Tensor) -> Tensor:
        update: Tensor = act(primary, context, rule)
        rule = rule.to(update.dtype)
        # The rows of `rule` are one-hot or zero: these products pick an entry, or give zero.
        factor, bias = rule @ self.factor.to(update), rule @ self.bias.to(update)
        shape = update.shape[-self.events :]
        if bias.shape[-1] < shape.numel():  # of maps: a number for each channel
            shape = torch.Size([shape[0], *[1] * (self.events - 1)])
        update = update * unsqueeze_right(factor, self.events)
        return update + bias.view(*bias.shape[:-1], *shape)


def factors(rules: RuleSet, edits: Edits) -> Float[Tensor, "N"]:
    """What the output of each rule is multiplied by."""
    factor = torch.ones(len(rules))
    for scaled in edits.scaled:
        factor[scaled.rule] *= scaled.factor
    return factor


def biases(rules: RuleSet, edits: Edits, directions: Directions) -> Float[Tensor, "N S"]:
    """What is added to the output of each rule."""
    used = {added.feature for added in edits.added}
    if unknown := sorted(used - set(directions)):
        known = ", ".join(directions) or "none"
        raise UserError(f"feature: got {unknown[0]!r}, expected one of: {known}")
    lengths = [len(directions[name]) for name in used]
    if rules.event_dims == 1 and max(lengths, default=0) > rules.slot_dim:
        raise UserError(f"directions: got {max(lengths)} numbers, expected {rules.slot_dim}")
    size = max([rules.slot_dim, *lengths])
    bias = torch.zeros(len(rules), size)
    for added in edits.added:
        direction = torch.as_tensor(directions[added.feature], dtype=bias.dtype)
        bias[added.rule, : len(direction)] += added.amount * direction
    return bias


def require_rules(edits: Edits, count: int) -> None:
    """Refuse edits of rules that are not there."""
    changed = [edit.rule for edit in edits.scaled] + [edit.rule for edit in edits.added]
    for rule in (*edits.disabled, *changed):
        require_index("rule", rule, count)


def require_no_rules(edits: Edits) -> None:
    for name in ("disabled", "scaled", "added", "forced"):
        if getattr(edits, name):
            raise UserError(f"edits: {name}: this model has no rules")


def require_steps(edits: Edits, steps: int, slots: int, actions: int = 0) -> None:
    """Refuse edits of steps, slots and actions that an episode does not have."""
    at_slots: tuple[Forced | Placed, ...] = (*edits.forced, *edits.placed)
    for edit in at_slots:
        require_index("step", edit.step, steps)
        require_index("slot", edit.slot, slots)
    for acted in edits.acted:
        require_index("step", acted.step, steps)
        if not actions:
            raise UserError("edits: acted: this episode has no discrete actions")
        require_index("action", acted.action, actions)
