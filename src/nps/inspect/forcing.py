"""Choices made by hand: which rule fires on which slot, in which context, at a step and stage.

The steps of a stage run as they are, and then the one-hot choices they made are replaced. So the
scores in a record are those of the model, whatever was forced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.errors import UserError
from nps.inspect.edits import Forced
from nps.inspect.workbench import require_index
from nps.inspect.wrapping import once_a_call, wrapped
from nps.rules import ParallelNPS, RuleLayer, SequentialNPS
from nps.rules.allowed import Allowed
from nps.rules.bind import Bound
from nps.rules.select import Selected

if TYPE_CHECKING:
    from jaxtyping import Float

NULL = -1


class Forcing:
    """What is forced in a layer, while it is open.

    Args:
        layer: in evaluation mode.
        forced: the choices; later ones of the same slot, stage and step win.
        first: the step that the first call is.
    """

    def __init__(self, layer: RuleLayer, forced: Sequence[Forced], first: int = 0) -> None:
        if not isinstance(layer, (SequentialNPS, ParallelNPS)):
            raise UserError(f"forced: not supported by {type(layer).__name__}")
        self.layer, self.step, self.stage = layer, first - 1, -1
        self.one_pair = isinstance(layer, SequentialNPS)
        self.operand = reads_operand(layer)
        self.table: dict[tuple[int, int], dict[int, Forced]] = defaultdict(dict)
        for edit in forced:
            self._add(edit)

    def _add(self, edit: Forced) -> None:
        require_index("stage", edit.stage, self.layer.stages)
        if edit.rule is not None and edit.rule != NULL:
            require_index("rule", edit.rule, len(self.layer.rules))
        if edit.context is not None and self.operand:
            raise UserError("forced: context: this layer reads one slot, which is chosen by slot")
        if edit.context == edit.slot and not self.layer.self_context:
            raise UserError(f"forced: context: slot {edit.slot} may not be its own context here")
        at = self.table[edit.step, edit.stage]
        before = at.get(edit.slot, edit)
        at[edit.slot] = replace(
            edit,
            rule=before.rule if edit.rule is None else edit.rule,
            context=before.context if edit.context is None else edit.context,
        )
        chosen = [slot for slot, each in at.items() if each.rule is not None]
        if self.one_pair and len(chosen) > 1:
            where = f"step {edit.step}, stage {edit.stage}"
            raise UserError(f"forced: got slots {chosen} at {where}, expected one: one rule fires")

    @contextmanager
    def open(self) -> Iterator[None]:
        layer = self.layer
        steps: dict[str, Callable[..., Any]] = {
            "stage": self._of_stage,
            "select_rule": self._select,
        }
        steps["bind_operand" if self.operand else "bind_context"] = self._bind
        if self.operand:
            steps["result"] = self._result
        if hasattr(layer, "open_gate"):
            steps["open_gate"] = self._gate
        with ExitStack() as stack:
            stack.enter_context(once_a_call(layer, self._begin))
            for name, wrapper in steps.items():
                stack.enter_context(wrapped(layer, name, wrapper))
            yield

    @property
    def now(self) -> dict[int, Forced]:
        """Slot -> what is forced on it in this stage."""
        return self.table.get((self.step, self.stage), {})

    # -- called by the layer ------------------------------------------------------------------

    def _begin(self, slots: Tensor, options: dict[str, Any]) -> None:
        self.step, self.stage = self.step + 1, -1

    def _of_stage(
        self, stage: Any, slots: Tensor, features: Tensor, allowed: Allowed, noise: Any
    ) -> Any:
        self.stage += 1
        for edit in self.now.values():
            self._require_allowed(edit, features.shape[-2], allowed)
        return stage(slots, features, allowed, noise)

    def _require_allowed(self, edit: Forced, slots: int, allowed: Allowed) -> None:
        for name, slot in (("slot", edit.slot), ("context", edit.context)):
            if slot is None:
                continue
            require_index(name, slot, slots)
            if allowed.slots is not None and not bool(allowed.slots.reshape(-1, slots)[0, slot]):
                raise UserError(f"forced: {name} {slot} is masked at step {edit.step}")
        fires = edit.rule is not None and edit.rule != NULL
        if fires and allowed.rules is not None and not bool(allowed.rules[edit.rule]):
            raise UserError(f"forced: rule {edit.rule} is switched off")

    def _select(self, select: Any, *args: Any) -> Selected:
        selected: Selected = select(*args)
        for slot, edit in self.now.items():
            if edit.rule is not None:
                selected = self._selected(selected, slot, edit.rule)
        return selected

    def _selected(self, selected: Selected, slot: int, rule: int) -> Selected:
        primary, rules, scores = selected
        m, n = scores.shape[-2:]
        fires = float(rule != NULL)
        if self.one_pair:
            rules = (fires * one_hot(rule, n, rules)).expand_as(rules)
            # What the slot of step 2 means in `OperandNPS` is another matter: it stays.
            primary = primary if self.operand else fires * one_hot(slot, m, primary)
            return Selected(primary.expand(scores.shape[:-1]), rules, scores)
        here = one_hot(slot, m, primary)
        primary = torch.where(here > 0, fires, primary)
        rules = torch.where(here.unsqueeze(-1) > 0, fires * one_hot(rule, n, rules), rules)
        return Selected(primary, rules, scores)

    def _gate(self, gate: Any, *args: Any) -> Tensor:
        """Of gated layers: what is forced to fire need not beat the null rule."""
        opened: Tensor = gate(*args)
        for slot, edit in self.now.items():
            if edit.rule is None or edit.rule == NULL:
                continue
            if self.one_pair:
                return torch.ones_like(opened)
            opened = torch.where(one_hot(slot, opened.shape[-1], opened) > 0, 1.0, opened)
        return opened

    def _bind(self, bind: Any, features: Tensor, primary: Tensor, *args: Any) -> Bound:
        bound: Bound = bind(features, primary, *args)
        context, m = bound.context, features.shape[-2]
        for slot, edit in self.now.items():
            if self.operand:
                if edit.rule is not None and edit.rule != NULL:
                    context = one_hot(slot, m, context).expand_as(context)
            elif edit.context is not None:
                wanted = one_hot(edit.context, m, context)
                here = one_hot(slot, m, context).unsqueeze(-1)  # of M rows, that of the slot
                if context.shape[-2] == 1:  # of one row, that of the primary slot
                    here = primary[..., slot, None, None]
                context = torch.where(here > 0, wanted, context)
        return Bound(context, bound.scores)

    def _result(self, result: Any, slot: Tensor, rule: Tensor) -> Tensor:
        """Of `OperandNPS`: without a rule the slot stays as it is."""
        if any(edit.rule == NULL for edit in self.now.values()):
            return slot
        changed: Tensor = result(slot, rule)
        return changed


def options(layer: RuleLayer | None) -> dict[str, Any] | None:
    """What may be forced in a layer; None if nothing may.

    `context`: whether a slot's context may be chosen; `itself`: whether it may be the slot itself;
    `off`: the rules that may not fire.
    """
    if not isinstance(layer, (SequentialNPS, ParallelNPS)):
        return None
    allowed = layer.rules.allowed()
    off = [] if allowed is None else (~allowed).nonzero().flatten().tolist()
    return {"context": not reads_operand(layer), "itself": layer.self_context, "off": off}


def reads_operand(layer: RuleLayer) -> bool:
    """Whether step 3 chooses the slot that is changed, as in `OperandNPS`."""
    return hasattr(layer, "bind_operand")


def one_hot(index: int, size: int, like: Tensor) -> Float[Tensor, "size"]:
    row = torch.zeros(size, dtype=like.dtype, device=like.device)
    if index >= 0:
        row[index] = 1.0
    return row
