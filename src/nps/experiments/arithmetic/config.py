"""The settings of coordinate arithmetic (experiments/arithmetic/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nps.experiments.objective import ObjectiveSettings
from nps.rules import RuleConfig
from nps.rules.check import require_choice, require_int, require_number
from nps.rules.config import Query


@dataclass(frozen=True)
class Config(ObjectiveSettings):
    """Coordinate arithmetic. Defaults are the paper's."""

    epochs: int = 300
    """Passes over the training set."""
    batch_size: int = 64
    """Examples per step."""
    learning_rate: float = 1e-4
    """Adam's learning rate."""
    model: Literal["nps", "routing"] = "nps"
    """What selects: NPS, or a routing MLP (the paper's baseline)."""
    rules: int = 4
    rule_dim: int = 12
    hidden_dim: int = 16
    """Hidden units of a rule's MLP."""
    reading: Literal["any", "other"] = "any"
    """The contextual point: any of the two (possibly the primary itself), or the other one."""
    dropout: float = 0.35
    """Probability that a selection score is set to zero in training."""
    dropout_until: float | None = None
    """Fraction of training over which dropout falls linearly to zero; none keeps it constant."""
    score_gain: float = 3.0
    """Factor on the initial W^q, so that the first scores stand out from the noise."""
    balance: float = 0.0
    """Weight of the entropy bonus on the mean use of the rules; it keeps all of them in use."""
    settle_from: float | None = None
    """Fraction of training after which selection has no noise and no dropout."""
    query: Query = RuleConfig.query
    """Queries of rule selection: the paper's matrix, or a small network."""
    context_query: Query = "linear"
    """Queries and keys of context selection: a matrix, or a small network."""
    router_noise: bool = False
    """Gumbel noise in the routing MLP; without it, it takes the argmax, as a Switch does."""
    train_examples: int = 10_000
    """Size of the training set."""
    validation_examples: int = 2_000
    """Size of the validation set, on which the best model is chosen."""
    test_examples: int = 2_000
    """Size of the test set."""
    data_seed: int = 0
    """Seed of the three sets; runs with different seeds share them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("train_examples", "validation_examples", "test_examples"):
            require_int(name, getattr(self, name), at_least=1)
        if self.batch_size > self.train_examples:
            raise ValueError(
                f"batch_size: got {self.batch_size}, expected at most the {self.train_examples} "
                "training examples"
            )
        if self.dropout_until is not None:
            require_number("dropout_until", self.dropout_until, 0.01, 1.0, open_top=False)
        if self.settle_from is not None:
            require_number("settle_from", self.settle_from, 0.0, 1.0, open_top=False)
        require_number("balance", self.balance, 0.0, 1e3, open_top=False)
        require_number("score_gain", self.score_gain, 0.0, 1e3, open_top=False)
        require_choice("model", self.model, ("nps", "routing"))
        if self.objective == "free-energy" and self.model == "routing":
            raise ValueError("objective: free-energy is not supported by model=routing")
        require_choice("reading", self.reading, ("any", "other"))
