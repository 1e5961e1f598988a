"""Where a world model of blocks loses H@1 after ten steps: errors by what happens in a step.

    python benchmarks/blocks_errors.py runs/errors.jsonl RUN RUN ...

One JSON line a run, on fresh validation episodes; the test set is not looked at. An error is the
squared distance of a prediction to what came, over that of a free move; above a quarter it is bad.
A block that is blocked by another must have that one for its context to know it: `looks`.
docs/notes/pushes.md reads it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import torch

from nps.experiments import load_task
from nps.experiments.blocks.pushes import last_fired, slot_changes, slots_of_blocks
from nps.metrics.ranking import ranks
from nps.models.transitions import RuleTransition
from nps.training import provenance
from nps.worlds.blocks import Outcome, render

EPISODES, BAD = 4_000, 0.25
STEPS = torch.tensor([[0, 0], [-1, 0], [0, 1], [1, 0], [0, -1]])
"""Row and column: stay, north, east, south, west."""
CHANGES = {"validation_episodes": EPISODES, "test_episodes": 10}


def share(marks: torch.Tensor) -> float | None:
    return round(marks.double().mean().item(), 4) if len(marks) else None


@torch.no_grad()
def measure(folder: str) -> dict[str, Any]:
    task, model = cast(Any, load_task(folder, changes=CHANGES))
    data = task.sets["validation"]
    states = task.encoded(model, data, range(11))
    parts = zip(states[:, 0].split(500), data.action.split(500), strict=True)
    rolled = torch.cat([model.rollout(*part) for part in parts])
    hit = ranks(rolled[:, 9], states[:, 10]).lenient == 1
    pushed = (data.outcome == Outcome.PUSH).any(1)
    before, after = states[:, :-1].flatten(0, 1), states[:, 1:].flatten(0, 1)
    action, outcome = data.action.flatten(), data.outcome.flatten()
    parts = zip(before.split(5_000), action.split(5_000), strict=True)
    predicted = torch.cat([model.predict(*part) for part in parts])
    moves = (after - before).square().sum((-1, -2))[outcome == Outcome.FREE].mean()
    error = (predicted - after).square().sum((-1, -2)) / moves
    found: dict[str, Any] = {"run": folder, "h1_10": share(hit)}
    found |= {"h1_10_with_a_push": share(hit[pushed]), "h1_10_without": share(hit[~pushed])}
    for kind in (Outcome.FREE, Outcome.PUSH, Outcome.NOTHING):
        some = error[outcome == kind]
        name = kind.name.lower()
        found |= {
            f"{name}_bad": share(some > BAD),
            f"{name}_median": round(some.median().item(), 5),
        }
    return found | blocked(task, model, data, error)


def blocked(task: Any, model: Any, data: Any, error: torch.Tensor) -> dict[str, Any]:
    """Steps in which nothing happens because a block is in the way."""
    position = data.positions[:, :-1].flatten(0, 1)
    action, row = data.action.flatten(), torch.arange(len(position))
    actor, way = action // 5, STEPS[action % 5].to(position)
    there = (position == (position[row, actor] + way)[:, None]).all(-1)
    there[row, actor] = False  # whoever stays is not in its own way
    some = (there.any(1) & (data.outcome.flatten() == Outcome.NOTHING)).nonzero().squeeze(1)
    found: dict[str, Any] = {"blocked_steps": len(some), "blocked_bad": share(error[some] > BAD)}
    if not isinstance(model.transition, RuleTransition):
        return found
    slot = slots_of_blocks(slot_changes(model, task.sets["train"], position.shape[1])).slot
    episode, time = some // data.action.shape[1], some % data.action.shape[1]
    slots = model.encode(render(data.state(episode, time)))
    _, trace = model.traced(slots, action[some])
    fired = last_fired(trace, slot[actor[some]])
    looks = fired.context == slot[there[some].int().argmax(1)]
    bad = error[some] > BAD
    found |= {"looks": share(looks), "bad_if_it_looks": share(bad[looks])}
    return found | {"bad_if_not": share(bad[~looks])}


def main(path: str, *folders: str) -> None:
    with Path(path).open("w") as file:
        file.write(json.dumps(provenance.describe(torch.device("cpu"))) + "\n")
        for folder in folders:
            line = json.dumps(measure(folder))
            print(line, flush=True)
            file.write(line + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
