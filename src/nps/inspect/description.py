"""What a description of a rule says, in lines, in a notebook and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from nps.inspect.relatives import Relative

LIKE, OPPOSITE = 0.2, -0.5
"""Similarity from which on a rule is called like another, and up to which its opposite."""


@dataclass(frozen=True)
class When:
    """When a rule fires."""

    tree: tuple[str, ...]
    """Lines."""
    accuracy: float
    """On held-out examples, half of which the rule fired on."""
    chance: float
    """Of always giving the more frequent answer."""


@dataclass(frozen=True)
class Does:
    """What a rule does."""

    sentence: str
    r2: float | None
    """Held out; None if there are too few uses."""
    linear: bool


@dataclass(frozen=True)
class Description:
    """A rule in words."""

    rule: int
    name: str
    uses: int
    share: float
    """Of all firings."""
    when: When | None
    does: Does | None
    relatives: tuple[Relative, ...]
    """The other rules, those first that are most like it or most opposite."""
    by: dict[str, dict[str, float]]
    """Shares of its uses by object, action and event."""
    episodes: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        when = self.when and {
            "tree": list(self.when.tree),
            "accuracy": self.when.accuracy,
            "chance": self.when.chance,
        }
        does = self.does and {
            "sentence": self.does.sentence,
            "r2": self.does.r2,
            "linear": self.does.linear,
        }
        return {
            "rule": self.rule,
            "name": self.name,
            "uses": self.uses,
            "share": self.share,
            "when": when,
            "does": does,
            "relatives": [each.__dict__ for each in self.relatives],
            "by": self.by,
        }

    def lines(self) -> list[str]:
        """The description in lines."""
        lines = [f"{self.name}: {self.uses} uses, {self.share:.0%} of all firings"]
        if self.does is not None:
            fit = "" if self.does.r2 is None else f" (R² {self.does.r2:.2f})"
            lines.append(f"does: {self.does.sentence}{fit}")
        if self.when is not None:
            right = f" ({self.when.accuracy:.0%} right, {self.when.chance:.0%} by chance)"
            always = self.when.accuracy == self.when.chance
            lines.append(f"when{'' if always else right}:")
            lines += [f"  {line}" for line in self.when.tree]
        for kind, shares in self.by.items():
            most = sorted(shares.items(), key=lambda item: -item[1])[:4]
            lines.append(f"by {kind}: " + ", ".join(f"{name} {x:.0%}" for name, x in most))
        for other in self.relatives[:1]:
            if other.similarity >= LIKE or other.similarity <= OPPOSITE:
                kind = "like" if other.similarity > 0 else "opposite of"
                lines.append(f"{kind} rule {other.rule}: similarity {other.similarity:.2f}")
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *later = map(escape, self.lines())
        return f"<p><b>{first}</b></p><pre>{chr(10).join(later)}</pre>"
