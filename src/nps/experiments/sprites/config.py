"""The settings of Sprites-MOT (experiments/sprites/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from nps.experiments.rule_settings import RuleSettings
from nps.models import op3, scoff
from nps.perception.frames import STRIDES
from nps.perception.places import PLACE
from nps.perception.refinement import KERNEL
from nps.rules import RuleConfig
from nps.rules.check import require_choice, require_int, require_number, require_type
from nps.rules.config import ContextGradient, Query

Model = Literal["op3", "tracker"]
Interaction = Literal["op3", "snps", "pnps", "attention", "gnn", "none"]
INTERACTIONS = {"op3": get_args(op3.Kind), "tracker": get_args(scoff.Kind)}
"""What may take place between the slots of each model."""
EXTENT = 0.17
"""About the radius of a sprite, where half of the picture is 1."""


@dataclass(frozen=True)
class Config(RuleSettings):
    """Sprites-MOT. Sizes, loss and videos of OP3 are the benchmark's; the paper gives the number of
    rules, of stages and the size of embeddings. The schedule is ours: the benchmark trains for 300
    epochs."""

    epochs: int = 12
    """Passes over the training set (14,400 steps; the benchmark: 360,000)."""
    batch_size: int = 16
    """Clips per step."""
    learning_rate: float = 3e-4
    """Adam's learning rate at the start (the benchmark: 1e-4 throughout)."""
    final_learning_rate: float | None = 1e-6
    """Learning rate at the end of a cosine schedule; none keeps it constant."""
    warmup_steps: int = 500
    """Steps over which the learning rate rises linearly from zero."""
    clip_norm: float | None = 5.0
    """Clip the norm of the gradient to this; none does not clip."""
    validate_every: int = 2
    """Epochs between validations; the best model is chosen there."""
    model: Model = "op3"
    """Slots by iterative refinement (OP3), or the slot attention of bouncing balls (tracker)."""
    interaction: Interaction = "snps"
    """What takes place between slots: sequential or parallel NPS, nothing; in OP3 also its own
    effects, in the tracker attention or a GNN."""
    slots: int = 5
    """Number of slots."""
    latent_dim: int = 64
    """Size of each half of a slot."""
    channels: int = 32
    """Channels of the convolutions."""
    memory_dim: int = 128
    """Size of the state of the refinement's LSTM; of the tracker, hidden units of the network that
    moves a slot, and of the GNN."""
    beta: float = 1e-2
    """Weight of the divergence of a latent from what was expected."""
    first_refinements: int = 4
    """Refinements on the first frame of a clip; of the tracker, rounds of slot attention."""
    refinements: int = 2
    """Refinements, or rounds, on each later frame."""
    extent: float = EXTENT
    """Of the tracker, about the radius of a sprite; half of the picture is 1."""
    feature_stride: int = 4
    """Of the tracker, pixels from one feature of a frame to the next: 4 or 2."""
    expectation: float = 1.0
    """Of the tracker, weight of the error of the next frame; that of the frame seen has 1."""
    disagreement: float = 0.5
    """Of the tracker, weight of a penalty on components that draw a pixel in different colours."""
    area: float = 0.01
    """Of the tracker, weight of a penalty on the square root of each slot's share of the pixels, in
    full from 40 % of training on: an object costs less in one slot than in two."""
    rules: int = 10
    stages: int = 3
    """Stages K: rules applied in sequence per frame."""
    rule_hidden_dim: int = RuleConfig.hidden_dim
    """Hidden units of a rule's MLP."""
    zero_start: bool = RuleConfig.zero_start
    """Whether the rules' output layers start at zero."""
    query: Query = RuleConfig.query
    """Queries of rule selection: the paper's matrix, or a small network."""
    context_gradient: ContextGradient = RuleConfig.context_gradient
    """What the choice of a context learns from: the chosen slot, or the update in each context."""
    null_handicap: float = RuleConfig.null_handicap
    """Subtracted from the null rule's bids in parallel NPS."""
    settle_from: float | None = None
    """Fraction of training after which choices have no noise; none: never."""
    size: int = 64
    """Side of the frames in pixels."""
    frames: int = 5
    """Frames of a clip; a video is cut into clips."""
    video_frames: int = 10
    """Frames of a video."""
    bounce: bool = False
    """Whether sprites bounce off one another; those of the benchmark never do."""
    train_videos: int = 9_600
    """Training videos."""
    validation_videos: int = 100
    """Validation videos, on which the best model is chosen."""
    test_videos: int = 1_000
    """Test videos."""
    data_seed: int = 0
    """Seed of the videos; runs with different seeds share them."""

    flag_names: ClassVar[dict[str, str]] = RuleSettings.flag_names | {
        "hidden_dim": "rule_hidden_dim"
    }

    @property
    def segments(self) -> int:
        """Components of a picture: the slots, and the tracker's background."""
        return self.slots + (self.model == "tracker")

    @property
    def clips(self) -> int:
        """Clips of a video."""
        return self.video_frames // self.frames

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("model", self.model, get_args(Model))
        require_choice("interaction", self.interaction, INTERACTIONS[self.model])
        for name in (
            *("slots", "latent_dim", "channels", "memory_dim", "first_refinements", "refinements"),
            *("train_videos", "validation_videos", "test_videos"),
        ):
            require_int(name, getattr(self, name), at_least=1)
        if self.model == "tracker":
            self._check_tracker()
        require_int("size", self.size, at_least=KERNEL)
        require_int("video_frames", self.video_frames, at_least=4)
        require_int("frames", self.frames, at_least=2, at_most=self.video_frames)
        require_number("beta", self.beta, 0.0, 1e3, open_top=False)
        require_type("bounce", self.bounce, bool, "True or False")
        require_int("data_seed", self.data_seed, at_least=0)
        if self.settle_from is not None:
            require_number("settle_from", self.settle_from, 0.0, 1.0, open_top=False)
        require_number("extent", self.extent, 0.01, 2.0, open_top=False)
        for name in ("expectation", "disagreement", "area"):
            require_number(name, getattr(self, name), 0.0, 1e3, open_top=False)

    def _check_tracker(self) -> None:
        if self.feature_stride not in STRIDES:
            raise ValueError(f"feature_stride: got {self.feature_stride}, expected 2 or 4")
        if self.size % self.feature_stride:
            stride = self.feature_stride
            raise ValueError(f"size: got {self.size}, expected a multiple of stride = {stride}")
        require_int("channels", self.channels, at_least=2)
        require_int("latent_dim", self.latent_dim, at_least=PLACE + 1)
        if self.interaction == "attention" and self.latent_dim % 2:
            raise ValueError(f"latent_dim: got {self.latent_dim}, expected an even number: 4 heads")
