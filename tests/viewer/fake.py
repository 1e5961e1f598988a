"""A workbench without training: coloured blocks on a grid, moved by a real rule layer whose weights
are set by hand.

Rule d moves a block up, right, down or left; further rules do the same for blocks of one kind. The
true world refuses moves out of the grid or onto another block, which the model does not know: then
its prediction is wrong from there on.

    python -m tests.viewer.fake --port 8765 --token dev
"""

from __future__ import annotations

import json
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nps.inspect.edits import Edits
from nps.inspect.intervene import intervened, require_steps
from nps.inspect.playback import Playback, Record
from nps.inspect.recording import recorded
from nps.inspect.workbench import Moment, Parted, Workbench, World, placed, require_index
from nps.rules import SequentialNPS

SIDE = 8
"""Cells of the grid along a side."""
CELL = 6
"""Pixels of a cell."""
DIRECTIONS = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
NAMES = ("up", "right", "down", "left")
KEYS = ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft")
COLOURS = np.array(
    [
        *([230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [0, 114, 178]),
        *([213, 94, 0], [204, 121, 167], [150, 150, 150], [120, 60, 20], [90, 200, 120]),
    ],
    np.uint8,
)
NEAR = 0.5 / SIDE


def set_by_hand(layer: SequentialNPS, slots: int) -> None:
    """Rule i moves in direction i % 4; rules from 4 on are for blocks of kind i // 4 - 1."""
    rules, moves = layer.rules, 4
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        # Key dimensions 0 to 3: the direction of the slot's action; the others: its kind.
        query, key = layer.select.query.out.weight, layer.select.key.out.weight
        query[:moves, -moves:] = 4.0 * torch.eye(moves)
        kinds = torch.eye(slots)
        query[moves : moves + slots, 2 : 2 + slots] = kinds - 8.0 * (1.0 - kinds)
        key[:] = torch.eye(*key.shape)
        generator = torch.Generator().manual_seed(0)
        for i in range(len(rules)):
            rules.embedding[i, i % moves] = 1.0
            kind = i // moves - 1
            if 0 <= kind < slots:
                rules.embedding[i, moves + kind] = 0.5
            step = torch.tensor(DIRECTIONS[i % moves] / SIDE / layer.stages)
            rules.bias_out[i, :2] = step.to(rules.bias_out)
            shape = rules.weight_in[i].shape
            rules.weight_in[i] = 0.1 * torch.randn(shape, generator=generator)
            rules.weight_out[i, :, :2] = 1e-4 * torch.randn(
                len(rules.weight_out[i]), 2, generator=generator
            )
        for part in (layer.bind.query, layer.bind.key):
            part.out.weight[:] = torch.randn(part.out.weight.shape, generator=generator)


class Grid:
    """The true world: blocks that move by a cell unless something is in their way."""

    def __init__(self, slots: int, seed: int) -> None:
        cells = np.random.default_rng(seed).permutation(SIDE * SIDE)[:slots].tolist()
        self.at = [divmod(cell, SIDE) for cell in cells]

    def move(self, slot: int, direction: int) -> str:
        (row, column), (down, right) = self.at[slot], DIRECTIONS[direction].tolist()
        to = (row + down, column + right)
        if not (0 <= to[0] < SIDE and 0 <= to[1] < SIDE):
            return "wall"
        if to in self.at:
            return f"blocked by {self.at.index(to)}"
        self.at[slot] = to
        return "free"

    @property
    def places(self) -> Any:
        return (np.array(self.at) + 0.5) / SIDE


def draw(places: Any) -> Any:
    """Frames (T, H, W, 3) of blocks whose places are shares of the picture's sides, (T, M, 2)."""
    size = SIDE * CELL
    frames = np.full((len(places), size, size, 3), 24, np.uint8)
    low, high = (np.round((places + d) * size).astype(int) for d in (-0.45 / SIDE, 0.45 / SIDE))
    low, high = (x.clip(0, size).tolist() for x in (low, high))
    for frame, begins, ends in zip(frames, low, high, strict=True):
        for m, ((top, left), (bottom, right)) in enumerate(zip(begins, ends, strict=True)):
            frame[top:bottom, left:right] = COLOURS[m % len(COLOURS)]
    return frames


def masks(places: Any, size: int = 12) -> Any:
    """Soft spots (T, M, size, size) around the places."""
    line = ((np.arange(size) + 0.5) / size).astype(np.float32)
    spread = np.exp(-(((line - places[..., None]) / 0.08) ** 2))  # (T, M, 2, size)
    return (255 * spread[..., 0, :, None] * spread[..., 1, None, :]).astype(np.uint8)


class FakeWorkbench(Workbench):
    """M blocks, N rules, T steps.

    Args:
        fast: predict every step from the true slots, all in one call: for episodes of 10,000
            frames. Edits are then ignored.
    """

    error_name = "distance"
    decodes = True

    def __init__(
        self,
        slots: int = 3,
        rules: int = 6,
        steps: int = 12,
        stages: int = 1,
        episodes: int = 5,
        fast: bool = False,
        with_rules: bool = True,
    ) -> None:
        torch.manual_seed(0)
        self.slots, self.length, self.episodes, self.fast = slots, steps, episodes, fast
        dim = 2 + slots + 4
        layer = SequentialNPS(
            dim, rules, stages=stages, rule_dim=4 + slots, key_dim=4 + slots, hidden_dim=8
        )
        set_by_hand(layer, slots)
        super().__init__(None, (layer if with_rules else nn.Linear(1, 1)).eval())
        self.moves = layer.eval()
        self.actions = tuple(f"block {m} {name}" for m in range(slots) for name in NAMES)
        self.keys = {key: [4 * m + d for m in range(slots)] for d, key in enumerate(KEYS)}

    def count(self) -> int:
        return self.episodes

    @property
    def feature_names(self) -> tuple[str, ...]:
        return ("row", "column")

    def features(self, slots: Any) -> Any:
        return np.asarray(slots)[..., :2]

    def direction(self, feature: str) -> Any:
        return np.eye(2 + self.slots, dtype=np.float32)[self.feature_names.index(feature)]

    def picture(self, slots: Any, slot: int) -> Any:
        others = np.full_like(slots[None, :, :2], -1.0)
        others[0, slot] = slots[slot, :2]
        return draw(others)[0]

    def play(self, episode: int, edits: Edits = Edits()) -> Playback:  # noqa: B008
        require_index("episode", episode, self.episodes)
        acts = np.random.default_rng(episode).integers(len(self.actions), size=self.length)
        for edit in edits.acted:
            step = require_index("step", edit.step, self.length)
            acts[step] = require_index("action", edit.action, len(self.actions))
        true, events = self._truth(episode, acts)
        states = np.concatenate(
            [true, np.broadcast_to(np.eye(self.slots), (len(true), self.slots, self.slots))], -1
        ).astype(np.float32)
        slots, record = (self._at_once if self.fast else self._roll)(states, acts, edits)
        places = slots[..., :2].astype(np.float32)
        distance = np.linalg.norm(places - true, axis=-1)
        return Playback(
            true=draw(true),
            predicted=draw(places),
            right=(distance < NEAR).all(-1),
            error=distance.mean(-1).astype(np.float32),
            error_name=self.error_name,
            slots=slots,
            features=places,
            feature_names=self.feature_names,
            slot_names=tuple(f"block {m}" for m in range(self.slots)),
            masks=masks(places),
            places=places,
            actions=acts,
            events=events,
            record=record if self.layer is not None else None,
        )

    def world(self, seed: int) -> World:
        return FakeWorld(self, seed)

    def _truth(self, episode: int, acts: Any) -> tuple[Any, tuple[str, ...]]:
        grid, events = Grid(self.slots, episode), []
        places = [grid.places]
        for act in acts:
            events.append(grid.move(*divmod(int(act), 4)))
            places.append(grid.places)
        return np.stack(places), tuple(events)

    def read(self, slots: Any, acts: Any) -> torch.Tensor:
        """What the layer reads, (T, M, S): slots and, at the slot that acts, its direction."""
        action = np.zeros((len(slots), self.slots, 4), np.float32)
        which, direction = np.divmod(acts, 4)
        action[np.arange(len(slots)), which, direction] = 1.0
        return torch.from_numpy(np.concatenate([slots, action], -1))

    @torch.no_grad()
    def _roll(self, states: Any, acts: Any, edits: Edits) -> tuple[Any, Record]:
        slots, rolled = states[0], [states[0]]
        directions = {name: self.direction(name) for name in self.feature_names}
        require_steps(edits, self.length, self.slots, len(self.actions))
        with intervened(self.layer, edits, directions), recorded(self.layer) as recorder:
            for t in range(self.length):
                slots = placed(self, slots, edits, t)
                after = self.moves(self.read(slots[None], acts[t : t + 1]))
                slots = after[0, :, : slots.shape[-1]].numpy()
                rolled.append(slots)
        return np.stack(rolled), recorder.record()

    @torch.no_grad()
    def _at_once(self, states: Any, acts: Any, edits: Edits) -> tuple[Any, Record]:
        read = self.read(states[:-1], acts)
        after, trace = self.moves(read, return_trace=True)
        slots = after[..., : states.shape[-1]].numpy()
        update = (after - read)[:, None]  # of a single stage
        parts = [part.numpy() for part in trace]
        return np.concatenate([states[:1], slots]), Record(
            *parts, None, read[:, None].numpy(), update.numpy()
        )


class FakeWorld(World):
    def __init__(self, bench: FakeWorkbench, seed: int) -> None:
        self.bench, self.grid, self.step = bench, Grid(bench.slots, seed), 0
        self.slots = np.concatenate([self.grid.places, np.eye(bench.slots)], -1).astype(np.float32)
        self.event, self.trace, self.parted = "", None, None

    def now(self) -> Moment:
        places = self.slots[:, :2]
        distance = np.linalg.norm(places - self.grid.places, axis=-1)
        right = bool((distance < NEAR).all())
        rule = [] if self.trace is None else self.trace.rule[0].tolist()
        context = [] if self.trace is None else self.trace.context[0].tolist()
        if not right and self.parted is None:
            slot = int(distance.argmax())
            self.parted = Parted(self.step, slot, max(stage[slot] for stage in rule))
        return Moment(
            step=self.step,
            true=draw(self.grid.places[None])[0],
            imagined=draw(places[None])[0],
            right=right,
            error=float(distance.mean()),
            event=self.event,
            rule=rule,
            context=context,
            places=places,
            parted=self.parted,
        )

    @torch.no_grad()
    def act(self, action: int) -> Moment:
        require_index("action", action, len(self.bench.actions))
        self.event = self.grid.move(*divmod(action, 4))
        read = self.bench.read(self.slots[None], np.array([action]))
        after, self.trace = self.bench.moves(read, return_trace=True)
        self.slots = after[0, :, : self.slots.shape[-1]].numpy()
        self.step += 1
        return self.now()


class FakeRun:
    """What the viewer needs of a `LoadedRun`."""

    experiment, preset = "fake", "fake-grid"
    card: dict[str, Any] | None = None

    def __init__(self, bench: Any, seed: int = 0, folder: Path | None = None) -> None:
        self.workbench, self.seed, self.folder = bench, seed, folder
        self.metrics: list[dict[str, Any]] = [
            {"epoch": 1, "step": 10, "validation": {"distance": 0.25}}
        ]

    @cached_property
    def model(self) -> nn.Module:
        return self.workbench.model


def write_folder(folder: Path, run_id: str, edits: dict[str, Any] | None = None) -> Path:
    """A folder with what the viewer reads of a run, and of one that was edited."""
    folder.mkdir(parents=True)
    saved = {"schema": 1, "id": run_id, "experiment": "fake", "preset": "fake-grid", "seed": 0}
    (folder / "config.json").write_text(json.dumps(saved | {"config": {}}))
    if edits is not None:
        source = {"folder": "plain", "id": run_id, "which": "best", "experiment": "fake"}
        source |= {"preset": "fake-grid", "seed": 0, "step": 10}
        record = {"schema": 1, "edits": edits, "of": source, "when": "", "nps": "0.1.0"}
        (folder / "edits.json").write_text(json.dumps(record))
    return folder


def runs() -> list[FakeRun]:
    """Two models to compare, the load test's, one without rules, and one of 10,000 frames."""
    return [
        FakeRun(FakeWorkbench()),
        FakeRun(FakeWorkbench(rules=12, stages=2), seed=1),
        FakeRun(FakeWorkbench(slots=10, rules=32, steps=1_000, episodes=2), seed=2),
        FakeRun(FakeWorkbench(with_rules=False), seed=3),
        FakeRun(FakeWorkbench(slots=10, rules=32, steps=10_000, episodes=1, fast=True), seed=4),
    ]


if __name__ == "__main__":
    from nps.viewer.serve import prepare, run
    from nps.viewer.session import Session

    flags = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    found = runs()
    which = flags.get("--models", "0,1,2,3,4").split(",")
    serving = prepare(int(flags.get("--port", "0")), flags.get("--token"))
    print(serving.address, flush=True)
    run(serving, Session([found[int(number)] for number in which]))
