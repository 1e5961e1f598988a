"""How many slots fire, if the layer decides? Sequential, parallel and adaptive NPS on true states.

Arithmetic: one of two points changes. Blocks: an action moves one block, two (a push) or none.
Balls: some collide, most fly on. A model adds to each slot what its rules say; adaptive NPS also
learns where that is worth it. Printed are how wrong it is, and how often it fires, where something
changes and where nothing does. A quarter of an hour on a CPU core:

    python examples/how_many_fire.py         # or with another seed: how_many_fire.py 1
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from who_bumps_whom import frames

import nps
from nps.interactions import GNN
from nps.rules import AdaptiveNPS, worth_loss
from nps.rules.config import MAX_HANDICAP
from nps.rules.inputs import Selection
from nps.worlds import blocks
from nps.worlds.arithmetic import demonstrate

Data = dict[str, Tensor]
LAYERS = {
    "no interaction": None,
    "GNN": "gnn",
    "sequential, 1 stage": "sequential 1",
    "sequential, 2 stages": "sequential 2",
    "parallel": "parallel",
    "parallel, no null rule": "parallel without null",
    "adaptive": "adaptive",
    "adaptive, at most 1": "adaptive 1",
}


@dataclass(frozen=True)
class World:
    train: Data
    tests: dict[str, Data]
    size: int
    rules: int
    learning_rate: float
    price: float
    """By how much an update has to lower the squared error; lengths are cells, or balls' radii."""
    seen: int
    """How many numbers rules and contexts are chosen by."""
    flies: bool = False
    """Whether slots also move by their velocity, and by walls."""


def pushed_blocks(count: int, seed: int) -> Data:
    """Steps of blocks: place, weight, direction of the action; and the places after it."""
    data = blocks.episodes(count, 20, seed, "fixed-palette")
    place = data.positions.float() - 2
    block, direction = data.action // 5, data.action % 5
    east = (direction == 2).float() - (direction == 4).float()
    south = (direction == 3).float() - (direction == 1).float()
    acts = nn.functional.one_hot(block, 5).unsqueeze(-1)
    action = acts * torch.stack([south, east], -1).unsqueeze(-2)
    weight = (data.weights / 4 - 0.5)[:, None, :, None].expand(-1, 20, -1, -1)
    state = torch.cat([place[:, :-1], weight, action], -1).flatten(0, 1)
    after = place[:, 1:].flatten(0, 1)
    changed = (after != state[..., :2]).any(-1)
    return {"state": state, "after": after, "changed": changed, "present": changed | True}


def arithmetic(count: int, seed: int) -> Data:
    """Two points, and the sum or difference of coordinates that selection sees in the answer."""
    data = demonstrate(count, seed, "other")
    changed = (data.before != data.after).any(-1)
    seen = torch.cat([data.before, data.after], -1)
    return {
        "state": seen,
        "after": data.after,
        "changed": changed,
        "present": changed | True,
    }


def colliding_balls(count: int, balls: tuple[int, int], seed: int) -> Data:
    data = frames(count, balls, seed)
    return data | {"changed": data["collided"].any(-1)}


def worlds() -> dict[str, World]:
    moved = {"blocks": pushed_blocks(300, 2)}
    flown = {"4 balls": colliding_balls(300, (4, 4), 2), "6-8": colliding_balls(200, (6, 8), 3)}
    sums = {"sums": arithmetic(2_000, 2)}
    return {
        "arithmetic": World(arithmetic(20_000, 1), sums, 2, 4, 3e-3, 1e-4, 4),
        "blocks": World(pushed_blocks(1_000, 1), moved, 5, 2, 3e-3, 0.01, 5),
        "balls": World(colliding_balls(4_000, (4, 4), 1), flown, 8, 1, 1e-3, 0.01, 4, flies=True),
    }


def make_layer(kind: str | None, world: World) -> nn.Module | None:
    if kind is None:
        return None
    if kind == "gnn":
        return GNN(world.size, hidden_dim=128)
    name, _, number = kind.partition(" ")
    options = {
        "hidden_layers": 2,
        "query": "mlp",
        "self_context": False,
        "context_gradient": "update",
        "zero_start": world.flies,
        "selection_dim": world.seen,
    }
    if name == "sequential":
        return nps.SequentialNPS(world.size, world.rules, stages=int(number), **options)
    options["context_dropout"] = 0.35
    if name == "adaptive":
        return AdaptiveNPS(world.size, world.rules, **options)
    handicap = MAX_HANDICAP if number else 0.0
    return nps.ParallelNPS(world.size, world.rules, null_handicap=handicap, **options)


class Model(nn.Module):
    def __init__(self, kind: str | None, world: World) -> None:
        super().__init__()
        self.layer, self.flies, self.size = make_layer(kind, world), world.flies, world.size
        self.walls = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 2))

    def alone(self, state: Tensor) -> Tensor:
        """What rules see, before slots interact: balls have turned at the walls."""
        if not self.flies:
            return state[..., : self.size]
        turned = state[..., 2:4] + self.walls(state)
        return torch.cat([state[..., :2], turned, state[..., 4:]], -1)

    def places(self, state: Tensor, slots: Tensor) -> Tensor:
        return state[..., :2] + slots[..., 2:4] if self.flies else slots[..., :2]

    def forward(
        self, slots: Tensor, seen: Selection, present: Tensor
    ) -> tuple[Tensor, nps.Trace | None]:
        if self.layer is None:
            return slots, None
        if isinstance(self.layer, GNN):
            return self.layer(slots, slot_mask=present), None
        return self.layer(slots, selection=seen, slot_mask=present, return_trace=True)

    def seen(self, state: Tensor) -> Selection:
        """What rules and contexts are chosen by: of balls, place and velocity after walls."""
        return (lambda slots: slots[..., :4]) if self.flies else state


def train(model: Model, world: World, steps: int) -> None:
    adam = torch.optim.Adam(model.parameters(), lr=world.learning_rate)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    adaptive = isinstance(model.layer, AdaptiveNPS)
    for step in range(steps):
        model.train(step < steps // 2)  # then without noise: the argmax
        some = torch.randint(len(world.train["state"]), (128,))
        state, after, present = (world.train[name][some] for name in ("state", "after", "present"))
        slots, seen = model.alone(state), model.seen(state)
        if adaptive:
            new, worth = model.layer.propose(slots, selection=seen, slot_mask=present)
        else:
            new, _ = model(slots, seen, present)
        fired, kept = (
            (model.places(state, x) - after).square().sum(-1)[present] for x in (new, slots)
        )
        loss = fired.mean()
        if adaptive:
            loss = loss + worth_loss(worth[present], fired, kept, world.price).mean()
            if world.flies:  # what a ball does alone is not the rules' to explain
                loss = loss + kept.mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        slower.step()


@torch.no_grad()
def test(model: Model, data: Data) -> str:
    """How far from the truth, and how often rules fire: where something changes, and elsewhere."""
    slots = model.eval().alone(data["state"])
    new, trace = model(slots, model.seen(data["state"]), data["present"])
    error = (model.places(data["state"], new) - data["after"]).norm(dim=-1)
    changed, still = data["present"] & data["changed"], data["present"] & ~data["changed"]
    cells = [f"{error[of].mean():7.3f}" for of in (changed, still)]
    if trace is not None:
        fired = trace.fired.any(-2)
        cells += [f"{fired[of].float().mean():7.1%}" for of in (changed, still)]
        cells += [f"{fired.sum(-1).float().mean():6.2f}"]
    return " ".join(cells)


def main(seed: int = 0, steps: int = 3_000) -> None:
    for name, world in worlds().items():
        print(
            f"\n{name}: error where something changes, and where not; fires there, and there; slots"
        )
        for label, kind in LAYERS.items():
            if (not world.flies and kind is None) or (name == "arithmetic" and kind == "gnn"):
                continue  # there is nothing to learn, or nothing to learn it from
            torch.manual_seed(seed)
            most = 1 if kind == "adaptive 1" else None
            if most is None:  # otherwise the model that was just trained
                model = Model(kind, world)
                train(model, world, steps)
            else:
                model.layer.most = most
            for test_name, data in world.tests.items():
                moved = (data["changed"] & data["present"]).sum(-1).float().mean()
                print(f"  {label:24} {test_name:8} {test(model, data)} of {moved:.2f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
