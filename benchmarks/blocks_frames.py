"""Do the slots of a world model of blocks lie in one frame? What rules that compare slots need.

    python benchmarks/blocks_frames.py runs/frames.jsonl RUN RUN ...

For each slot, on fresh validation states: the block that it shows (the one whose place explains its
encoding best), how light that block's place and the empty ones are on its map, and how far its
encoding is from that of slot 0 at the same place, by the distance of neighbouring places. One JSON
line a run. docs/notes/pushes.md reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from nps.experiments import load_task
from nps.training import provenance
from nps.worlds.blocks import render

STATES, SIDE = 4_000, 5
CHANGES = {"validation_episodes": STATES, "test_episodes": 10}


def means(values: Tensor, place: Tensor) -> Tensor:
    """The mean of a slot's encodings (or maps) at each place of a block."""
    return torch.stack([values[place == k].mean(0) for k in range(SIDE**2)])


def unexplained(encodings: Tensor, place: Tensor) -> float:
    """The share of a slot's variance that is left when the place of a block is known."""
    left = (encodings - means(encodings, place)[place]).square().sum()
    return (left / (encodings - encodings.mean(0)).square().sum()).item()


@torch.no_grad()
def measure(folder: str) -> dict[str, Any]:
    task, model = cast(Any, load_task(folder, changes=CHANGES))
    state = task.sets["validation"].state(torch.arange(STATES), 0)
    images = render(state)
    encodings, maps = model.encode(images), model.encoder.extractor(images).flatten(1, 2)
    place = state.positions[..., 0].long() * SIDE + state.positions[..., 1].long()
    empty = torch.ones(STATES, SIDE**2).scatter_(1, place, 0.0)
    shown, light, dark, frames = [], [], [], []
    for slot in range(encodings.shape[1]):
        left = [unexplained(encodings[:, slot], at) for at in place.unbind(1)]
        shown.append(min(range(len(left)), key=left.__getitem__))
        own = place[:, shown[-1]]
        light.append(maps[torch.arange(STATES), own, slot].mean().item())
        dark.append((maps[..., slot] * empty).sum().item() / empty.sum().item())
        frames.append(means(encodings[:, slot], own))
    grid = frames[0].unflatten(0, (SIDE, SIDE))
    beside = torch.cat(
        [(grid[1:] - grid[:-1]).flatten(0, 1), (grid[:, 1:] - grid[:, :-1]).flatten(0, 1)]
    )
    apart = [(f - frames[0]).norm(dim=-1).mean() / beside.norm(dim=-1).mean() for f in frames]
    numbers = {
        "at_its_block": light,
        "at_empty_places": dark,
        "from_slot_0": [a.item() for a in apart],
    }
    return {
        "run": folder,
        "shows": shown,
        **{k: [round(x, 3) for x in v] for k, v in numbers.items()},
    }


def main() -> None:
    path, *folders = sys.argv[1:]
    with Path(path).open("w") as file:
        file.write(json.dumps(provenance.describe(torch.device("cpu"))) + "\n")
        for folder in folders:
            row = json.dumps(measure(folder))
            file.write(row + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main()
