"""The settings of falling towers (experiments/stacks/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

from nps.experiments.rule_settings import RuleSettings
from nps.models.rpin import Kind, SelectBy
from nps.rules import RuleConfig
from nps.rules.check import require_choice, require_int, require_number, require_type
from nps.rules.config import ContextGradient, Query
from nps.worlds.stacks.making import Settings
from nps.worlds.stacks.physics import FRAMES


@dataclass(frozen=True)
class Config(RuleSettings):
    """Falling towers. Sizes and schedule are RPIN's. The paper gives the number of rules, the sizes
    of embeddings and keys, and that rules are convolutions."""

    epochs: int = 758
    """Passes over the training set (50,028 steps; RPIN: 50,000)."""
    batch_size: int = 20
    """Episodes per step."""
    learning_rate: float = 2e-4
    """Adam's learning rate at the start."""
    final_learning_rate: float | None = 1e-7
    """Learning rate at the end of a cosine schedule; none keeps it constant."""
    warmup_steps: int = 2_000
    """Steps over which the learning rate rises linearly from zero."""
    validate_every: int = 76
    """Epochs between validations; the best model is chosen there."""
    interaction: Kind = "pnps"
    """What takes place between shapes: RPIN's network, parallel or sequential NPS in its place, or
    nothing."""
    width: int = 256
    """Channels of features and slots."""
    rules: int = 2
    stages: int = 1
    """Stages K: rules applied in sequence per frame."""
    rule_hidden_dim: int = RuleConfig.hidden_dim
    """Channels within a rule."""
    kernel_size: int | None = 3
    """Kernel size of a rule's convolutions."""
    zero_start: bool = True
    """Whether the rules' output layers start at zero."""
    query: Query = RuleConfig.query
    """Queries of rule selection: the paper's matrix, or a small network."""
    context_gradient: ContextGradient = RuleConfig.context_gradient
    """What the choice of a context learns from: the chosen slot, or the update in each context."""
    null_handicap: float = RuleConfig.null_handicap
    """Subtracted from the null rule's bids in parallel NPS."""
    select_by: SelectBy = "pooled"
    """What of a feature map rules and contexts are chosen by: its mean, or all of its numbers."""
    coordinates: bool = False
    """Whether slots are told where they are in the picture; RPIN's are not."""
    residual: bool = False
    """Whether slots are added to from frame to frame; RPIN's are replaced."""
    settle_from: float | None = None
    """Fraction of training after which choices have no noise; none: never."""
    pixels: int = 224
    """Side of the pictures."""
    frames: int = 15
    """Frames that training predicts; the one after the last is shown to the latent."""
    test_frames: int = 30
    """Frames that a test predicts: as many as in training, and then more."""
    samples: int = 100
    """Latents that a test draws for each episode: the best of 10, of all, and the mean count."""
    mask_weight: float = 1e-3
    """Weight of the masks in the loss."""
    divergence_weight: float = 3e-5
    """Weight of the latent's divergence from the normal distribution."""
    divergence_start: float | None = None
    """That weight at the start of training, from where it falls by halfway; none: the same all the
    time. A latent that is dear at first leaves it to the picture to tell what it can."""
    as_released: bool = False
    """Restore two slips of RPIN's program: the last picture is not mirrored with the first, and the
    masks of later frames are not discounted."""
    episodes: int = Settings.train
    """Training episodes, of 1,320."""
    views: int = 1
    """Sides that each training episode is seen from; the original has one."""
    validation_episodes: int = Settings.validation
    """Validation episodes, of 200."""
    test_episodes: int = Settings.test
    """Test episodes, of 296, and as many of towers of four shapes."""
    data_seed: int = Settings.seed
    """Seed of the towers; runs with different seeds share them."""

    flag_names: ClassVar[dict[str, str]] = RuleSettings.flag_names | {
        "hidden_dim": "rule_hidden_dim"
    }

    @property
    def settings(self) -> Settings:
        """Of the file of episodes."""
        return Settings(seed=self.data_seed)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("interaction", self.interaction, get_args(Kind))
        require_choice("select_by", self.select_by, get_args(SelectBy))
        require_int("width", self.width, at_least=8)
        require_int("pixels", self.pixels, at_least=32)
        if self.pixels % 4:
            raise ValueError(f"pixels: got {self.pixels}, expected a multiple of 4")
        require_int("frames", self.frames, at_least=1, at_most=FRAMES - 1)
        require_int("test_frames", self.test_frames, at_least=self.frames + 1, at_most=FRAMES - 1)
        require_int("samples", self.samples, at_least=1)
        require_int("views", self.views, at_least=1, at_most=64)
        require_int("data_seed", self.data_seed, at_least=0)
        if self.kernel_size is None:
            raise ValueError("kernel_size: got none, expected a number: slots are feature maps")
        limits = {"episodes": "train", "validation_episodes": "validation", "test_episodes": "test"}
        for name, split in limits.items():
            require_int(name, getattr(self, name), at_least=1, at_most=getattr(Settings, split))
        for name in ("mask_weight", "divergence_weight"):
            require_number(name, getattr(self, name), 0.0, 1e3, open_top=False)
        for name in ("as_released", "coordinates", "residual"):
            require_type(name, getattr(self, name), bool, "True or False")
        if self.divergence_start is not None:
            start, end = self.divergence_start, self.divergence_weight
            require_number("divergence_start", start, 0.0, 1e3, open_top=False)
            if min(start, end) == 0:
                raise ValueError("divergence_start: got weights of 0, expected more at both ends")
        if self.settle_from is not None:
            require_number("settle_from", self.settle_from, 0.0, 1.0, open_top=False)
