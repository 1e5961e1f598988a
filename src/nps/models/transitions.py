"""What takes the slots of one moment to the next, given an action for each slot.

NPS, and what the paper and C-SWM compare it with, behind one call: `transition(slots, action)`. NPS
reads slot and action as one vector (appendix, "Physics Environment": the action is concatenated to
every slot); the GNN gives the action to its node network, after the messages.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from nps.interactions import GNN, TransformerLayer
from nps.networks import NormalisedMLP
from nps.rules import ParallelNPS, RuleLayer, SequentialNPS, Trace
from nps.rules.check import require_choice, require_int
from nps.rules.config import ContextGradient

if TYPE_CHECKING:
    from jaxtyping import Float

Kind = Literal["snps", "pnps", "gnn", "attention", "mlp", "identity"]
Selection = Literal["linear", "mlp", "per-slot"]


class Transition(nn.Module, ABC):
    """Slots (..., M, D) and actions (..., M, A) to the slots of the next moment.

    Noise is of training alone; in evaluation it is not looked at.
    """

    def noise_size(self, slots: int) -> int:
        """Uniform numbers that a training call uses for each example."""
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

    A rule's action reads, and may change, the whole vector; what it made of the action is seen by
    later stages and then left out. With `selection="per-slot"` rules and contexts are chosen by
    features for which each slot position has a matrix of its own, as in the authors' programs:
    position then tells slots apart, and the choice is no longer equivariant to their order.

    Args:
        layer: `SequentialNPS` or `ParallelNPS` of size D + A.
        slot_dim: D.
        features: from the vectors to what selection sees, if not the vectors themselves.
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
        """The new slots, and which rules changed them with which contexts."""
        new, trace = self.layer(
            torch.cat([slots, action], -1),
            selection=self.features,
            noise=self._noise(noise, slots.shape[-2]),
            return_trace=True,
        )
        return new[..., : self.slot_dim], trace

    def _noise(self, noise: Tensor | None, slots: int) -> Tensor | None:
        if noise is None or not self.training:
            return None
        shaped: Tensor = noise.unflatten(-1, self.layer.noise_shape(slots=slots))
        return shaped


class PerSlot(nn.Module):
    """A matrix for each slot position.

    Shapes: (..., M, size_in) -> (..., M, size_out).
    """

    def __init__(self, slots: int, size_in: int, size_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(slots, size_in, size_out) / math.sqrt(size_in))

    def forward(self, slots: Float[Tensor, "*batch M F"]) -> Float[Tensor, "*batch M out"]:
        return torch.einsum("...mf,mfo->...mo", slots, self.weight)


class Leading(nn.Module):
    """The first numbers of each slot's vector.

    Shapes: (..., M, F) -> (..., M, size).
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, slots: Float[Tensor, "*batch M F"]) -> Float[Tensor, "*batch M size"]:
        return slots[..., : self.size]


class GNNTransition(Transition):
    """C-SWM's."""

    def __init__(self, slot_dim: int, action_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.gnn = GNN(slot_dim, action_dim=action_dim, hidden_dim=hidden_dim)

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        new: Tensor = self.gnn(slots, action)
        return new


class AttentionTransition(Transition):
    """One transformer layer between two linear maps; its result is added to the slots."""

    def __init__(self, slot_dim: int, action_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.read = nn.Linear(slot_dim + action_dim, hidden_dim)
        self.layer = TransformerLayer(hidden_dim, hidden_dim=hidden_dim)
        self.write = nn.Linear(hidden_dim, slot_dim)

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        change: Tensor = self.write(self.layer(self.read(torch.cat([slots, action], -1))))
        return slots + change


class MLPTransition(Transition):
    """Every slot by itself: C-SWM "without latent GNN", its node network without messages."""

    def __init__(self, slot_dim: int, action_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.net = NormalisedMLP(slot_dim + action_dim, hidden_dim, slot_dim)

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        change: Tensor = self.net(torch.cat([slots, action], -1))
        return slots + change


class Identity(Transition):
    """Nothing ever moves: the floor."""

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        return slots


DENSE: dict[str, Callable[[int, int, int], Transition]] = {
    "gnn": GNNTransition,
    "attention": AttentionTransition,
    "mlp": MLPTransition,
}


def make_transition(
    kind: Kind,
    slot_dim: int,
    action_dim: int,
    *,
    slots: int,
    numbers: int = 0,
    hidden_dim: int = 512,
    rules: int = 1,
    stages: int = 1,
    rule_dim: int = 64,
    key_dim: int = 32,
    rule_hidden_dim: int = 128,
    rule_layers: int = 1,
    selection: Selection = "linear",
    temperature: float = 1.0,
    self_context: bool = True,
    context_gradient: ContextGradient = "slot",
    context_dropout: float = 0.0,
    null_handicap: float = 0.0,
) -> Transition:
    """Build any of the transitions.

    Args:
        kind: sequential or parallel NPS, or what it is compared with.
        slot_dim: D.
        action_dim: A, size of the action that each slot is given.
        slots: M; for selection "per-slot" alone.
        numbers: how many of A, the last ones, tell a slot its number: rules see them, selection
            does not, so that what it learns of one slot holds for all.
        hidden_dim: width of the dense ones.
        rules, stages, rule_dim, key_dim: N, K and sizes of the rule layers.
        rule_hidden_dim, rule_layers: hidden units of a rule's MLP, and hidden layers of them.
        selection: how rule layers see the slots: "linear" is the paper's; with one rule and an
            action copied to every slot it cannot see the action, "mlp" and "per-slot" can.
        temperature: of the softmax that gives the choices their gradient.
        self_context: may a slot be its own context?
        context_gradient, context_dropout: how contexts are learned, see `SequentialNPS`.
        null_handicap: taken off the null rule's bids in parallel NPS.
    """
    require_choice("kind", kind, ("snps", "pnps", "identity", *DENSE))
    require_choice("selection", selection, get_args(Selection))
    require_int("slots", slots, at_least=1)
    if kind == "identity":
        return Identity()
    if kind in DENSE:
        return DENSE[kind](slot_dim, action_dim, hidden_dim)
    size = slot_dim + action_dim
    features: nn.Module | None = None
    seen: int | None = None
    if selection == "per-slot":
        seen = 3 * key_dim  # wide enough for W^q and both matrices of binding to differ
        features = PerSlot(slots, size, seen)
    elif numbers:
        seen = size - numbers
        features = Leading(seen)
    parallel = partial(ParallelNPS, null_handicap=null_handicap)
    layer = (SequentialNPS if kind == "snps" else parallel)(
        size,
        rules,
        stages=stages,
        rule_dim=rule_dim,
        key_dim=key_dim,
        hidden_dim=rule_hidden_dim,
        hidden_layers=rule_layers,
        selection_dim=seen,
        query="mlp" if selection == "mlp" else "linear",
        temperature=temperature,
        self_context=self_context,
        context_gradient=context_gradient,
        context_dropout=context_dropout,
    )
    return RuleTransition(layer, slot_dim, features)
