"""Why a rule fired or did not: find the rival, and the smallest change that flips the choice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nps.errors import UserError
from nps.inspect.decisions import NULL, Choice, Decision, Margins, Scored, same
from nps.inspect.explanation import Explanation, Flip
from nps.inspect.flips import smallest_change
from nps.inspect.forcing import reads_operand
from nps.inspect.playback import Playback, Record
from nps.inspect.workbench import Workbench, require_index
from nps.rules import ParallelNPS, RuleLayer, Trace
from nps.rules.allowed import Allowed

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from numpy import ndarray


@torch.no_grad()
def explain(
    source: Any, playback: Playback | Record | Trace, step: int, slot: int, stage: int = 0
) -> Explanation:
    """Why a rule fired on a slot, or why none did.

    ::

        play = run.workbench.play(0)
        nps.inspect.explain(run, play, step=3, slot=1)

    Args:
        source: a run, its workbench, or a rule layer: the one that was recorded.
        playback: of an episode, or the record of a layer (`nps.inspect.recorded`). A `Trace` does
            not say what the slots were, so it cannot be explained.
        step, slot, stage: where.
    """
    if isinstance(playback, Trace):
        got = type(playback).__name__
        raise UserError(
            f"explain: got a {got}, expected a playback or a record: call the layer within "
            "`with nps.inspect.recorded(layer) as recorder`, and pass recorder.record()"
        )
    source = getattr(source, "workbench", source)
    bench = source if isinstance(source, Workbench) else None
    layer = source if bench is None else bench.layer
    record = playback.record if isinstance(playback, Playback) else playback
    if record is None or layer is None:
        raise UserError("explain: this model has no rules")
    if not isinstance(layer, RuleLayer):
        raise UserError(f"explain: got {type(source).__name__}, expected a run or a workbench")
    steps, stages, slots, _ = record.sizes
    require_index("step", step, steps)
    require_index("stage", stage, stages)
    require_index("slot", slot, slots)
    if len(record.calls) != steps:
        raise UserError("explain: this record does not say what the layer was given")
    seen = playback if isinstance(playback, Playback) else None
    return _Explainer(layer, bench, record, seen, step, stage, slot).explanation()


class _Explainer:
    """Collects what an explanation says about one slot at one stage."""

    def __init__(
        self,
        layer: RuleLayer,
        bench: Workbench | None,
        record: Record,
        playback: Playback | None,
        step: int,
        stage: int,
        slot: int,
    ) -> None:
        self.layer, self.bench, self.playback = layer, bench, playback
        self.step, self.stage, self.slot = step, stage, slot
        self.call, self.before = record.calls[step], record.before[step, stage]
        self.update = record.update[step, stage]
        self.rules, self.contexts = record.rule[step, stage], record.context[step, stage]
        self.context_scores = record.context_scores[step, stage, slot]
        self.recorded_scores = record.rule_scores[step, stage]
        weight = layer.rules.embedding
        slots = torch.as_tensor(self.before, dtype=weight.dtype, device=weight.device)
        if layer.rules.event_dims == 3:
            side = round(math.sqrt(slots.shape[-1] / layer.rules.slot_dim))
            slots = slots.view(len(slots), layer.rules.slot_dim, side, -1)
        self.chooser: int | None = None
        if reads_operand(layer):  # the rule is chosen by another slot than it changes
            self.chooser = next((int(c) for c in self.contexts if c >= 0), None)
        deciding = slot if self.chooser is None else self.chooser
        self.decision = Decision(layer, self.call, slots, deciding)

    def explanation(self) -> Explanation:
        rule, context = int(self.rules[self.slot]), int(self.contexts[self.slot])
        fired = rule >= 0
        winner, rival, margin, forced, flip, scores, bids = self._decided()
        pairs = None if self.bench is None else self._pictures(self.bench)
        chooser = -1 if self.chooser is None else self.chooser
        return Explanation(
            step=self.step,
            stage=self.stage,
            slot=self.slot,
            kind="parallel" if isinstance(self.layer, ParallelNPS) else "sequential",
            names=tuple(self.layer.rules.names),
            slot_names=self._slot_names(),
            fired=fired,
            rule=rule,
            context=context,
            chooser=self.chooser,
            scores=scores,
            bids=bids,
            winner=winner,
            rival=rival,
            margin=margin,
            forced=forced,
            flip=flip,
            contexts=np.array(self.context_scores) if fired else None,
            context_allowed=self._context_allowed(),
            primary=self._read(self.before)[self.slot],
            other=self._read(self.before)[context] if context >= 0 > chooser else None,
            added=self._difference(self.before + self.update, self.slot),
            added_norm=float(np.linalg.norm(self.update[self.slot])),
            pictures=pairs,
        )

    def _decided(self) -> tuple[Any, ...]:
        """Winner, rival, margin, whether it was forced, the flip, scores and bids."""
        decision, won = self.decision, self._recorded_winner()
        if not decision.known:
            return won, None, None, False, None, self.recorded_scores, None
        scored = decision.scored(decision.seen)
        scores = scored.rule.masked_fill(~scored.allowed, torch.nan).float().cpu().numpy()
        bids = None if scored.bids is None else tuple(map(float, scored.bids[decision.slot]))
        own = decision.winner(scored)
        if own is None:
            return won, None, None, False, None, scores, bids
        forced = not same(own, won)
        if not forced:
            won = own
        elif won.rule == NULL:
            return won, own, None, True, None, scores, bids
        margins = decision.margins(scored, won)
        rival, margin = self._rival(margins, scored, won)
        return won, rival, margin, forced, None if forced else self._flip(won), scores, bids

    def _recorded_winner(self) -> Choice:
        """Who fired, whatever the scores say."""
        slots = np.flatnonzero(self.rules >= 0)
        if self.decision.one_pair or not self.decision.known:
            at = int(slots[0]) if len(slots) else self.slot
            if self.chooser is not None and len(slots):
                # The pair is that of the slot which selected the rule.
                return Choice(int(self.contexts[at]), int(self.rules[at]), math.nan)
        else:
            at = self.slot
        rule = int(self.rules[at])
        score = float(self.recorded_scores[at, rule]) if rule >= 0 else math.nan
        return Choice(at, rule, score)

    def _rival(
        self, margins: Margins, scored: Scored, won: Choice
    ) -> tuple[Choice | None, float | None]:
        """The rival that is nearest by score; of a slot that lost, its own best pair."""
        own = self.decision.slot
        value = margins.value
        if won.slot != own and won.rule != NULL:
            value = value.masked_fill(margins.rivals[:, 0] != own, torch.inf)
        if not len(value) or not bool(value.isfinite().any()):
            return None, None
        nearest = int(value.argmin())
        slot, rule = margins.rivals[nearest].tolist()
        if scored.bids is not None and rule == NULL:
            score = scored.bids[slot, 1]
        elif scored.bids is not None and won.rule == NULL and not self.decision.one_pair:
            score = scored.bids[slot, 0]
        else:
            score = scored.rule[slot, rule]
        return Choice(slot, rule, float(score)), float(margins.value[nearest])

    def _flip(self, won: Choice) -> Flip | None:
        free = None
        if self.bench is not None and self.decision.selection is None:
            free = self.bench.slot_size
        found = smallest_change(self.decision, won, free)
        if found is None:
            return None
        change = found.change.float().cpu().numpy()
        size, whole = float(np.linalg.norm(change)), float(self.decision.seen.norm())
        features: dict[str, float] = {}
        if self.decision.selection is None:
            after = self.before.copy()
            after[self.decision.slot] += change
            features = self._difference(after, self.decision.slot)
        relative = size / whole if whole > 0 else math.inf
        return Flip(found.winner.slot, found.winner.rule, size, relative, change, features)

    def _context_allowed(self) -> Bool[ndarray, "M"]:
        m = len(self.before)
        mask = self.call.slot_mask
        allowed = Allowed(mask, None).contexts(m, self.layer.self_context, torch.device("cpu"))
        asks = self.slot if self.chooser is None else self.chooser
        return np.ones(m, bool) if allowed is None else allowed.expand(m, m)[asks].numpy()

    def _slot_names(self) -> tuple[str, ...]:
        if self.playback is not None:
            return tuple(self.playback.slot_names)
        return tuple(f"slot {m}" for m in range(len(self.before)))

    # -- what people can read -----------------------------------------------------------------

    def _features(self, slots: Float[ndarray, "M S"]) -> tuple[tuple[str, ...], Any]:
        if self.bench is None:
            return tuple(f"z{i}" for i in range(slots.shape[-1])), slots
        return tuple(self.bench.feature_names), np.asarray(self.bench.layer_features(slots))

    def _read(self, slots: Float[ndarray, "M S"]) -> list[dict[str, float]]:
        names, values = self._features(slots)
        return [dict(zip(names, map(float, row), strict=True)) for row in values]

    def _difference(self, after: Float[ndarray, "M S"], slot: int) -> dict[str, float]:
        """Of the features of a slot."""
        old, new = self._read(self.before)[slot], self._read(after)[slot]
        return {name: new[name] - old[name] for name in old}

    def _pictures(self, bench: Workbench) -> Any:
        if self.playback is not None:
            drawn = bench.pictures_of_step(self.playback, self.step, self.slot)
            if drawn is not None:
                return drawn
        before, after = (
            bench.picture(bench.layer_slots(slots), self.slot)
            for slots in (self.before, self.before + self.update)
        )
        return None if before is None or after is None else (before, after)
