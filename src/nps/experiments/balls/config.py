"""The settings of bouncing balls (experiments/balls/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from nps.experiments.rule_settings import RuleSettings
from nps.models.scoff import Kind, SelectBy
from nps.perception.frames import STRIDES
from nps.perception.places import EXTENT, PLACE
from nps.rules import RuleConfig
from nps.rules.check import require_choice, require_int, require_number, require_type
from nps.rules.config import ContextGradient, Query

Model = Literal["scoff", "scoff++"]
RADIUS = 0.2
"""Of a light ball, where half of the box is 1."""
BALLS, TRANSFER_BALLS = (4, 4), (6, 8)
"""Fewest and most balls, while training and in the first test; and in the test of transfer."""


@dataclass(frozen=True)
class Config(RuleSettings):
    """Bouncing balls. The paper gives the number of rules, the sizes of a rule and its keys, and
    the numbers of balls and colours; the other defaults are ours."""

    epochs: int = 8
    """Passes over the training set (5,000 steps)."""
    batch_size: int = 64
    """Clips per step (the paper's: 8)."""
    learning_rate: float = 1e-3
    """Adam's learning rate at the start."""
    final_learning_rate: float | None = 1e-6
    """Learning rate at the end of a cosine schedule; none keeps it constant."""
    warmup_steps: int = 200
    """Steps over which the learning rate rises linearly from zero."""
    clip_norm: float | None = 1.0
    """Clip the norm of the gradient to this; none does not clip."""
    validate_every: int = 2
    """Epochs between validations; the best model is chosen there."""
    model: Model = "scoff++"
    """How slots read a frame: SCOFF's attention and schemata, or SCOFF++'s slot attention."""
    interaction: Kind = "snps"
    """What takes place between slots: attention (SCOFF, SCOFF++), sequential or parallel NPS in its
    place, a GNN, or nothing."""
    slots: int = 5
    """Number of slots while training, and in the test with 4 balls."""
    transfer_slots: int = 9
    """Number of slots in the test with 6 to 8 balls."""
    slot_dim: int = 64
    """Size of a slot."""
    width: int = 64
    """Channels of encoder and decoder."""
    hidden_dim: int = 128
    """Hidden units of the network that moves a slot, and of the GNN."""
    first_iterations: int = 3
    """Rounds of slot attention on the first frame."""
    iterations: int = 1
    """Rounds of slot attention on later frames."""
    schemata: int = 4
    """Schemata of SCOFF; SCOFF++ has one."""
    background: bool = True
    """Whether the background is a component of the picture, besides the slots; without it there is
    no penalty on area either."""
    places: bool = True
    """Whether a slot has a place, around which it looks and is drawn. SCOFF's have none."""
    extent: float = EXTENT
    """Of slots with a place, about the radius of an object; half of the box is 1."""
    radius: float = RADIUS
    """Of slots with a place, the unit in which they move and interact; half of the box is 1."""
    presence: bool = True
    """Whether only slots that see something interact. Slots without a place always do."""
    disagreement: float = 0.5
    """Weight of a penalty on components that draw the same pixel in different colours."""
    area: float = 0.007
    """Weight of a penalty on the square root of each slot's share of the pixels, from 20 % of
    training on: an object costs less in one slot than in two."""
    feature_stride: int = 4
    """Pixels from one feature of a frame to the next: 4 or 2."""
    rules: int = 10
    rule_dim: int = 32
    stages: int = 3
    """Stages K: rules applied in sequence per frame."""
    rule_hidden_dim: int = RuleConfig.hidden_dim
    """Hidden units of a rule's MLP."""
    hidden_layers: int = RuleConfig.hidden_layers
    """Hidden layers of a rule's MLP: two where one rule has to tell whether two balls touch."""
    zero_start: bool = True
    """Whether the output layers of what takes place between slots start at zero."""
    query: Query = RuleConfig.query
    """Queries of rule selection: the paper's matrix, or a small network."""
    context_query: Query | None = RuleConfig.context_query
    """Queries and keys of context selection; none: as those of rules."""
    context_gradient: ContextGradient = RuleConfig.context_gradient
    """What the choice of a context learns from: the chosen slot, or the update in each context."""
    context_dropout: float = RuleConfig.context_dropout
    """Probability that the score of a context is set to zero in training."""
    select_by: SelectBy = "slot"
    """What rules and contexts are chosen by: the whole slot, or its place and velocity alone."""
    gate: bool = False
    """Whether a rule that was chosen has to beat the null rule: of sequential NPS by its score, of
    parallel NPS by that and its context's."""
    null_handicap: float = RuleConfig.null_handicap
    """Subtracted from the null rule's bids in parallel NPS."""
    settle_from: float | None = None
    """Fraction of training after which choices have no noise; none: never."""
    interact_from: float = 0.0
    """Fraction of training after which slots interact; before it, each moves by itself."""
    size: int = 64
    """Side of the frames in pixels."""
    frames: int = 8
    """Frames that a clip predicts; it has one more."""
    first_frames: int = 4
    """Frames that a clip predicts in the first part of training, if that is less."""
    all_frames_from: float = 0.6
    """Fraction of training after which clips have all their frames."""
    firing_price: float = 0.0
    """Of gated parallel NPS, the price of a rule that fires, from 40 % of training on."""
    curtain: bool = False
    """Whether a black square hides a part of the box."""
    train_scenes: int = 20_000
    """Training scenes."""
    scene_frames: int = 18
    """Frames of a training scene, which is cut into clips."""
    validation_scenes: int = 200
    """Validation scenes, on which the best model is chosen."""
    test_scenes: int = 500
    """Test scenes with 4 balls, and as many with 6 to 8."""
    seen_frames: int = 10
    """Frames of a test scene that are seen. After each but the first, the next one is predicted."""
    rollout_frames: int = 20
    """Frames after those, predicted without input."""
    data_seed: int = 1
    """Seed of the scenes; runs with different seeds share them."""

    flag_names: ClassVar[dict[str, str]] = RuleSettings.flag_names | {
        "hidden_dim": "rule_hidden_dim"
    }

    @property
    def placed(self) -> bool:
        """Whether slots have a place."""
        return self.places and self.model == "scoff++"

    @property
    def clips(self) -> int:
        """Clips of a training scene."""
        return self.scene_frames // (self.frames + 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("model", self.model, get_args(Model))
        require_choice("interaction", self.interaction, get_args(Kind))
        require_choice("select_by", self.select_by, get_args(SelectBy))
        if self.select_by == "motion" and not self.placed:
            raise ValueError("select_by: got motion, expected slot: these slots have no place")
        for name in (
            *("slots", "transfer_slots", "slot_dim", "hidden_dim", "first_iterations"),
            *("iterations", "schemata", "frames", "first_frames", "train_scenes"),
            *("validation_scenes", "test_scenes"),
        ):
            require_int(name, getattr(self, name), at_least=1)
        require_int("seen_frames", self.seen_frames, at_least=2)
        require_int("width", self.width, at_least=2)
        require_int("rollout_frames", self.rollout_frames, at_least=0)
        require_int("scene_frames", self.scene_frames, at_least=self.frames + 1)
        if self.size not in (16, 32, 64, 128):
            raise ValueError(f"size: got {self.size}, expected 16, 32, 64 or 128")
        if self.feature_stride not in STRIDES:
            raise ValueError(f"feature_stride: got {self.feature_stride}, expected 2 or 4")
        if self.interaction == "attention" and self.slot_dim % 4:
            raise ValueError(f"slot_dim: got {self.slot_dim}, expected a multiple of 4 heads")
        for name in ("disagreement", "area", "firing_price"):
            require_number(name, getattr(self, name), 0.0, 1e3, open_top=False)
        for name in ("extent", "radius"):
            require_number(name, getattr(self, name), 0.01, 2.0, open_top=False)
        if self.placed:
            require_int("slot_dim", self.slot_dim, at_least=2 * PLACE + 1)
        for name in ("background", "places", "presence", "curtain", "gate"):
            require_type(name, getattr(self, name), bool, "True or False")
        if self.select_by == "motion" and self.interaction not in ("snps", "pnps"):
            raise ValueError(
                f"select_by: got motion with {self.interaction}, expected snps or pnps"
            )
        if self.interact_from and not self.zero_start:
            # The best model may be one of the time before, tested with a random interaction.
            raise ValueError(
                f"interact_from: got {self.interact_from:g}, expected 0 without zero_start"
            )
        if self.gate and self.interaction not in ("snps", "pnps"):
            raise ValueError(f"gate: got True with {self.interaction}, expected snps or pnps")
        if self.firing_price and not (self.gate and self.interaction == "pnps"):
            raise ValueError(
                f"firing_price: got {self.firing_price:g}, expected 0 without pnps and gate"
            )
        if self.settle_from is not None:
            require_number("settle_from", self.settle_from, 0.0, 1.0, open_top=False)
        for name in ("interact_from", "all_frames_from"):
            require_number(name, getattr(self, name), 0.0, 1.0, open_top=True)
