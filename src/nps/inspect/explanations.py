"""Why a rule fired or did not: scores, the rival, the smallest change that flips the choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from nps.errors import UserError
from nps.inspect.decisions import NULL, Choice, Decision, Margins, Scored, same
from nps.inspect.flips import smallest_change
from nps.inspect.forcing import reads_operand
from nps.inspect.grids import difference
from nps.inspect.playback import Playback, Record
from nps.inspect.workbench import Workbench, require_index
from nps.rules import ParallelNPS, RuleLayer, Trace
from nps.rules.allowed import Allowed

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, UInt8
    from numpy import ndarray

SHOWN = 4
"""Features of a sentence, those that matter most."""


@dataclass(frozen=True, eq=False)
class Flip:
    """The smallest change of the slot that lets somebody else win the choice."""

    slot: int
    rule: int
    """Who wins then; -1: nothing fires."""
    size: float
    """Length (L2) of the change."""
    relative: float
    """Its share of the slot's length."""
    change: Float[ndarray, "S"]
    """In what the layer reads, or in what it selects by if that does not depend on the slots."""
    features: dict[str, float]
    """What people can read of it."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a rule fired on a slot at one step and stage, or why none did."""

    step: int
    stage: int
    slot: int
    kind: str
    """"sequential": one pair of slot and rule wins the stage. "parallel": each slot for itself."""
    names: tuple[str, ...]
    """Of the rules."""
    slot_names: tuple[str, ...]
    fired: bool
    rule: int
    context: int
    chooser: int | None
    """The slot whose scores choose the rule, where that is not the one the rule reads and changes,
    as in `OperandNPS`; None in other layers."""
    scores: Float[ndarray, "M N"]
    """Without noise; NaN where a pair is not allowed."""
    bids: tuple[float, float] | None
    """Of the rules and of the null rule, for this slot."""
    winner: Choice
    rival: Choice | None
    """The next best. Of a slot that lost, its own best."""
    margin: float | None
    """What the winner is ahead of it by; of forced choices it may be negative."""
    forced: bool
    """Whether the choice was made by hand: the scores alone would have made another."""
    flip: Flip | None
    contexts: Float[ndarray, "M"] | None
    """Scores of the slots as context, or of what `chooser` asks for; None where nothing fired."""
    context_allowed: Bool[ndarray, "M"]
    primary: dict[str, float]
    """What can be read of the slot."""
    other: dict[str, float] | None
    """What can be read of its context."""
    added: dict[str, float]
    """What the rule changed of it."""
    added_norm: float
    pictures: tuple[UInt8[ndarray, "H W 3"], UInt8[ndarray, "H W 3"]] | None
    """The slot before and after, as the model draws it."""

    def to_json(self, picture: Callable[[Any], str] | None = None) -> dict[str, Any]:
        """As JSON values, where what is not finite is None.

        Args:
            picture: makes a text of a picture, such as a data URL; without it there are none.
        """
        drawn = None
        if picture is not None and self.pictures is not None:
            before, after = map(picture, self.pictures)
            drawn = {"before": before, "after": after, "added": None}
            if (added := difference(*self.pictures)) is not None:
                drawn["added"] = picture(added)
        flip = self.flip and {
            "slot": self.flip.slot,
            "rule": self.flip.rule,
            "size": self.flip.size,
            "relative": self.flip.relative,
            "features": self.flip.features,
        }
        found = {
            "step": self.step,
            "stage": self.stage,
            "slot": self.slot,
            "kind": self.kind,
            "fired": self.fired,
            "rule": self.rule,
            "context": self.context,
            "chooser": self.chooser,
            "scores": self.scores.tolist(),
            "bids": None if self.bids is None else list(self.bids),
            "winner": self.winner._asdict(),
            "rival": None if self.rival is None else self.rival._asdict(),
            "margin": self.margin,
            "forced": self.forced,
            "flip": flip,
            "contexts": None if self.contexts is None else self.contexts.tolist(),
            "context_allowed": self.context_allowed.tolist(),
            "read": {"primary": self.primary, "context": self.other},
            "added": {"features": self.added, "norm": self.added_norm},
            "pictures": drawn,
        }
        finite: dict[str, Any] = _finite(found)
        return finite

    def lines(self) -> list[str]:
        """The explanation in sentences."""
        where = f"step {self.step}" + (f", stage {self.stage}" if self.stage else "")
        if self.fired:
            name = self.slot_names
            context = f" with {name[self.context]} as its context" if self.context >= 0 else ""
            if self.chooser is not None:
                context = f", chosen by {name[self.chooser]}"
            lines = [f"{where}: {self._rule(self.rule)} fired on {name[self.slot]}{context}."]
        else:
            who = f": {self._who(self.winner)} won" if self.winner.slot != self.slot else ""
            lines = [f"{where}: nothing fired on {self.slot_names[self.slot]}{who}."]
        if self.forced:
            lines.append("The choice was made by hand.")
        if self.rival is not None and self.margin is not None:
            lines.append(
                f"{self._who(self.winner)} scores {self.winner.score:.3g}, "
                f"{self._who(self.rival)} {self.rival.score:.3g}: {self.margin:.3g} between them."
            )
        if self.flip is not None:
            to = "nothing fires" if self.flip.rule == NULL else f"{self._who(self.flip)} wins"
            said = _changes(self.flip.features)
            slot = "the slot" if self.chooser is None else self.slot_names[self.chooser]
            what = slot if self.flip.features else "what it is chosen by"
            lines.append(
                f"If {what} changed by {self.flip.size:.3g} "
                f"({self.flip.relative:.1%} of its length{said and ': ' + said}), {to}."
            )
        if self.fired and (said := _changes(self.added)):
            lines.append(f"The rule changed {said}.")
        return lines

    def _rule(self, rule: int) -> str:
        return "the null rule" if rule == NULL else self.names[rule]

    def _who(self, choice: Choice | Flip) -> str:
        if self.kind != "sequential" or choice.rule == NULL or self.chooser is not None:
            return self._rule(choice.rule)
        return f"{self._rule(choice.rule)} on {self.slot_names[choice.slot]}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *later = map(escape, self.lines())
        return f"<p><b>{first}</b><br>{'<br>'.join(later)}</p>"


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


def _changes(features: dict[str, float]) -> str:
    """The largest changes in words: "row +0.2, column −0.1"."""
    known = {name: value for name, value in features.items() if math.isfinite(value)}
    ranked = sorted(known.items(), key=lambda item: -abs(item[1]))[:SHOWN]
    most = abs(ranked[0][1]) if ranked else 0.0
    shown = [f"{name} {value:+.2g}" for name, value in ranked if abs(value) > 0.01 * most]
    return ", ".join(shown)


def _finite(value: Any) -> Any:
    """The same with None in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value
