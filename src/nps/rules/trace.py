"""What fired where: the record of one call of a rule layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.rules.raster import raster
from nps.rules.table import Table
from nps.rules.usage import Usage, count_rules, require_names

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class Trace(NamedTuple):
    """Which rule fired on which slot, with which context, and the scores that decided it.

    Everything stays on the device; nothing is copied to the host until you print a trace or call
    its `table` or `usage`. The scores are those before masks, dropout and noise, and carry
    gradients (a loss on them is possible); `detach` a trace that is kept beyond the step.
    """

    rule: Int[Tensor, "*batch K M"]
    """The rule that fired on slot m at stage k, or -1."""
    context: Int[Tensor, "*batch K M"]
    """The slot it took as its context, or -1 (also where no slot was allowed as context)."""
    rule_scores: Float[Tensor, "*batch K M N"]
    """Scores of every rule on every slot."""
    context_scores: Float[Tensor, "*batch K M M"]
    """Row m: scores of all slots as context of slot m; zero where slot m did not fire."""

    @property
    def fired(self) -> Bool[Tensor, "*batch K M"]:
        """True where a rule changed the slot."""
        return self.rule >= 0

    def detach(self) -> Trace:
        """The same values without gradients: what to keep beyond a training step."""
        return Trace(*(part.detach() for part in self))

    def to(self, device: torch.device | str) -> Trace:
        """On another device."""
        return Trace(*(part.to(device) for part in self))

    def cpu(self) -> Trace:
        """On the CPU."""
        return self.to("cpu")

    def usage(self, names: Sequence[str] | None = None) -> Usage:
        """How often each rule fired, with the entropy in bits; warns if one takes everything.

        Args:
            names: of the rules, e.g. `layer.rules.names`; by default `rule 0` and so on.
        """
        return count_rules(self.rule, self.rule_scores.shape[-1], names)

    def table(self, names: Sequence[str] | None = None, *, at: int = 0, limit: int = 20) -> Table:
        """The choices of one batch element: a row for each stage, a column for each slot.

        Args:
            names: of the rules, as for `usage`.
            at: which element, counted through all batch dimensions.
            limit: show at most this many stages and slots.
        """
        if names is not None:
            require_names(names, self.rule_scores.shape[-1])
        count = self.rule.shape[:-2].numel()
        if not -count <= at < count:
            raise ValueError(f"at: got {at}, expected 0 to {count - 1}, an element of the batch")
        rule, context = (part.reshape(count, *part.shape[-2:])[at] for part in self[:2])
        caption = f"{self._summary()}\nbatch element {at % count}, rule ← context:"
        return Table.of(caption, rule.tolist(), context.tolist(), names, limit)

    def __repr__(self) -> str:
        return repr(self.table(limit=8)) if self._readable() else self._summary()

    def _repr_html_(self) -> str:
        if not self._readable():
            return f"<p>{self._summary()}</p>"
        return self.picture() + self.table()._repr_html_()

    def picture(self, names: Sequence[str] | None = None, *, most: int = 600) -> str:
        """The rules that fired, as SVG: a column for each stage of each element, a row for a slot.

        Args:
            names: of the rules, as for `usage`.
            most: cells that are drawn; of more, the first elements of the batch.
        """
        *_, stages, slots = self.rule.shape
        rules = self.rule_scores.shape[-1]
        if names is not None:
            require_names(names, rules)
        shown = self.rule.reshape(-1, slots)[: stages * max(1, most // (stages * slots))]
        columns: list[list[int]] = shown.tolist()
        rule_names = [f"rule {i}" for i in range(rules)] if names is None else names
        return raster(columns, rule_names, [f"slot {m}" for m in range(slots)], every=stages)

    def _readable(self) -> bool:
        """False inside vmap or a compiler, where tensors have no values, and without any rows."""
        if torch.compiler.is_compiling() or self.rule.is_meta or self.rule.numel() == 0:
            return False
        return not torch._C._functorch.is_functorch_wrapped_tensor(self.rule)

    def _summary(self) -> str:
        (*batch, stages, slots), rules = self.rule.shape, self.rule_scores.shape[-1]
        sizes = f"stages={stages}, slots={slots}, rules={rules}"
        return f"Trace(batch={tuple(batch)}, {sizes}, device={self.rule.device})"

    @classmethod
    def of_stages(cls, stages: list[Trace], batch_dims: int) -> Trace:
        """Stack the traces of K stages behind the batch dimensions."""
        if len(stages) == 1:  # nothing to copy
            return cls(*(part.unsqueeze(batch_dims) for part in stages[0]))
        return cls(*(torch.stack(parts, batch_dims) for parts in zip(*stages, strict=True)))


class Choices(NamedTuple):
    """The one-hot choices of one stage and the scores behind them.

    A dimension of 1 in place of M: one rule or context for the whole stage, as in Algorithm 1.
    """

    primary: Float[Tensor, "*batch M"]
    rule: Float[Tensor, "*batch #M N"]
    context: Float[Tensor, "*batch #M M"]
    rule_scores: Float[Tensor, "*batch M N"]
    context_scores: Float[Tensor, "*batch #M M"]

    def trace(self) -> Trace:
        """The trace of this stage, without the dimension K."""
        fired = self.primary.detach() > 0
        return Trace(
            rule=torch.where(fired, index_or_none(self.rule), -1),
            context=torch.where(fired, index_or_none(self.context), -1),
            rule_scores=self.rule_scores,
            context_scores=torch.where(fired.unsqueeze(-1), self.context_scores, 0.0),
        )


def index_or_none(choice: Float[Tensor, "*batch N"]) -> Int[Tensor, "*batch"]:
    """The index of a one-hot choice, -1 where nothing was chosen."""
    return torch.where(choice.detach().amax(-1) > 0, choice.argmax(-1), -1)
