"""Train a model of bouncing balls to predict the next frame, and test it on more balls.

Training scenes are simulated once, on the device; a step cuts its clips out of them, colours the
balls at random, as the authors' program does, and draws the frames. Nothing but states is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.balls.collisions import Reading
from nps.experiments.balls.config import BALLS, TRANSFER_BALLS, Config
from nps.experiments.balls.evaluation import (
    Part,
    choose_reading,
    measure,
    predict,
    summary,
)
from nps.experiments.balls.floors import closeness
from nps.experiments.balls.measures import Measured, squared_error
from nps.experiments.balls.pictures import prediction_picture
from nps.experiments.balls.tracing import (
    SPLITS,
    first_frames,
    first_videos,
    rolled_out,
    traced,
)
from nps.experiments.lazy_sets import LazySets
from nps.models.scoff import Prediction, Scoff, make_interaction
from nps.perception.frames import BroadcastDecoder, FrameEncoder
from nps.perception.object_files import SchemaReader, SlotReader
from nps.perception.places import PlacedReader
from nps.rollouts import Rollout
from nps.rules import Trace
from nps.training import rng
from nps.training.data import Made
from nps.training.task import Batch, Task
from nps.worlds.balls import COLOURS, Scenes, make_scenes, render
from nps.worlds.balls.drawing import Drawn

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

ALONE, EXPLORE, SETTLE = "alone", "explore", "settle"
"""How slots interact, in the order of training: not at all, with noise in the choices, without."""
CHANNELS = 3
"""Of an image."""
AREA_FROM, AREA_TO = 0.2, 0.45
"""Parts of training over which the penalty on the slots' area grows to its weight."""
PRICE_FROM, PRICE_TO = 0.4, 0.6
"""Parts of training over which the price of firing grows to its value: rules that cost something
before they are of use never fire."""
AREA_OF_NONE = 1e-3
"""Added to a slot's share of the pixels, so that its square root has a slope at zero."""
SCENES_AT_ONCE = 50
"""In validation and test."""
DRAWN_SCENES = 3
TRANSFER = "transfer_"
"""Before the name of a metric: on 6 to 8 balls, with more slots."""


class BallsTask(Task):
    """Data and loss for one config. Scenes are simulated when they are first needed."""

    input_names = ("frames", "noise")

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        self.data = Made(config.train_scenes * config.clips)
        self.noise_size = BALLS[1]
        self._scenes: dict[str, Scenes] = {}
        self.reading: Reading | None = None
        self.sets = LazySets(SPLITS, self.scenes)

    def scenes(self, split: str) -> Scenes:
        """The scenes of "train", "validation", "test" or "transfer", on the device."""
        if split not in self._scenes:
            config = self.config
            held_out = config.seen_frames + 1
            count, frames = {
                "train": (config.train_scenes, config.scene_frames),
                "validation": (config.validation_scenes, held_out),
                "test": (config.test_scenes, held_out + config.rollout_frames),
                "transfer": (config.test_scenes, held_out + config.rollout_frames),
            }[split]
            balls = TRANSFER_BALLS if split == "transfer" else BALLS
            seed = rng.derive(config.data_seed, split)
            self._scenes[split] = make_scenes(count, frames, seed, balls=balls, device=self.device)
        return self._scenes[split]

    def make_model(self, seed: int) -> Scoff:
        with rng.seeded(seed, "init"):
            return make_model(self.config).to(self.device)

    def phase(self, progress: float) -> str:
        """How slots interact, and how many frames a clip predicts."""
        config, interacts = self.config, EXPLORE
        if progress < config.interact_from:
            interacts = ALONE
        elif config.settle_from is not None and progress >= config.settle_from:
            interacts = SETTLE
        short = progress < config.all_frames_from
        return f"{interacts} {min(config.first_frames, config.frames) if short else config.frames}"

    def loss(self, model: Scoff, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config
        interacts, count = batch.phase.split()
        frames = int(count)
        model.train(interacts != SETTLE)  # evaluation mode: the argmax
        model.alone = interacts == ALONE
        images = self.training_clips(batch, frames + 1)
        priced = config.firing_price > 0
        predicted = model(images[:, :frames], return_trace=priced)
        error = squared_error(predicted.images, images[:, 1:]).mean()
        # Summed over the colours: beside gradients of the mean, Adam's epsilon is not small.
        loss, parts = CHANNELS * error, {"mse": error}
        if config.disagreement:
            parts["disagreement"] = predicted.disagreement.mean()
            loss = loss + config.disagreement * parts["disagreement"]
        if config.background and config.area:
            weight = ramp(batch.progress, AREA_FROM, AREA_TO)
            share = predicted.masks[:, :, :-1].mean((-1, -2))
            parts["area"] = (share + AREA_OF_NONE).sqrt().sum(-1).mean()
            loss = loss + config.area * weight * parts["area"]
        if predicted.trace is not None:
            weight = config.firing_price * ramp(batch.progress, PRICE_FROM, PRICE_TO)
            parts["fires"] = fires(predicted)
            loss = loss + weight * parts["fires"]
        return loss, parts

    def training_clips(self, batch: Batch, length: int) -> UInt8[Tensor, "B T H W 3"]:
        """The first frames of the batch's clips, in colours from its noise."""
        config, scenes = self.config, self.scenes("train")
        scene, clip = batch.index % config.train_scenes, batch.index // config.train_scenes
        start = clip.unsqueeze(-1) * (config.frames + 1)
        time = start + torch.arange(length, device=batch.index.device)
        frames, _ = render(
            scenes.position[scene.unsqueeze(-1), time],
            scenes.radius[scene],
            scenes.present[scene],
            (batch.noise * COLOURS).long(),
            size=config.size,
            curtain=scenes.curtain[scene] if config.curtain else None,
        )
        return frames

    # -- validation and test ------------------------------------------------------------------

    def batches(self, split: str) -> Iterator[Part]:
        if split == "validation":
            yield from self.parts("validation", self.config.slots, rollout=False)
        else:
            yield from self.parts("test", self.config.slots, rollout=True)
            yield from self.parts("transfer", self.config.transfer_slots, rollout=True)

    def parts(self, split: str, slots: int, *, rollout: bool) -> Iterator[Part]:
        """The scenes of a split, some at a time."""
        scenes = self.scenes(split)
        count = len(scenes.radius)
        draw = rng.generator("cpu", self.config.data_seed, split, "slots")
        noise = torch.randn(count, slots, self.config.slot_dim, generator=draw).to(self.device)
        for some in torch.arange(count, device=self.device).split(SCENES_AT_ONCE):
            yield Part(scenes.at(some), noise[some], split == "transfer", rollout)

    def draw_frames(self, scenes: Scenes) -> Drawn:
        curtain = scenes.curtain if self.config.curtain else None
        shown = (scenes.position, scenes.radius, scenes.present, scenes.colour)
        return render(*shown, size=self.config.size, curtain=curtain)

    def measure(self, model: Scoff, part: Part) -> Measured:
        images, labels = self.draw_frames(part.scenes)
        near = self.closeness if part.rollout else None
        return measure(self.config, model, part, images, labels, self.reading, near)

    @cached_property
    def closeness(self) -> float | None:
        """How the floor that names the nearest ball is read: chosen on validation scenes, too."""
        return closeness(self.scenes("validation"), self.config.seen_frames)

    def judge(self, measured: dict[str, Tensor], split: str) -> dict[str, Any]:
        """Means over scenes; of the test, apart for 4 balls and for 6 to 8."""
        if split == "validation":
            metrics = summary(measured)
            metrics.pop("firing_table", None)
            return {"score": metrics["mse"], **metrics}
        metrics = of_both_kinds(measured, self.reading)
        return {"score": metrics["mse"], **metrics}

    def test(self, model: Scoff) -> dict[str, Any]:
        self.reading = self.choose_reading(model)
        layer = model.interaction
        parameters = 0 if layer is None else sum(p.numel() for p in layer.parameters())
        loud = None if self.reading is None else self.reading.loud
        told = {} if loud is None else {"who_threshold": loud}
        return {**super().test(model), **told, "interaction_parameters": parameters}

    @torch.no_grad()
    def choose_reading(self, model: Scoff) -> Reading | None:
        """How to read what fires: chosen on validation scenes."""
        parts = self.parts("validation", self.config.slots, rollout=False)
        shown = ((part, *self.draw_frames(part.scenes)) for part in parts)
        return choose_reading(self.config, model, shown)

    # -- traces and roll-outs of a trained model ----------------------------------------------

    def first_inputs(self, split: str, count: int | None) -> tuple[Tensor, ...]:
        return first_frames(self, split, count, self.config.seen_frames)

    def trace(self, model: Scoff, *inputs: Tensor) -> Trace:
        frames, noise = inputs
        return traced(model, frames, noise)

    def first_episodes(
        self, split: str, count: int | None, steps: int | None
    ) -> tuple[Tensor, Tensor]:
        return first_videos(self, split, count, steps)

    def rollout(self, model: Scoff, images: Tensor, actions: Tensor) -> Rollout:
        return rolled_out(self, model, images, actions)

    @torch.no_grad()
    def draw(self, model: Scoff) -> dict[str, UInt8[ndarray, "height width 3"]]:
        """Validation scenes: true frames, predicted ones, and the segments of the prediction."""
        part = next(self.parts("validation", self.config.slots, rollout=False)).first(DRAWN_SCENES)
        images, _ = self.draw_frames(part.scenes)
        predicted = predict(self.config, model, part, images)
        return {"prediction": prediction_picture(images[:, 1:], predicted)}


def of_both_kinds(measured: Measured, reading: Reading | None = None) -> dict[str, Any]:
    """The metrics of tested scenes, apart for 4 balls and for 6 to 8."""
    transfer = measured.pop("transfer") > 0
    found = summary({n: values[~transfer] for n, values in measured.items()}, reading)
    others = summary({n: values[transfer] for n, values in measured.items()}, reading)
    return found | {f"{TRANSFER}{name}": value for name, value in others.items()}


def fires(predicted: Prediction) -> Tensor:
    """Mean probability that a rule of gated parallel NPS fires, over slots that are present."""
    if predicted.trace is None:
        raise ValueError("trace: got None, expected that of gated parallel NPS")
    chance = predicted.trace.rule_scores.amax(-1).sigmoid().mean(2)  # (B, T, K, M, N) -> (B, T, M)
    if predicted.present is None:
        return chance.mean()
    return (chance * predicted.present).sum() / predicted.present.sum().clamp(min=1)


def ramp(progress: Tensor, start: float, end: float) -> Tensor:
    """0 up to one part of training, 1 from another on, and a line in between."""
    return ((progress - start) / (end - start)).clamp(0.0, 1.0)


def make_model(config: Config) -> Scoff:
    interaction = make_interaction(
        config.interaction,
        config.slot_dim,
        config.rule_config,
        hidden_dim=config.hidden_dim,
        gate=config.gate,
        select_by=config.select_by,
    )
    size, width = config.size, config.width
    encoder = FrameEncoder(size, width, stride=config.feature_stride, position=not config.placed)
    decoder = BroadcastDecoder(
        config.slot_dim,
        size,
        width,
        background=config.background,
        extent=config.extent if config.placed else None,
    )
    return Scoff(
        encoder,
        make_reader(config),
        interaction,
        decoder,
        select_by=config.select_by,
        radius=config.radius if config.placed else None,
        presence=config.presence,
        hidden_dim=config.hidden_dim,
    )


def make_reader(config: Config) -> PlacedReader | SlotReader | SchemaReader:
    sizes = (config.slots, config.slot_dim, config.width)
    rounds: dict[str, int] = {
        "first_iterations": config.first_iterations,
        "iterations": config.iterations,
    }
    if config.model == "scoff":
        return SchemaReader(*sizes, schemata=config.schemata)
    if not config.places:
        return SlotReader(*sizes, **rounds)
    side = config.size // config.feature_stride
    return PlacedReader(*sizes, side=side, extent=config.extent, **rounds)
