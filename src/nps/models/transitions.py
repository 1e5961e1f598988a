"""Transitions: from the slots at one time and an action for each slot to the slots at the next.

NPS and the baselines of the paper and of C-SWM share one call: `transition(slots, action)`. NPS
reads slot and action as one vector (appendix, "Physics Environment": the action is concatenated to
every slot); the GNN gives the action to its node network, after the messages.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from nps.interactions import GNN, TransformerLayer
from nps.networks import NormalisedMLP
from nps.rules import AdaptiveNPS, ParallelNPS, RuleConfig, RuleLayer, SequentialNPS, Trace
from nps.rules.check import require_choice, require_int

if TYPE_CHECKING:
    from jaxtyping import Float

Kind = Literal["snps", "pnps", "anps", "gnn", "attention", "mlp", "identity"]


class Transition(nn.Module, ABC):
    """Slots (..., M, D) and actions (..., M, A) -> the next slots (..., M, D).

    Noise is for training only and ignored in evaluation mode.
    """

    def noise_size(self, slots: int) -> int:
        """Uniform random numbers per example that a call in training needs."""
        return 0

    @abstractmethod
    def forward(
        self,
        slots: Float[Tensor, "*batch M D"],
        action: Float[Tensor, "*batch M A"],
        noise: Float[Tensor, "*batch noise"] | None = None,
    ) -> Float[Tensor, "*batch M D"]: ...


class RuleTransition(Transition):
    """A rule layer over [slot, action].

    A rule reads, and may change, the whole vector; its changes to the action part are visible to
    later stages and then dropped. With `PerSlot` features, rules and contexts are selected from
    vectors computed with a separate matrix for each slot position, as in the authors' programs:
    slots then differ by position, and the selection is no longer equivariant to their order.

    Args:
        layer: `SequentialNPS`, `ParallelNPS` or `AdaptiveNPS` of size D + A.
        slot_dim: D.
        features: maps the vectors to what selection sees; None for the vectors themselves.
    """

    def __init__(self, layer: RuleLayer, slot_dim: int, features: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.slot_dim, self.features = layer, slot_dim, features

    def noise_size(self, slots: int) -> int:
        return math.prod(self.layer.noise_shape(slots=slots))

    def forward(
        self,
        slots: Float[Tensor, "*batch M D"],
        action: Float[Tensor, "*batch M A"],
        noise: Float[Tensor, "*batch noise"] | None = None,
    ) -> Float[Tensor, "*batch M D"]:
        new: Tensor = self.layer(
            torch.cat([slots, action], -1),
            selection=self.features,
            noise=self._noise(noise, slots.shape[-2]),
        )
        return new[..., : self.slot_dim]

    def traced(
        self,
        slots: Float[Tensor, "*batch M D"],
        action: Float[Tensor, "*batch M A"],
        noise: Float[Tensor, "*batch noise"] | None = None,
    ) -> tuple[Float[Tensor, "*batch M D"], Trace]:
        """The new slots, and the trace of the rules that changed them."""
        new, trace = self.layer(
            torch.cat([slots, action], -1),
            selection=self.features,
            noise=self._noise(noise, slots.shape[-2]),
            return_trace=True,
        )
        return new[..., : self.slot_dim], trace

    def propose(
        self,
        slots: Float[Tensor, "*batch M D"],
        action: Float[Tensor, "*batch M A"],
        noise: Float[Tensor, "*batch noise"] | None = None,
    ) -> tuple[Float[Tensor, "*batch M D"], Float[Tensor, "*batch M"]]:
        """What an `AdaptiveNPS` would make of every slot, and what that is worth to it."""
        assert isinstance(self.layer, AdaptiveNPS)
        new, worth = self.layer.propose(
            torch.cat([slots, action], -1),
            selection=self.features,
            noise=self._noise(noise, slots.shape[-2]),
        )
        return new[..., : self.slot_dim], worth

    def every_update(
        self, slots: Float[Tensor, "*batch M D"], action: Float[Tensor, "*batch M A"]
    ) -> tuple[Float[Tensor, "*batch M N M"], Float[Tensor, "*batch M N M D"]]:
        """All updates that the layer's stage could make, and the log-probability of each."""
        log_prior, updated = self.layer.every_update(
            torch.cat([slots, action], -1), selection=self.features
        )
        return log_prior, updated[..., : self.slot_dim]

    def _noise(self, noise: Tensor | None, slots: int) -> Tensor | None:
        if noise is None or not self.training:
            return None
        shaped: Tensor = noise.unflatten(-1, self.layer.noise_shape(slots=slots))
        return shaped


class PerSlot(nn.Module):
    """A separate matrix for each slot position.

    Shapes: (..., M, size_in) -> (..., M, size_out).
    """

    def __init__(self, slots: int, size_in: int, size_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(slots, size_in, size_out) / math.sqrt(size_in))

    def forward(self, slots: Float[Tensor, "*batch M F"]) -> Float[Tensor, "*batch M out"]:
        return torch.einsum("...mf,mfo->...mo", slots, self.weight)


class Leading(nn.Module):
    """The first entries of each slot's vector.

    Shapes: (..., M, F) -> (..., M, size).
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, slots: Float[Tensor, "*batch M F"]) -> Float[Tensor, "*batch M size"]:
        return slots[..., : self.size]


class GNNTransition(Transition):
    """C-SWM's transition."""

    def __init__(self, slot_dim: int, action_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.gnn = GNN(slot_dim, action_dim=action_dim, hidden_dim=hidden_dim)

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        new: Tensor = self.gnn(slots, action)
        return new


class AttentionTransition(Transition):
    """A transformer layer between two linear maps, whose result is added to the slots."""

    def __init__(self, slot_dim: int, action_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.read = nn.Linear(slot_dim + action_dim, hidden_dim)
        self.layer = TransformerLayer(hidden_dim, hidden_dim=hidden_dim)
        self.write = nn.Linear(hidden_dim, slot_dim)

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        change: Tensor = self.write(self.layer(self.read(torch.cat([slots, action], -1))))
        return slots + change


class MLPTransition(Transition):
    """Each slot on its own: C-SWM "without latent GNN", its node network without messages."""

    def __init__(self, slot_dim: int, action_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.net = NormalisedMLP(slot_dim + action_dim, hidden_dim, slot_dim)

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        change: Tensor = self.net(torch.cat([slots, action], -1))
        return slots + change


class Identity(Transition):
    """Nothing ever moves: the baseline that every model must beat."""

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        return slots


DENSE: dict[str, Callable[[int, int, int], Transition]] = {
    "gnn": GNNTransition,
    "attention": AttentionTransition,
    "mlp": MLPTransition,
}
RULES: dict[str, type[RuleLayer]] = {
    "snps": SequentialNPS,
    "pnps": ParallelNPS,
    "anps": AdaptiveNPS,
}


def make_transition(
    kind: Kind,
    slot_dim: int,
    action_dim: int,
    rules: RuleConfig,
    *,
    slots: int,
    selection_per_slot: bool = False,
    index_dim: int = 0,
    hidden_dim: int = 512,
) -> Transition:
    """Build any of the transitions.

    Args:
        kind: sequential, parallel or adaptive NPS, or a baseline.
        slot_dim: D.
        action_dim: A, size of the action of each slot.
        rules: settings of the rule layer; ignored by the baselines.
        slots: M; only used if `selection_per_slot`.
        selection_per_slot: select from features computed with a separate matrix for each slot
            position. With one rule and an action copied to every slot, the paper's linear
            selection cannot see the action; this one can, and so can `query="mlp"`.
        index_dim: how many of the last entries of A are the slot's index. Rules see them,
            selection does not, so that what it learns for one slot holds for all.
        hidden_dim: width of the baselines.
    """
    require_choice("kind", kind, (*RULES, "identity", *DENSE))
    require_int("slots", slots, at_least=1)
    if kind == "identity":
        return Identity()
    if kind in DENSE:
        return DENSE[kind](slot_dim, action_dim, hidden_dim)
    size = slot_dim + action_dim
    features: nn.Module | None = None
    selection_dim: int | None = None
    if selection_per_slot:
        # Wide enough for W^q and both matrices of binding to differ.
        selection_dim = 3 * rules.key_dim
        features = PerSlot(slots, size, selection_dim)
    elif index_dim:
        selection_dim = size - index_dim
        features = Leading(selection_dim)
    layer = RULES[kind].from_config(rules, size, selection_dim=selection_dim)
    return RuleTransition(layer, slot_dim, features)
