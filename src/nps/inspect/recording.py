"""Record what a rule layer does, call by call, while a model runs as it always does.

A call of the layer is a step: the frame of a video, the transition of a world model. Each stage
is recorded as it happens, with the slots it read and what it added; what the layer was given
besides its slots is kept too (`Call`), so that its scores can be computed again for other slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nps.errors import UserError
from nps.inspect.playback import Call, Record
from nps.inspect.wrapping import once_a_call, wrapped
from nps.rules import AdaptiveNPS, GatedNPS, GatedParallelNPS, ParallelNPS, RuleLayer
from nps.rules.allowed import Allowed
from nps.rules.config import MAX_HANDICAP
from nps.rules.trace import Choices

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped
    from numpy import ndarray

PARTS = ("rule", "context", "rule_scores", "context_scores", "bids", "before", "update")


@contextmanager
def recorded(layer: RuleLayer | None) -> Iterator[Recorder]:
    """While it is open, every call of a layer in evaluation mode is recorded.

    ::

        with recorded(bench.layer) as recorder:
            for action in actions:
                slots = model.predict(slots, action)
        record = recorder.record()

    Calls are with a batch of one scene. Inside `intervened` or around it, what is recorded is what
    happens under the edits. Without a layer (a model without rules) there is nothing to record, and
    the record is None.
    """
    recorder = Recorder(layer)
    if layer is None:
        yield recorder
        return
    with ExitStack() as stack:
        stack.enter_context(once_a_call(layer, recorder.begin))
        stack.enter_context(wrapped(layer, "stage", recorder.of_stage))
        yield recorder


class Recorder:
    """Collects the stages of each call of a layer."""

    def __init__(self, layer: RuleLayer | None) -> None:
        self._layer = layer
        self._steps: list[list[dict[str, Tensor]]] = []
        self._calls: list[Call] = []

    def record(self) -> Record | None:
        """All calls so far; None of a model without rules."""
        if self._layer is None:
            return None
        if not self._steps:
            raise UserError("recorded: the layer was not called")
        joined = {name: _join([[s[name] for s in step] for step in self._steps]) for name in PARTS}
        return Record(**joined, calls=tuple(self._calls))  # type: ignore[arg-type]

    # -- called by the layer ------------------------------------------------------------------

    def begin(self, slots: Tensor, options: dict[str, Any]) -> None:
        """A call begins."""
        assert self._layer is not None
        if self._layer.training:
            raise UserError("recorded: got a layer in training, expected model.eval()")
        batch = slots.shape[: -1 - self._layer.rules.event_dims]
        if batch.numel() != 1:
            raise UserError(f"recorded: got a batch of {batch.numel()} scenes, expected one")
        selection, mask = options.get("selection"), options.get("slot_mask")
        self._calls.append(
            Call(
                selection=selection.detach() if isinstance(selection, Tensor) else selection,
                slot_mask=None if mask is None else mask.detach().reshape(-1).clone(),
                rules=self._layer.rules.allowed(),
            )
        )
        self._steps.append([])

    def of_stage(
        self, stage: Any, slots: Tensor, features: Tensor, allowed: Allowed, noise: Any
    ) -> Any:
        """A stage runs."""
        new, choices = stage(slots, features, allowed, noise)
        assert self._layer is not None
        with torch.no_grad():
            parts = _parts(self._layer, slots, new, choices)
            parts["bids"] = bids_of(self._layer, slots, features, allowed, choices)
        self._steps[-1].append({name: part.detach() for name, part in parts.items()})
        return new, choices


def _parts(layer: RuleLayer, slots: Tensor, new: Tensor, choices: Choices) -> dict[str, Tensor]:
    """What a record says of one stage, besides the bids."""
    trace = choices.trace()
    rule = trace.rule.reshape(-1)
    before = slots.reshape(len(rule), -1)
    after = new.reshape(-1, before.shape[-1])  # one row if only a result comes back (`OperandNPS`)
    fired = rule >= 0
    return {
        "rule": rule,
        "context": torch.where(fired, trace.context.reshape(-1), -1),
        "rule_scores": trace.rule_scores.reshape(len(rule), -1).float(),
        "context_scores": trace.context_scores.reshape(len(rule), -1).float(),
        "before": before.float(),
        "update": torch.where(fired.unsqueeze(-1), after - before, 0.0).float(),
    }


def bids_of(
    layer: RuleLayer,
    slots: Float[Tensor, "*batch M *slot"],
    features: Float[Tensor, "*batch M F"],
    allowed: Allowed,
    choices: Choices,
) -> Float[Tensor, "M 2"]:
    """What the rules and the null rule bid for each slot; empty if there is no null rule."""
    m = features.shape[-2]
    if isinstance(layer, AdaptiveNPS):
        worth = layer.worth_of(slots, features, choices.context)
        return (
            torch.stack([worth, layer.threshold(worth, choices.rule.sum(-1))], -1)
            .reshape(m, 2)
            .float()
        )
    if isinstance(layer, GatedParallelNPS):
        won = (choices.rule * choices.rule_scores).sum(-1).reshape(m)
        return torch.stack([won, torch.zeros_like(won)], -1)
    if isinstance(layer, ParallelNPS) and layer.null_handicap < MAX_HANDICAP:
        return layer.bids(features).reshape(m, 2).float()
    if isinstance(layer, GatedNPS):
        pairs, scores = allowed.pairs(), choices.rule_scores
        best = scores.amax() if pairs is None else scores.masked_fill(~pairs, -torch.inf).amax()
        return torch.stack([best, layer.null_score.to(best)]).expand(m, 2)
    return features.new_zeros(m, 0)


def _join(steps: list[list[Tensor]]) -> Shaped[ndarray, "T K ..."] | None:
    found: ndarray = torch.stack([torch.stack(stages) for stages in steps]).cpu().numpy()
    return found if found.shape[-1] else None


def joined(*records: Record) -> Record:
    """One record of the steps of several, one after another."""
    parts: dict[str, Any] = {}
    for name in PARTS:
        values = [getattr(record, name) for record in records]
        parts[name] = None if values[0] is None else np.concatenate(values)
    return Record(**parts, calls=tuple(call for record in records for call in record.calls))


def some_steps(record: Record, begin: int, end: int | None = None) -> Record:
    """The record of the steps from `begin` up to `end`, which is not among them."""
    parts: dict[str, Any] = {}
    for name in PARTS:
        value = getattr(record, name)
        parts[name] = None if value is None else value[begin:end]
    return replace(record, **parts, calls=record.calls[begin:end])
