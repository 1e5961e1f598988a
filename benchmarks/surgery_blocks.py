"""Rule surgery on blocks: switch the push rule off, and give it to a model that never saw a push.

    nps train blocks-best --mode shapes --epochs 20 --seed 0 --out runs/surgery/free/seed-0
    python benchmarks/surgery_blocks.py results/surgery/blocks.jsonl runs/surgery/free/seed-0 ...

The run is of a world in which blocks only block one another: neither its encoder nor its rules ever
saw a push. In slots of its encoder another rule set is trained where blocks do push: the donor. A
rule of the donor is then copied into the run's rule set, and the selection relearned on a few
transitions, half of them pushes. Beside it: the same transitions for fine-tuning without the copy,
for a new rule, and for a GNN that learned the world without pushes. All learn for as many steps at
the same rate; the numbers are of the first states of 1,000 test episodes. Rules learn from few
transitions by the free energy: straight through, the selection of the copied rule was not relearned
(2 % of pushes after 300; validation and test of seed 0, before this was changed).
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from frozen_blocks import FrozenBlocks, Steps, fit
from torch import Tensor

from nps.models.transitions import RuleTransition, Transition
from nps.training import provenance
from nps.worlds.blocks import Outcome

DONOR_STEPS, GNN_STEPS, FEW_STEPS = 3_000, 3_000, 1_000
RATE, FEW_RATE = 2e-3, 1e-3
GNN_WIDTH = 128
TEMPERATURE = 0.01
"""Of the free energy; a free move is a squared distance of 0.3."""
FEW = (10, 30, 100, 300, 1_000)
"""Pushes in the few transitions; as many others come with them."""


def few(data: Steps, pushes: int, seed: int) -> Steps:
    """Some random pushes and as many other transitions."""
    draw = torch.Generator().manual_seed(seed)
    parts = []
    for which in (data.outcome == Outcome.PUSH, data.outcome != Outcome.PUSH):
        index = which.nonzero().squeeze(1)
        parts.append(index[torch.randperm(len(index), generator=draw)[:pushes]])
    return data.at(torch.cat(parts))


@torch.no_grad()
def push_rule(blocks: FrozenBlocks, donor: RuleTransition, steps: Steps) -> int:
    """The rule that fires most on pushed blocks."""
    some = steps.at(steps.outcome == Outcome.PUSH)
    change = (some.after - some.before).square().sum(-1)
    pusher = blocks.slot_of_block.slot[some.action // 5]
    change[torch.arange(len(change)), pusher] = 0.0
    _, trace = donor.traced(some.before, blocks.given(some.action))
    rule = trace.rule[:, 0].gather(1, change.argmax(1, keepdim=True))
    return int(rule.flatten().mode().values)


def without_rule(blocks: FrozenBlocks, model: Transition, rule: int, test: Steps) -> dict[str, Any]:
    """A transition as it is, with a rule switched off, and with a rule that fires but adds
    nothing."""
    rules = cast("RuleTransition", model).layer.rules
    found: dict[str, Any] = {"all rules": blocks.right(model, test)}
    with rules.disabled(rule):
        found["switched off"] = blocks.right(model, test)
    silent = copy.deepcopy(model)
    with torch.no_grad():
        for name in ("weight_out", "bias_out"):
            cast("RuleTransition", silent).layer.rules.tensor(name)[rule] = 0.0
    found["adds nothing"] = blocks.right(silent, test)
    found["free moves bit for bit the same"] = equal_free(blocks, model, silent, rule, test)
    return found


@torch.no_grad()
def equal_free(
    blocks: FrozenBlocks, model: Transition, silent: Transition, rule: int, test: Steps
) -> float:
    """Share of the acting blocks of free moves that are predicted bit for bit as before."""
    some = test.at(test.outcome == Outcome.FREE)
    was, now = (each(some.before, blocks.given(some.action)) for each in (model, silent))
    row, actor = torch.arange(len(was)), blocks.slot_of_block.slot[some.action // 5]
    return round((was == now)[row, actor].all(-1).double().mean().item(), 4)


def selection(layer: Any) -> list[Tensor]:
    """The parameters by which rules and contexts are chosen."""
    return [p for name, p in layer.named_parameters() if not _acts(name)]


def _acts(name: str) -> bool:
    return name.startswith(("rules.weight", "rules.bias"))


def ways(
    blocks: FrozenBlocks, free: RuleTransition, donor: RuleTransition, rule: int, gnn: Transition
) -> Iterator[tuple[str, Transition, list[Tensor]]]:
    """Each way to learn from few pushes: its name, a fresh model, and what of it learns."""
    copied = copy.deepcopy(free)
    (place,) = copied.layer.rules.add(1)
    copied.layer.rules.copy_from(donor.layer.rules, rule, to=place)
    copied.layer.rules.freeze(*range(place + 1))
    copied.layer.rules.unfreeze(*range(place + 1))
    yield "copied", copied, selection(copied.layer)
    tuned = copy.deepcopy(free)
    yield "fine-tuned", tuned, list(tuned.parameters())
    fresh = copy.deepcopy(free)
    fresh.layer.rules.add(1)
    fresh.layer.rules.freeze(*range(len(free.layer.rules)))
    yield "new rule", fresh, list(fresh.parameters())
    other = copy.deepcopy(gnn)
    yield "gnn", other, list(other.parameters())


def measure(folder: str, split: str) -> Iterator[dict[str, Any]]:
    pushing, calm = FrozenBlocks(folder), FrozenBlocks(folder, "shapes")
    seed, free = pushing.run.seed, cast("RuleTransition", pushing.model.transition)
    test, known = pushing.every_action(split), calm.every_action(split)
    donor = cast("RuleTransition", pushing.make(100 + seed))
    seconds = fit(donor, pushing.train, pushing.loss, DONOR_STEPS, seed=seed, without_context=0.05)
    rule = push_rule(pushing, donor, pushing.train.at(slice(20_000)))
    one = {"seed": seed, "run": folder, "split": split}
    yield one | {
        "part": "switch off",
        "rule": rule,
        "seconds": round(seconds),
        **without_rule(pushing, donor, rule, test),
    }
    gnn = calm.make(100 + seed, transition="gnn", hidden_dim=GNN_WIDTH)
    fit(gnn, calm.train, calm.loss, GNN_STEPS, seed=seed, learning_rate=RATE)
    for name, model in {"rules": free, "gnn": gnn}.items():
        before = {"without pushes": calm.right(model, known), "with": pushing.right(model, test)}
        yield one | {"part": "before", "model": name, **before}

    def energy(model: Transition, data: Steps) -> Tensor:
        return pushing.energy(model, data, TEMPERATURE)

    for pushes in FEW:
        examples = few(pushing.train, pushes, seed)
        for name, model, trained in ways(pushing, free, donor, rule, gnn):
            fit(
                model,
                examples,
                pushing.loss if name == "gnn" else energy,
                FEW_STEPS,
                seed=seed,
                learning_rate=FEW_RATE,
                batch_size=64,
                parameters=trained,
            )
            found = pushing.right(model, test)
            yield one | {"part": "few", "way": name, "pushes": pushes, **found}


def main() -> None:
    path, *folders = sys.argv[1:]
    split = "test"
    if folders[0] == "--validation":
        split, folders = "validation", folders[1:]
    given = provenance.describe(torch.device("cpu"))
    given |= {"command": f"python benchmarks/surgery_blocks.py {' '.join(sys.argv[1:])}"}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("a") as file:
        for folder in folders:
            for line in measure(folder, split):
                print(line, flush=True)
                file.write(json.dumps(line | given) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
