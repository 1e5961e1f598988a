"""Train a model of falling towers to predict where shapes go, and test it for twice as long.

Episodes are read as states. Pictures of their first frame and, for training, of the last one, and
masks of all frames are drawn once, on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import pi
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.experiments.stacks.config import Config
from nps.experiments.stacks.evaluation import FEW, Part, draw_latents, measure, summary
from nps.experiments.stacks.rule_use import Measured
from nps.models.rpin import LATENT, RPIN, make_interaction
from nps.training import rng
from nps.training.data import Made
from nps.training.progress import ProgressLine
from nps.training.task import Batch, Task
from nps.worlds import stacks
from nps.worlds.stacks import Episodes

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, UInt8

EXPLORE, SETTLE = "explore", "settle"
"""Choices with noise, or without."""
EPISODES_AT_ONCE = 20
"""In validation and test."""
DISCOUNT = 0.01 ** (1 / 15)
"""Weight of a frame relative to the one before, at the start of training; at the end it is 1."""
FOUR = "four_"
"""Before the name of a metric: on towers of four shapes."""


class Drawn(NamedTuple):
    """The training set as pictures: E episodes, seen from each of V sides."""

    images: UInt8[Tensor, "V*E 2 H W 3"]
    """The first frame, and the one after the last that is predicted."""
    masks: Bool[Tensor, "V*E T M 28 28"]
    centres: Float[Tensor, "V*E T+1 M 2"]


class StacksTask(Task):
    """Data and loss for one config."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        self.data = Made(config.episodes)
        self.noise_size = 2
        found = stacks.load(config.settings, device)
        counts = {"train": config.episodes, "validation": config.validation_episodes}
        self.episodes = {
            name: some.at(slice(counts.get(name, config.test_episodes)))
            for name, some in found.items()
        }
        self._drawn: Drawn | None = None
        self._first: dict[str, Tensor] = {}

    def make_model(self, seed: int) -> RPIN:
        with rng.seeded(seed, "init"):
            return make_model(self.config).to(self.device)

    def phase(self, progress: float) -> str:
        settle = self.config.settle_from
        return SETTLE if settle is not None and progress >= settle else EXPLORE

    def drawn(self) -> Drawn:
        """The pictures of the training set; drawn at the first call."""
        if self._drawn is None:
            config, episodes = self.config, seen_from(self.episodes["train"], self.config.views)
            images = torch.stack(
                [draw(episodes, frame, config.pixels) for frame in (0, config.frames)], 1
            )
            frames = range(1, config.frames + 1)
            masks = torch.stack([stacks.masks(episodes.shapes(t)) for t in frames], 1)
            centres = stacks.centres(episodes.position[:, : config.frames + 1])
            self._drawn = Drawn(images, masks, centres)
        return self._drawn

    def loss(self, model: RPIN, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config
        view = (batch.noise[:, 1] * config.views).long().clamp(max=config.views - 1)
        index = batch.index + view * config.episodes
        model.train()
        if model.interaction is not None and batch.phase == SETTLE:
            model.interaction.eval()
        drawn = self.drawn()
        flipped = batch.noise[:, 0] < 0.5
        centres = drawn.centres[index]
        across = torch.where(flipped.view(-1, 1, 1), 1 - centres[..., 0], centres[..., 0])
        centres = torch.stack([across, centres[..., 1]], -1)
        edges, middle = stacks.around(centres[:, 0]), centres[:, 1:]
        size = torch.full_like(middle, stacks.BOX)
        target = torch.cat([middle, size], -1)
        masks = flip(drawn.masks[index], flipped, -1).to(target.dtype)
        first, last = drawn.images[index].unbind(1)
        first = flip(first, flipped, -2)
        last = last if config.as_released else flip(last, flipped, -2)
        seen, then = model.backbone(torch.cat([first, last])).chunk(2)
        latent = model.infer(seen, then)
        noise = torch.randn(len(index), LATENT, device=index.device)
        slots = model.encode(seen, edges)
        predicted = model.unroll(slots, latent.draw(noise), config.frames)
        weight = discounts(batch.progress, config.frames)
        of_boxes = (predicted.boxes - target).square().mean((0, 2)).sum(-1)
        of_masks = F.binary_cross_entropy_with_logits(predicted.masks, masks, reduction="none")
        of_masks = of_masks.mean((0, 2, 3, 4))
        parts = {
            "boxes": (weight * of_boxes).sum(),
            "masks": of_masks.sum() if config.as_released else (weight * of_masks).sum(),
            "divergence": latent.divergence(),
        }
        loss = parts["boxes"] + config.mask_weight * parts["masks"]
        price = divergence_weight(config, batch.progress)
        return loss + price * parts["divergence"], parts

    # -- validation and test ------------------------------------------------------------------

    def batches(self, split: str) -> Iterator[Part]:
        """The episodes of "validation", "test" or "four", some at a time."""
        samples = FEW if split == "validation" else self.config.samples
        episodes = self.episodes[split]
        if split not in self._first:
            self._first[split] = draw(episodes, 0, self.config.pixels)
        make = rng.generator("cpu", self.config.data_seed, split, "latents")
        latents = draw_latents(len(episodes.kind), samples, make).to(self.device)
        every = torch.arange(len(episodes.kind), device=self.device)
        for some in every.split(EPISODES_AT_ONCE):
            images = self._first[split][some]
            yield Part(episodes.at(some), images, latents[some], split == "four")

    @cached_property
    def mean_way(self) -> Float[Tensor, "T 3 2"]:
        """How far the shapes of a training episode go on average, by frame and level."""
        places = stacks.centres(self.episodes["train"].position[:, : self.config.test_frames + 1])
        return (places[:, 1:] - places[:, :1]).mean(0)

    def measure(self, model: RPIN, part: Part) -> Measured:
        config = self.config
        way = None if part.four else self.mean_way
        # On a GPU most of a run's time would go into tests: thousands of roll-outs in float32.
        with torch.backends.cudnn.flags(allow_tf32=True, deterministic=True):
            return measure(model, part, config.frames, config.test_frames, way)

    def judge(self, measured: dict[str, Tensor], split: str) -> dict[str, Any]:
        metrics = summary(measured)
        return {"score": (metrics[f"best{FEW}_p1"] + metrics[f"best{FEW}_p2"]) / 2, **metrics}

    def evaluate(self, model: RPIN, split: str) -> dict[str, Any]:
        """Towers of three shapes and of four are judged apart."""
        if split == "validation":
            return super().evaluate(model, split)
        found: dict[str, Any] = {}
        for name, prefix in (("test", ""), ("four", FOUR)):
            metrics = super().evaluate(model, name)
            found |= {f"{prefix}{key}": value for key, value in metrics.items()}
        del found[f"{FOUR}score"]
        return found


def make_model(config: Config) -> RPIN:
    layer = make_interaction(
        config.interaction, config.width, config.rule_config, select_by=config.select_by
    )
    options = {"coordinates": config.coordinates, "residual": config.residual}
    return RPIN(layer, config.width, select_by=config.select_by, **options)


def seen_from(episodes: Episodes, sides: int) -> Episodes:
    """Episodes from their own side, then from others, evenly around."""
    angles = [torch.full_like(episodes.size[:, 0, 0], 2 * pi * i / sides) for i in range(sides)]
    views = (episodes if i == 0 else episodes.turned(angle) for i, angle in enumerate(angles))
    return Episodes(*(torch.cat(part) for part in zip(*views, strict=True)))


def draw(episodes: Episodes, frame: int, pixels: int) -> UInt8[Tensor, "E pixels pixels 3"]:
    """One frame of all episodes, with a progress line: on a CPU this may take minutes."""
    shapes, done = episodes.shapes(frame), []
    with ProgressLine(f"pictures of frame {frame}", len(shapes.kind), 0, "pictures") as line:
        for some in torch.arange(len(shapes.kind), device=shapes.kind.device).split(40):
            part = stacks.Shapes(*(x[some] for x in shapes))
            done.append(stacks.render(part, episodes.colour[some], pixels=pixels))
            line.update(int(sum(map(len, done))))
    return torch.cat(done)


def flip(x: Tensor, flipped: Bool[Tensor, "B"], dim: int) -> Tensor:
    """Mirror some of the pictures."""
    return torch.where(flipped.view(-1, *[1] * (x.dim() - 1)), x.flip(dim), x)


def divergence_weight(config: Config, progress: Float[Tensor, ""]) -> Float[Tensor, ""] | float:
    """What the latent costs: from halfway on its price, before that perhaps another one."""
    end, start = config.divergence_weight, config.divergence_start
    if start is None:
        return end
    weight: Tensor = end * (start / end) ** (1.0 - 2.0 * progress).clamp(min=0.0)
    return weight


def discounts(progress: Float[Tensor, ""], frames: int) -> Float[Tensor, "frames"]:
    """Weights of the frames, which sum to 1: later ones count less, at first."""
    each = DISCOUNT + progress * (1 - DISCOUNT)
    weight = each ** torch.arange(frames, device=progress.device)
    return weight / weight.sum()
