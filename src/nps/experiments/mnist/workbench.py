"""MNIST transformation in the workbench: a digit, and operations one after another.

Each step encodes the picture that the model has drawn, lets a rule change the slot and draws the
result, as in the paper's figure of composed operations. In the slot alone rules do not compose:
see docs/notes/mnist.md. Another action is another operation; an action just after the last step
makes the chain longer. Single slots are not drawn: the decoder draws what rules make of a slot, not
what the encoder gives. The image before and after a step is the one that the model has drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nps.experiments.following import FollowedWorld
from nps.experiments.mnist.task import MnistTask
from nps.experiments.stepping import Episode, Frame, SteppedWorkbench
from nps.experiments.world_models.probes import LEAST, Probe, said
from nps.inspect.grids import grey
from nps.inspect.playback import Playback
from nps.inspect.workbench import World, require_index
from nps.models.digits import IMAGE, OPERATION, DigitTransformation
from nps.training import rng
from nps.worlds.transformations import paste, transform

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8
    from numpy import ndarray

LONGEST = 10
"""Most operations of a chain that is made longer."""
SAME = 0.25
"""Pictures are the same if their squared error is less than this share of the true one's ink."""
PROBED = 800
"""Training pictures on which probes are fitted and judged."""
AT_ONCE = 100
SHAPE = ("row", "column", "height", "width")
"""Of the ink: its centre, and its spread down and across, as shares of the picture's sides."""
KEYS = {
    "rotate_right": "ArrowRight",
    "rotate_left": "ArrowLeft",
    "translate_up": "ArrowUp",
    "translate_down": "ArrowDown",
    "flip": "f",
}


@dataclass(frozen=True)
class Chain(Episode):
    pictures: Float[Tensor, "T+1 64 64"]
    operations: Int[Tensor, "T"]


class Digit(NamedTuple):
    """The last picture that the model has drawn, and its encoding, the image slot."""

    picture: Float[Tensor, "64 64"]
    slot: Float[Tensor, "D"]


class MnistWorkbench(SteppedWorkbench[Chain, Digit]):
    task: MnistTask
    model: DigitTransformation
    fps = 1.0
    error_name = "squared error"
    decodes = True
    longest = LONGEST

    def __init__(self, task: MnistTask, model: DigitTransformation) -> None:
        super().__init__(task, model)
        self.actions = task.operations
        self.keys = {KEYS[name]: (i,) for i, name in enumerate(task.operations)}

    def count(self) -> int:
        return len(self.task.truth["validation"])

    def title(self, episode: int) -> str:
        return f"validation digit {episode}"

    # -- what can be read of the image slot; the operation's says nothing about a picture ---------

    @cached_property
    def probe(self) -> Probe | None:
        """What a linear map can read of the ink, judged on pictures that it was not fitted on."""
        slots, values = self._probed()
        names: tuple[str, ...] = SHAPE
        while names:
            probe = Probe.fit(names, slots, values[..., [SHAPE.index(name) for name in names]])
            if probe.usable:
                return probe
            names = tuple(n for n, r2 in zip(names, probe.r2, strict=True) if r2 >= LEAST)
        return None

    @torch.no_grad()
    def _probed(self) -> tuple[Float[ndarray, "n 1 D"], Float[ndarray, "n 1 F"]]:
        """Slots of training pictures, what rules make of them, and the shape of both.

        A rule's result is not the encoding of its picture, and is to be read as well.
        """
        task = self.task
        index = torch.arange(min(PROBED, len(task.digits["train"])), device=task.device)
        draws = task.config.depth + (not task.config.whole_chains)
        draw = rng.generator("cpu", task.config.data_seed, "probes")
        noise = torch.rand(len(index), draws, generator=draw).to(task.device)
        slots, values = [], []
        for part in zip(
            *(x.split(AT_ONCE) for x in task.training_pairs(index, noise)), strict=True
        ):
            before, after, operation = part
            encoded = self.model.encode(before)
            result = self.model.step(encoded, operation)
            assert isinstance(result, Tensor)  # without return_trace
            slots.append(torch.cat([encoded, result]))
            values.append(torch.cat([before, after]))
        pictures = torch.cat(values).cpu().numpy()
        return torch.cat(slots).cpu().numpy()[:, None], shape(pictures)[:, None]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        if self.probe is None:
            return tuple(f"z{i}" for i in range(self.task.config.slot_dim))
        return self.probe.names

    @property
    def reading(self) -> str:
        return "" if self.probe is None else said(self.probe)

    def features(self, slots: Float[ndarray, "*batch M D"]) -> Float[ndarray, "*batch M F"]:
        found = slots if self.probe is None else self.probe.read(slots)
        if slots.shape[-2] > OPERATION:
            found = found.astype(np.float64)
            found[..., OPERATION, :] = np.nan
        return found

    def direction(self, feature: str) -> Float[ndarray, "D"]:
        if self.probe is not None:
            return self.probe.direction(feature)
        along: ndarray = np.eye(self.task.config.slot_dim)[self.feature_names.index(feature)]
        return along

    # -- what is true -------------------------------------------------------------------------

    def episode(self, number: int, acted: Mapping[int, int]) -> Chain:
        operations = self.task.truth["validation"][number].tolist()
        for step in sorted(acted):
            if step == len(operations) < LONGEST:
                operations.append(acted[step])
            elif step < len(operations):
                operations[step] = acted[step]
        return self._chain(number, operations)

    def _chain(self, number: int, operations: Sequence[int]) -> Chain:
        task = self.task
        pictures = [paste(task.digits["validation"][number : number + 1])]
        numbers = torch.tensor(operations, dtype=torch.long, device=task.device)
        for operation in numbers.split(1) if operations else ():
            pictures.append(transform(pictures[-1], operation, task.matrices))
        names = tuple(task.operations[i] for i in operations)
        chosen = np.array(operations, int)
        return Chain(names, ("image", "operation"), chosen, torch.cat(pictures), numbers)

    # -- what the model makes of it -----------------------------------------------------------

    def start(self, episode: Chain) -> Digit:
        _ = self.probe  # it calls the layer, which is recorded later on
        return self._drawn(episode.pictures[0])

    def _drawn(self, picture: Float[Tensor, "64 64"]) -> Digit:
        with torch.no_grad():
            return Digit(picture, self.model.encode(picture.unsqueeze(0))[0])

    def advance(self, episode: Chain, state: Digit, step: int) -> Digit:
        changed = self.model.step(state.slot.unsqueeze(0), episode.operations[step : step + 1])
        assert isinstance(changed, Tensor)  # without return_trace
        return self._drawn(self.model.decode(changed)[0])

    def slots_of(self, state: Digit) -> Float[Tensor, "1 D"]:
        """Of the image alone: there is no reading of an operation that could be set."""
        return state.slot.unsqueeze(0)

    def with_slots(self, state: Digit, slots: Float[Tensor, "1 D"]) -> Digit:
        return state._replace(slot=slots[0])

    def frame(self, episode: Chain, state: Digit, step: int) -> Frame:
        true, own = (x.cpu().numpy() for x in (episode.pictures[step], state.picture))
        slots = np.stack([state.slot.cpu().numpy(), self._operation(episode, step)])
        error = float(np.square(own - true).mean())
        return Frame(
            grey(true),
            grey(own),
            slots,
            error,
            right=bool(error < SAME * np.square(true).mean()),
            places=self._places(own, slots),
            away=np.array([error**0.5, 0.0]),
        )

    def _operation(self, episode: Chain, step: int) -> Float[ndarray, "D"]:
        """The slot of the operation of a step; after the last step, of the last."""
        if not episode.steps:
            return np.zeros(self.task.config.slot_dim, np.float32)
        asked = episode.operations[min(step, episode.steps - 1)].unsqueeze(0)
        with torch.no_grad():
            slot: ndarray = self.model.operations(asked)[0].cpu().numpy()
        return slot

    def _places(
        self, picture: Float[ndarray, "64 64"], slots: Float[ndarray, "2 D"]
    ) -> Float[ndarray, "2 2"]:
        """Where the digit is by its slot, or else by its ink."""
        if self.drags:
            at = [self.feature_names.index(name) for name in SHAPE[:2]]
            return self.features(slots)[:, at].clip(0.0, 1.0)
        return np.stack([shape(picture[None])[0, :2], np.full(2, np.nan)])

    def pictures_of_step(
        self, playback: Playback, step: int, slot: int
    ) -> tuple[UInt8[ndarray, "H W 3"], UInt8[ndarray, "H W 3"]] | None:
        if slot != IMAGE or playback.predicted is None:
            return None
        before, after = playback.predicted[step : step + 2]
        return before, after

    def world(self, seed: int) -> World:
        require_index("seed", seed, 2**31)
        return FollowedWorld(self, partial(self._chain, seed % self.count()))


def shape(pictures: Float[ndarray, "n H W"]) -> Float[ndarray, "n 4"]:
    """Centre and spread of the ink: see `SHAPE`."""
    size = pictures.shape[-1]
    along = (np.arange(size) + 0.5) / size
    ink = np.maximum(pictures.sum((1, 2)), 1e-6)
    found = []
    for rest in (2, 1):
        share = pictures.sum(rest) / ink[:, None]
        middle = share @ along
        spread = np.sqrt(np.maximum(share @ along**2 - middle**2, 0.0))
        found.append((middle, spread))
    (row, height), (column, width) = found
    return np.stack([row, column, height, width], -1)
