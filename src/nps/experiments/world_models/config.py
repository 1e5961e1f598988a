"""Settings of all world models; the experiments inherit them and add those of their world."""

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
    """Transitions per step."""
    learning_rate: float = 5e-4
    """Adam's learning rate."""
    validate_every: int = 5
    """Epochs between validations."""
    extractor: Perception = "medium"
    """The encoder: one of C-SWM's extractors, or the paper's convolutions and slot attention."""
    width: int = 32
    """Channels of the convolutions (the paper's: 64)."""
    maps: Maps = "sigmoid"
    """Input of C-SWM's encoder: the extractor's maps, or the difference of each pixel to its map's
    mean, so that a slot is encoded alike whether its object is light or dark in the map."""
    slot_dim: int = 64
    """Size of a slot."""
    hidden_dim: int = 512
    """Width of C-SWM's encoder, and of transitions without rules."""
    transition: Kind = "snps"
    """Sequential or parallel NPS, or a baseline."""
    action: ActionEncoding = "copied"
    """Copied: every slot gets the action. Factored: only the slot with the index of the object that
    moves. Numbered: factored, and each slot also gets its own index."""
    selection: Selection = "per-slot"
    """How selection sees the slots; the authors' programs have a matrix per slot position. With one
    rule, the paper's linear selection cannot see a copied action."""
    rules: int = 1
    """Number of rules N."""
    stages: int = 1
    """Stages K: rules applied in sequence per step of the world."""
    rule_dim: int = 64
    """Size of a rule's embedding."""
    key_dim: int = 32
    """Size of queries and keys."""
    rule_hidden_dim: int = 128
    """Hidden units of a rule's MLP."""
    rule_layers: int = 1
    """Hidden layers of a rule's MLP (the paper's: 1)."""
    temperature: float = 1.0
    """Temperature of the straight-through softmax."""
    self_context: bool = True
    """Whether a slot may be its own context."""
    context_gradient: ContextGradient = "slot"
    """What context selection learns from: the contextual slot that the rule reads (the paper's), or
    the update that the rule would make with each context."""
    context_dropout: float = 0.0
    """Probability that the score of a context is set to zero in training."""
    alone_until: float = 0.0
    """Fraction of training without contexts for rules and without contrast for encoders, so that a
    slot first learns to show the object whose actions it gets."""
    null_handicap: float = 0.0
    """Subtracted from the null rule's scores in parallel NPS, so that rules get tried."""
    negatives: Negatives = "batch"
    """Source of negatives: the shuffled batch; for half of it, other times of the same episode; or
    the same time of other episodes."""
    hinge: float = 1.0
    """Distance that negatives should have at least."""
    statistics: Statistics = "running"
    """Batch normalisation statistics in evaluation: running means (C-SWM), or the statistics of
    training images under the parameters that are evaluated."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of slots M: a field of the subclass, or derived from one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in SIZES:
            require_int(name, getattr(self, name), at_least=1)
        require_int("slots", self.slots, at_least=1)
        require_choice("extractor", self.extractor, get_args(Perception))
        require_choice("maps", self.maps, get_args(Maps))
        if self.maps != "sigmoid" and self.extractor == "slot-attention":
            raise ValueError(f"maps: got {self.maps!r}, which slot attention does not support")
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
