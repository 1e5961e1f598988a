"""The settings of Sprites-MOT (experiments/sprites/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

from nps.experiments.rule_settings import RuleSettings
from nps.models.op3 import Kind
from nps.perception.refinement import KERNEL
from nps.rules import RuleConfig
from nps.rules.check import require_choice, require_int, require_number, require_type
from nps.rules.config import ContextGradient, Query


@dataclass(frozen=True)
class Config(RuleSettings):
    """Sprites-MOT. Sizes, loss and videos are the benchmark's; the paper gives the number of rules,
    of stages and the size of embeddings. The schedule is ours: the benchmark trains for 300
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
    interaction: Kind = "snps"
    """What takes place between slots: OP3's effects, sequential or parallel NPS in their place, or
    nothing."""
    slots: int = 5
    """Number of slots."""
    latent_dim: int = 64
    """Size of each half of a slot."""
    channels: int = 32
    """Channels of the convolutions."""
    memory_dim: int = 128
    """Size of the state of the refinement's LSTM."""
    beta: float = 1e-2
    """Weight of the divergence of a latent from what was expected."""
    first_refinements: int = 4
    """Refinements on the first frame of a clip."""
    refinements: int = 2
    """Refinements on each later frame."""
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
    def clips(self) -> int:
        """Clips of a video."""
        return self.video_frames // self.frames

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("interaction", self.interaction, get_args(Kind))
        for name in (
            *("slots", "latent_dim", "channels", "memory_dim", "first_refinements", "refinements"),
            *("train_videos", "validation_videos", "test_videos"),
        ):
            require_int(name, getattr(self, name), at_least=1)
        require_int("size", self.size, at_least=KERNEL)
        require_int("video_frames", self.video_frames, at_least=4)
        require_int("frames", self.frames, at_least=2, at_most=self.video_frames)
        require_number("beta", self.beta, 0.0, 1e3, open_top=False)
        require_type("bounce", self.bounce, bool, "True or False")
        require_int("data_seed", self.data_seed, at_least=0)
        if self.settle_from is not None:
            require_number("settle_from", self.settle_from, 0.0, 1.0, open_top=False)
