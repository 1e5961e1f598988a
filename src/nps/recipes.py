"""How to train a rule layer so that it learns: two recipes, with the reason for each part.

Which one depends on who makes what the slots should become. Where it is **given** (coordinates,
states, images), every choice can be tried, and selection learns which would have been right. Where
slots are **learned** together with the rules (world models), that misleads: hindsight chooses, and
the slots follow; there choices are drawn, as in the paper, and four things keep rules in play.

Chosen on arithmetic, digits and blocks alone, on validation data. docs/notes/recipe.md has the
measurements, and what they do not show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.rules import ParallelNPS, RuleLayer, SequentialNPS, free_energy, regret
from nps.rules.check import require_number, require_type
from nps.rules.config import MAX_HANDICAP, MIN_TEMPERATURE
from nps.rules.inputs import Selection

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

__all__ = ["GIVEN", "LEARNED", "Part", "Recipe", "given_loss"]


class Part(NamedTuple):
    what: str
    reason: str
    options: Mapping[str, Any] = MappingProxyType({})
    """Arguments of the layer's constructor."""


@dataclass(frozen=True)
class Recipe:
    """Settings of a rule layer and of its training that go together."""

    name: str
    use: str
    parts: tuple[Part, ...]
    kinds: tuple[type[RuleLayer], ...]
    """The layers that it was measured with; the first is the default."""

    @property
    def options(self) -> dict[str, Any]:
        """What the parts say of the layer, as keyword arguments."""
        return {name: value for part in self.parts for name, value in part.options.items()}

    def layer(
        self, slot_dim: int, num_rules: int, *, kind: type[RuleLayer] | None = None, **options: Any
    ) -> RuleLayer:
        """A layer with these settings.

        Args:
            slot_dim, num_rules: sizes.
            kind: another class than the recipe's first; what it does not take is left out.
            options: further arguments of its constructor; they win over the recipe's.
        """
        kind = self.kinds[0] if kind is None else kind
        ours = {name: x for name, x in self.options.items() if name not in kind.unused}
        return kind(slot_dim, num_rules, **(ours | options))

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.use}"]
        for part in self.parts:
            values = ", ".join(f"{name}={value!r}" for name, value in part.options.items())
            lines += [f"- {part.what}" + (f" ({values})" if values else ""), f"  {part.reason}"]
        return "\n".join(lines)


GIVEN = Recipe(
    "given",
    "what the slots should become is given: coordinates, states, images. Train on given_loss.",
    (
        Part(
            "free energy over every slot, rule and context",
            "Straight-through gradients hardly point downhill once rules do something, and even "
            "the exact expected loss does not separate rules.",
        ),
        Part(
            "temperature: the regret of the batch",
            "It has the unit of the loss, is high until selection knows something, and then low.",
        ),
        Part(
            "small networks choose contexts, in place of matrices",
            "A product of two linear maps cannot ask whether a change equals another slot's value.",
            {"context_query": "mlp"},
        ),
        Part(
            "no noise, dropout or bonus on even use",
            "Every choice is tried anyway.",
            {"dropout": 0.0, "context_dropout": 0.0},
        ),
    ),
    (SequentialNPS, ParallelNPS),
)

LEARNED = Recipe(
    "learned",
    "slots are learned together with the rules (world models). Train on the model's own loss.",
    (
        Part(
            "choices are drawn, as in the paper",
            "With the free energy, hindsight chooses and the encoder follows: the loss falls and "
            "the argmax is wrong.",
        ),
        Part(
            "no null rule while rules learn",
            "It wins the slots that stand still before rules are of use, and a slot that no rule "
            "changes teaches them nothing. Rules learn to do nothing instead.",
            {"null_handicap": MAX_HANDICAP},
        ),
        Part(
            "choices of contexts learn from what each context would do",
            "A rule that does nothing in the wrong context says nothing about the right one.",
            {"context_gradient": "update"},
        ),
        Part(
            "dropout of context scores",
            "Otherwise slots that stand still soon agree on one slot to look at.",
            {"context_dropout": 0.35},
        ),
        Part(
            "a slot is not its own context, and small networks choose",
            "Finding the neighbour in the way is not a product of two linear maps.",
            {"self_context": False, "query": "mlp"},
        ),
        Part(
            "two hidden layers in a rule",
            "Whether two slots are neighbours depends on both at once.",
            {"hidden_layers": 2},
        ),
    ),
    (ParallelNPS, SequentialNPS),
)


def given_loss(
    layer: RuleLayer,
    slots: Float[Tensor, "*batch M D"],
    target: Float[Tensor, "*batch M D"],
    *,
    selection: Selection | None = None,
    slot_mask: Bool[Tensor, "*batch M"] | None = None,
    tau: float = 1.0,
) -> Float[Tensor, ""]:
    """The loss of the recipe `GIVEN`: squared errors of slots, with the regret as temperature.

    Args:
        layer: `SequentialNPS` with one stage, whose updates are judged with the slots that stay, or
            `ParallelNPS`, whose slots are judged one by one.
        slots: before the rules.
        target: what they should become.
        selection, slot_mask: as for the layer's call; masked slots do not count.
        tau: the temperature, in units of the regret.

    Returns:
        The mean free energy of the batch, summed over slots.

    Example::

        layer = GIVEN.layer(slot_dim=8, num_rules=4)
        slots, target = torch.randn(2, 32, 5, 8)
        given_loss(layer, slots, target).backward()
    """
    require_type("layer", layer, (SequentialNPS, ParallelNPS), "SequentialNPS or ParallelNPS")
    require_number("tau", tau, MIN_TEMPERATURE, 1e6, open_top=False)
    if target.shape != slots.shape:
        raise ValueError(f"target: got shape {tuple(target.shape)}, expected {tuple(slots.shape)}")
    log_prior, updated = layer.every_update(slots, selection=selection, slot_mask=slot_mask)
    losses = (updated - target.unsqueeze(-2).unsqueeze(-2)).square().sum(-1)
    dims = 2 if isinstance(layer, ParallelNPS) else 3
    present = torch.ones_like(slots[..., 0]) if slot_mask is None else slot_mask.to(slots.dtype)
    if dims == 3:
        kept = present * (slots - target).square().sum(-1)
        losses = losses + (kept.sum(-1, keepdim=True) - kept).unsqueeze(-1).unsqueeze(-1)
        present = torch.ones_like(losses[..., 0, 0, 0])
    wrong = present * regret(log_prior, losses, dims=dims)
    temperature = (tau * wrong.sum() / present.sum().clamp(min=1)).clamp(min=MIN_TEMPERATURE)
    energy = present * free_energy(log_prior, losses, temperature, dims=dims)
    return (energy.sum(-1) if dims == 2 else energy).mean()
