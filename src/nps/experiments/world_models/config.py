"""Settings of all world models; the experiments inherit them and add those of their world."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from nps.experiments.objective import ObjectiveSettings
from nps.models.contrastive import Negatives
from nps.models.transitions import Kind
from nps.models.world_model import ActionEncoding
from nps.perception.extractors import Extractor, Maps
from nps.rules import RuleConfig
from nps.rules.check import require_choice, require_int, require_number
from nps.rules.config import ContextGradient

Statistics = Literal["running", "settled"]
HORIZONS = (1, 5, 10)
"""Numbers of steps after which predictions are ranked, as in C-SWM."""
ENOUGH = 30
"""Roll-outs from which a verdict is given."""
MOST_STAGES = 1_000
Selection = Literal["linear", "mlp", "per-slot"]
Perception = Literal[Extractor, "slot-attention"]


@dataclass(frozen=True)
class WorldModelConfig(ObjectiveSettings, ABC):
    """Encoder, transition and loss. Defaults are the paper's for blocks, and Ke et al.'s."""

    flags_title: ClassVar[str] = "World model"

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
    """Sequential or parallel NPS; adaptive NPS, which is parallel and decides how many slots fire;
    or a baseline."""
    action: ActionEncoding = "copied"
    """Copied: every slot gets the action. Factored: only the slot with the index of the object that
    moves. Numbered: factored, and each slot also gets its own index."""
    selection: Selection = "per-slot"
    """How selection sees the slots; the authors' programs have a matrix per slot position. With one
    rule, the paper's linear selection cannot see a copied action."""
    stages: int = RuleConfig.stages
    """Stages K: rules applied in sequence per step of the world."""
    rule_hidden_dim: int = RuleConfig.hidden_dim
    """Hidden units of a rule's MLP."""
    rule_layers: int = RuleConfig.hidden_layers
    """Hidden layers of a rule's MLP (the paper's: 1)."""
    context_gradient: ContextGradient = RuleConfig.context_gradient
    """What context selection learns from: the contextual slot that the rule reads (the paper's), or
    the update that the rule would make with each context."""
    context_dropout: float = RuleConfig.context_dropout
    """Probability that the score of a context is set to zero in training."""
    context_from: float = 0.0
    """Fraction of training after which rules see their contexts, and encoders the contrast of maps;
    before it, a slot learns to show the object whose actions it gets."""
    null_handicap: float = RuleConfig.null_handicap
    """Subtracted from the null rule's scores in parallel NPS, so that rules get tried."""
    most: int | None = RuleConfig.most
    """How many slots adaptive NPS lets fire in a stage; none: no limit."""
    firing_price: float = 0.01
    """By how much an update has to lower the loss for adaptive NPS to let it fire."""
    negatives: Negatives = "batch"
    """Source of negatives: the shuffled batch; for half of it, other times of the same episode; or
    the same time of other episodes."""
    hinge: float = 1.0
    """Distance that negatives should have at least."""
    statistics: Statistics = "running"
    """Batch normalisation statistics in evaluation: running means (C-SWM), or the statistics of
    training images under the parameters that are evaluated."""
    separate_encoding: bool = False
    """Encode the states before the actions and those after them in two calls, as C-SWM does: batch
    normalisation then takes each for a batch, and updates its running statistics twice a step."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of slots M: a field of the subclass, or derived from one."""

    flag_names: ClassVar[dict[str, str]] = ObjectiveSettings.flag_names | {
        "hidden_dim": "rule_hidden_dim",
        "hidden_layers": "rule_layers",
    }

    @property
    def rule_config(self) -> RuleConfig:
        return replace(super().rule_config, query="mlp" if self.selection == "mlp" else "linear")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "slot_dim", "hidden_dim"):
            require_int(name, getattr(self, name), at_least=1)
        require_int("slots", self.slots, at_least=1)
        require_int("stages", self.stages, at_least=1, at_most=MOST_STAGES)
        require_choice("extractor", self.extractor, get_args(Perception))
        require_choice("maps", self.maps, get_args(Maps))
        if self.maps != "sigmoid" and self.extractor == "slot-attention":
            raise ValueError(f"maps: got {self.maps!r}, which slot attention does not support")
        require_choice("transition", self.transition, get_args(Kind))
        require_choice("action", self.action, get_args(ActionEncoding))
        require_choice("selection", self.selection, get_args(Selection))
        require_choice("negatives", self.negatives, get_args(Negatives))
        require_number("context_from", self.context_from, 0.0, 1.0, open_top=True)
        require_number("hinge", self.hinge, 0.0, 1e6, open_top=False)
        require_number("firing_price", self.firing_price, -1e6, 1e6, open_top=False)
        if self.transition == "anps" and self.stages != 1:
            raise ValueError(f"stages: got {self.stages}, expected 1 with transition=anps")
        if self.transition == "attention" and self.hidden_dim % 4:
            raise ValueError(f"hidden_dim: got {self.hidden_dim}, expected a multiple of 4 heads")
        require_choice("statistics", self.statistics, get_args(Statistics))
        if self.objective == "free-energy":
            if self.transition not in ("snps", "pnps"):
                raise ValueError(
                    f"transition: got {self.transition!r}, expected snps or pnps with "
                    "objective=free-energy"
                )
            if self.stages != 1:
                raise ValueError(
                    f"stages: got {self.stages}, expected 1 with objective=free-energy"
                )
