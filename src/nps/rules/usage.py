"""How often each rule fired: the first look at whether rules have specialised or collapsed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Int

COLLAPSED = 0.99
ENOUGH = 20
"""Fewer firings than this say nothing about collapse."""
SHOWN = 8


@dataclass(frozen=True, repr=False)
class Usage:
    """The use of rules in one or more traces, as numbers on the host."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    """How often each rule fired."""
    unchanged: int
    """Slots that no rule changed, counted at every stage. In Algorithm 2 the null rule took them,
    or they are masked; in Algorithm 1 they are all slots but the primary one."""

    @property
    def firings(self) -> int:
        return sum(self.counts)

    @property
    def shares(self) -> dict[str, float]:
        """Each rule's share of all firings."""
        total = max(self.firings, 1)
        return {name: count / total for name, count in zip(self.names, self.counts, strict=True)}

    @property
    def null(self) -> float:
        """Share of slots, counted at every stage, that no rule changed."""
        return self.unchanged / max(self.unchanged + self.firings, 1)

    @property
    def entropy(self) -> float:
        """Entropy of the shares in bits: 0 if one rule does everything, log2(N) if all do alike."""
        shares = self.shares.values()
        return -sum(share * math.log2(share) for share in shares if share > 0) + 0.0

    @property
    def effective_rules(self) -> float:
        """The number of rules that would have this entropy if all were used alike; 0 for none."""
        return 2.0**self.entropy if self.firings else 0.0

    @property
    def collapsed(self) -> bool:
        """True if one of several rules takes more than 99 % of at least 20 firings."""
        most = max(self.shares.values())
        return len(self.names) > 1 and self.firings >= ENOUGH and most > COLLAPSED

    def __repr__(self) -> str:
        ranked = sorted(self.shares.items(), key=lambda item: -item[1])
        shares = [f"{name} {share:.0%}" for name, share in ranked[:SHOWN]]
        if len(ranked) > SHOWN:
            shares.append(f"{len(ranked) - SHOWN} more {sum(x for _, x in ranked[SHOWN:]):.0%}")
        return (
            f"Usage({self.firings} firings: {', '.join(shares)}; unchanged slots {self.null:.0%}; "
            f"entropy {self.entropy:.2f} bits, {self.effective_rules:.1f} effective rules)"
        )


def require_names(names: Sequence[str], num_rules: int) -> None:
    if len(names) != num_rules:
        raise ValueError(f"names: got {len(names)}, expected {num_rules}, one for each rule")


def count_rules(
    rule: Int[Tensor, "*batch K M"], num_rules: int, names: Sequence[str] | None = None
) -> Usage:
    """Count the rules of a trace, and warn if one takes everything."""
    if names is None:
        names = [f"rule {i}" for i in range(num_rules)]
    require_names(names, num_rules)
    # -1, for no rule, becomes 0.
    unchanged, *counts = torch.bincount(rule.flatten() + 1, minlength=num_rules + 1).tolist()
    usage = Usage(tuple(names), tuple(counts), unchanged)
    if usage.collapsed:
        first = max(usage.shares, key=usage.shares.__getitem__)
        warnings.warn(
            f"the rules have collapsed: {first} takes {usage.shares[first]:.1%} of "
            f"{usage.firings} firings, the other {num_rules - 1} almost none; "
            "dropout=0.35 (the paper's) keeps rules in play",
            stacklevel=3,
        )
    return usage
