"""The settings of MNIST transformation (experiments/mnist/)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, Self, get_args

from nps.experiments.objective import ObjectiveSettings
from nps.rules import RuleConfig
from nps.rules.check import require_choice, require_int, require_number
from nps.worlds.mnist import World

Model = Literal["nps", "authors", "mlp"]


@dataclass(frozen=True)
class Config(ObjectiveSettings):
    """MNIST transformation. Defaults are the paper's, or else its published program's."""

    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 50
    """Digits per step, each with one pair of images, or with whole_chains all of its chain."""
    learning_rate: float = 1e-4
    """Adam's learning rate."""
    validate_every: int = 20
    """Epochs between validations."""
    clip_norm: float | None = 1.0
    """Clip the norm of the gradient to this; none does not clip."""
    world: World = "mnist"
    """MNIST, or scikit-learn's small digits, which need no download."""
    model: Model = "nps"
    """What transforms the image: NPS, NPS as the authors' program executes it, or one MLP that gets
    the operation as input."""
    rules: int = 4
    rule_dim: int = 6
    hidden_dim: int = RuleConfig.hidden_dim
    """Hidden units of a rule's MLP; the single MLP has as many as all rules together."""
    slot_dim: int = 100
    """Size of a slot."""
    dropout: float = RuleConfig.dropout
    """Probability, at the start of training, that a selection score is set to zero."""
    score_gain: float = 1.0
    """Factor on the initial W^q of rule selection."""
    self_context: bool = RuleConfig.self_context
    """Whether the slot that selects the rule may also be the one it is applied to."""
    image_selects: bool = True
    """Whether the image slot may select the rule too; the appendix intends the operation slot."""
    balance: float = 0.0
    """Weight of the entropy bonus on the mean use of the rules; it keeps all of them in use."""
    explore_until: float = 0.1
    """Fraction of training over which dropout and entropy bonus fall linearly to zero."""
    depth: int = 4
    """Operations in a chain; a training pair is one of them, after up to depth - 1 others."""
    whole_chains: bool = False
    """Train on all pairs of each digit's chain, as the published program does, not on one of them;
    batch_size x depth pairs a step."""
    rotation: float = 60.0
    """Angle of a rotation in degrees."""
    shift: float = 0.2
    """Distance of a translation, as a fraction of the image size."""
    flip: bool = False
    """Add a fifth operation, with an embedding and a rule of its own, to a trained model."""
    start_from: str | None = None
    """Folder of finished runs (with seed-<s> in it) to start from; their parameters are frozen, and
    only those of the fifth operation are trained."""
    train_examples: int | None = None
    """Number of training digits to use; none uses all."""
    validation_examples: int | None = None
    """Training digits held out to choose the best model; none: a twelfth (5,000 of MNIST)."""
    test_examples: int | None = None
    """Number of test digits to use; none uses all."""
    data_seed: int = 0
    """Seed of the operations in validation and test; runs with different seeds share them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("slot_dim", "depth"):
            require_int(name, getattr(self, name), at_least=1)
        for name in ("train_examples", "validation_examples", "test_examples"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), at_least=1)
        require_number("balance", self.balance, 0.0, 1e3, open_top=False)
        require_number("explore_until", self.explore_until, 0.001, 1.0, open_top=False)
        require_number("score_gain", self.score_gain, 0.0, 1e3, open_top=False)
        require_number("rotation", self.rotation, -360.0, 360.0, open_top=False)
        require_number("shift", self.shift, 0.0, 1.0, open_top=False)
        require_choice("model", self.model, get_args(Model))
        require_choice("world", self.world, get_args(World))
        if self.start_from is not None and not self.start_from.strip():
            raise ValueError("start_from: got an empty path, expected a folder of runs")
        if self.start_from is not None and not self.flip:
            raise ValueError("start_from requires flip=True (--flip)")
        for name in ONLY_NPS:
            if self.model != "nps" and getattr(self, name) != getattr(Config, name):
                raise ValueError(f"{name} requires model nps, got {self.model}")

    def trained(self) -> Self:
        return dataclasses.replace(self, start_from=None)


ONLY_NPS = (
    *("balance", "dropout", "flip", "image_selects", "objective", "score_gain", "self_context"),
)
"""Fields that the other models have no counterpart of."""
BUILD = (
    "model",
    "rules",
    "rule_dim",
    "key_dim",
    "hidden_dim",
    "slot_dim",
    "self_context",
    "image_selects",
    "rotation",
    "shift",
)
"""Fields that define the model; a run and the one it starts from must agree in them."""
