"""Train OP3 or the tracker on videos of sprites, and score how they track them.

Videos are simulated once; a step draws its clips, so nothing but states is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.errors import UserError
from nps.experiments.lazy_sets import LazySets
from nps.experiments.sprites.config import Config
from nps.experiments.sprites.evaluation import Measured, Part, measure, summary
from nps.experiments.sprites.pictures import tracking_picture
from nps.experiments.sprites.training_op3 import make_op3, op3_loss
from nps.experiments.sprites.training_tracker import make_tracker, tracker_loss
from nps.experiments.sprites.watching import as_floats, watch, watch_moments
from nps.models.op3 import OP3
from nps.models.tracker import Tracker
from nps.rules import RuleLayer, Trace
from nps.training import rng
from nps.training.data import Made
from nps.training.task import Batch, Task, how_many
from nps.worlds.sprites import Videos, make_videos, render

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

SPLITS = ("train", "validation", "test")
EXPLORE, SETTLE = "explore", "settle"
"""Choices with noise, or without."""
VIDEOS_AT_ONCE = 50
"""In validation and test."""
DRAWN_VIDEOS = 3


class SpritesTask(Task):
    """Data and loss for one config. Videos are simulated when they are first needed."""

    input_names = ("frames", "noise")

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        self.data = Made(config.train_videos * config.clips)
        self._videos: dict[str, Videos] = {}
        self.sets = LazySets(SPLITS, self.videos)

    def videos(self, split: str) -> Videos:
        """The videos of "train", "validation" or "test", on the device."""
        if split not in self._videos:
            config = self.config
            self._videos[split] = make_videos(
                getattr(config, f"{split}_videos"),
                rng.derive(config.data_seed, split),
                frames=config.video_frames,
                bounce=config.bounce,
                device=self.device,
            )
        return self._videos[split]

    def make_model(self, seed: int) -> OP3 | Tracker:
        make = make_tracker if self.config.model == "tracker" else make_op3
        with rng.seeded(seed, "init"):
            return make(self.config).to(self.device)

    def phase(self, progress: float) -> str:
        settle = self.config.settle_from
        return SETTLE if settle is not None and progress >= settle else EXPLORE

    def loss(self, model: OP3 | Tracker, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        model.train()
        if model.interaction is not None and batch.phase == SETTLE:
            model.interaction.eval()
        images = self.training_clips(batch)
        if isinstance(model, Tracker):
            return tracker_loss(self.config, model, images, batch.progress)
        return op3_loss(self.config, model, images)

    def training_clips(self, batch: Batch) -> UInt8[Tensor, "B T size size 3"]:
        config, videos = self.config, self.videos("train")
        video, clip = batch.index % config.train_videos, batch.index // config.train_videos
        start = clip.unsqueeze(-1) * config.frames
        time = start + torch.arange(config.frames, device=batch.index.device)
        clips = Videos(*(part[video.unsqueeze(-1), time] for part in videos))
        return render(clips, size=config.size).images

    # -- validation and test ------------------------------------------------------------------

    def batches(self, split: str) -> Iterator[Part]:
        """The videos of a split, some at a time."""
        config, videos = self.config, self.videos(split)
        count = len(videos.position)
        draw = rng.generator("cpu", config.data_seed, split, "slots")
        noise = torch.randn(count, config.slots, config.latent_dim, generator=draw)
        noise = noise.to(self.device)
        for some in torch.arange(count, device=self.device).split(VIDEOS_AT_ONCE):
            yield Part(videos.at(some), noise[some])

    def measure(self, model: OP3 | Tracker, part: Part) -> Measured:
        return measure(self.config, model, part)

    def judge(self, measured: Measured, split: str) -> dict[str, Any]:
        metrics = summary(measured)
        return {"score": -metrics["mota"], **metrics}

    def test(self, model: OP3 | Tracker) -> dict[str, Any]:
        layer = model.interaction
        parameters = 0 if layer is None else sum(p.numel() for p in layer.parameters())
        return {**super().test(model), "interaction_parameters": parameters}

    # -- traces of a trained model --------------------------------------------------------------

    def first_inputs(self, split: str, count: int | None) -> tuple[Tensor, ...]:
        """Frames of the first videos of a split, and the noise that their slots start from."""
        count = how_many("n", count, len(self.videos(split).position), split)
        parts = list(self.batches(split))
        frames = [render(part.videos, size=self.config.size).images for part in parts]
        noise = [part.noise for part in parts]
        return torch.cat(frames)[:count], torch.cat(noise)[:count]

    @torch.no_grad()
    def trace(self, model: OP3 | Tracker, *inputs: Tensor) -> Trace:
        """What fires on the way to each frame after the first, (B, T - 1, K, M); in the tracker, on
        the way from each frame, (B, T, K, M)."""
        frames, noise = inputs
        layer = model.interaction
        if not isinstance(layer, RuleLayer):
            between = "nothing" if layer is None else type(layer).__name__
            raise UserError(f"trace: this model has no rules ({between} between its slots)")
        if isinstance(model, Tracker):
            found: Trace | None = model(frames, return_trace=True).trace
            assert found is not None  # it has rules
            return found
        moments = watch_moments(model, as_floats(frames), noise, self.config, return_trace=True)
        traces = [moment.trace for moment in moments if moment.trace is not None]
        return Trace(*(torch.stack(x, 1) for x in zip(*traces, strict=True)))

    @torch.no_grad()
    def draw(self, model: OP3 | Tracker) -> dict[str, UInt8[ndarray, "height width 3"]]:
        """Validation videos: true frames, what the model draws, and its segments."""
        part = next(self.batches("validation")).first(DRAWN_VIDEOS)
        images = render(part.videos, size=self.config.size).images
        watched = watch(model, as_floats(images), part.noise, self.config)
        return {"tracking": tracking_picture(images, watched)}
