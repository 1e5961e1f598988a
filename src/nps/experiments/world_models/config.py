"""The settings that every world model has; experiments inherit and add those of their world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, get_args

from nps.models.contrastive import Negatives
from nps.models.transitions import Kind, Selection
from nps.models.world_model import ActionEncoding
from nps.perception.extractors import Extractor, Maps
from nps.rules.check import require_choice, require_int, require_number
from nps.rules.config import MIN_TEMPERATURE, ContextGradient
from nps.training.config import TrainConfig

Statistics = Literal["running", "settled"]
SIZES = (
    "width", "slot_dim", "hidden_dim", "rules", "stages", "rule_dim", "key_dim", "rule_hidden_dim",
    "rule_layers",
)  # fmt: skip

Perception = Literal[Extractor, "slot-attention"]


@dataclass(frozen=True)
class WorldModelConfig(TrainConfig, ABC):
    """Encoder, transition and loss. Defaults are the paper's for blocks, and Ke et al.'s."""

    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 512
    """Transitions a step."""
    learning_rate: float = 5e-4
    """Adam's learning rate."""
    validate_every: int = 5
    """Epochs between validations."""
    extractor: Perception = "medium"
    """One of C-SWM's extractors, or the paper's four convolutions and slot attention."""
    width: int = 32
    """Channels of the convolutions (the paper's: 64)."""
    maps: Maps = "sigmoid"
    """What C-SWM's encoder is shown: the maps of its extractor, or how much each place differs from
    the mean of its map, so that slots that show their object light or dark are encoded alike."""
    slot_dim: int = 64
    """Size of a slot."""
    hidden_dim: int = 512
    """Width of C-SWM's encoder and of transitions that are not rules."""
    transition: Kind = "snps"
    """Sequential or parallel NPS, or what it is compared with."""
    action: ActionEncoding = "copied"
    """Is every slot told the action, or only the slot with the number of the object it moves; or
    that, and each slot its own number?"""
    selection: Selection = "per-slot"
    """How rules see slots; the authors' programs have a matrix for each slot position. With one
    rule, the paper's linear selection cannot see a copied action."""
    rules: int = 1
    """Number of rules N."""
    stages: int = 1
    """Rules applied one after the other in a step of the world."""
    rule_dim: int = 64
    """Size of a rule's embedding."""
    key_dim: int = 32
    """Size of queries and keys."""
    rule_hidden_dim: int = 128
    """Hidden units of a rule's MLP."""
    rule_layers: int = 1
    """Hidden layers of a rule's MLP (the paper's: 1)."""
    temperature: float = 1.0
    """Of the softmax that gives the choices of rules and contexts their gradient."""
    self_context: bool = True
    """May a slot be its own context?"""
    context_gradient: ContextGradient = "slot"
    """What the choice of a context learns from: the slot that a rule is shown (the paper's), or the
    update that the rule would make in each context."""
    context_dropout: float = 0.0
    """Probability that the score of a context is set to zero in training."""
    alone_until: float = 0.0
    """Share of the training in which rules see no context, and encoders no contrast, so that a slot
    first learns to show the object whose actions it is told."""
    null_handicap: float = 0.0
    """Taken off the null rule's bids in parallel NPS, so that rules are tried on every slot."""
    negatives: Negatives = "batch"
    """Shuffled batch; half of it other times of the same episode; or other episodes' same time."""
    hinge: float = 1.0
    """How far apart negatives are to be."""

    statistics: Statistics = "running"
    """What batch normalisation takes in evaluation: the running mean of batches (C-SWM), or what
    training images have with the very weights that are validated."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of slots M: a field, or another name for one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in SIZES:
            require_int(name, getattr(self, name), at_least=1)
        require_int("slots", self.slots, at_least=1)
        require_choice("extractor", self.extractor, get_args(Perception))
        require_choice("maps", self.maps, get_args(Maps))
        if self.maps != "sigmoid" and self.extractor == "slot-attention":
            raise ValueError(f"maps: got {self.maps!r}, but slot attention has none")
        require_choice("transition", self.transition, get_args(Kind))
        require_choice("action", self.action, get_args(ActionEncoding))
        require_choice("selection", self.selection, get_args(Selection))
        require_choice("negatives", self.negatives, get_args(Negatives))
        require_choice("context_gradient", self.context_gradient, get_args(ContextGradient))
        require_number("temperature", self.temperature, MIN_TEMPERATURE, 1e6, open_top=False)
        require_number("context_dropout", self.context_dropout, 0.0, 1.0, open_top=True)
        require_number("alone_until", self.alone_until, 0.0, 1.0, open_top=True)
        require_number("null_handicap", self.null_handicap, 0.0, 1e6, open_top=False)
        require_number("hinge", self.hinge, 0.0, 1e6, open_top=False)
        if self.transition == "attention" and self.hidden_dim % 4:
            raise ValueError(f"hidden_dim: got {self.hidden_dim}, expected a multiple of 4 heads")
        require_choice("statistics", self.statistics, get_args(Statistics))
