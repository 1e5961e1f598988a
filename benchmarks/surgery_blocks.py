"""Rule surgery on blocks: switch the push rule off, and give it to a model that never saw a push.

    nps train blocks-best --seeds 5 --out runs/surgery/blocks-best
    nps train blocks-best --mode shapes --epochs 20 --seeds 3 --out runs/surgery/free
    nps train blocks-fixed-gnn --mode shapes --epochs 20 --batch-size 256 --hidden-dim 128 \\
        --learning-rate 2e-3 --final-learning-rate 1e-5 --seeds 3 --out runs/surgery/gnn
    python benchmarks/surgery_blocks.py results/surgery/blocks.jsonl runs/surgery/*/seed-*

A run of a world with pushes is tested without its push rule. A run of a world in which blocks only
block one another is given one: neither its encoder nor its rules ever saw a push. In slots of its
encoder another rule set is trained where blocks do push, the donor. A rule of the donor is then
copied into the run's rule set, and the selection relearned on a few transitions, half of them
pushes. Beside it the same transitions for fine-tuning without the copy, for a new rule, and for a
GNN with an encoder of its own that learned the world without pushes, too. All learn for as many
steps at the same rate, and encoders stay as they are; the GNN also learns from every transition, to
show that it can. The numbers are of the first states of 1,000 test episodes. Rules learn from few
transitions by the free energy: straight through, the selection of the copied rule was not relearned
(2 % of pushes after 300; validation and test of seed 0, before this was changed).
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from frozen_blocks import FrozenBlocks, Steps, fit
from torch import Tensor

from nps.experiments.blocks.config import Config
from nps.models.transitions import RuleTransition, Transition
from nps.training import provenance
from nps.worlds.blocks import Outcome

DONOR_STEPS, FEW_STEPS, ALL_STEPS = 3_000, 1_000, 5_000
RATE = 1e-3
TEMPERATURE = 0.01
"""Of the free energy; a free move is a squared distance of 0.3."""
FEW = (10, 30, 100, 300, 1_000)
"""Pushes in the few transitions; as many others come with them."""

Loss = Callable[[Transition, Steps], Tensor]


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
    free: RuleTransition, donor: RuleTransition, rule: int
) -> Iterator[tuple[str, Transition, list[Tensor]]]:
    """Each way to learn from few pushes: its name, a fresh model, and what of it learns."""
    copied = copy.deepcopy(free)
    (place,) = copied.layer.rules.add(1)
    copied.layer.rules.copy_from(donor.layer.rules, rule, to=place)
    yield "copied", copied, selection(copied.layer)
    tuned = copy.deepcopy(free)
    yield "fine-tuned", tuned, list(tuned.parameters())
    fresh = copy.deepcopy(free)
    fresh.layer.rules.add(1)
    fresh.layer.rules.freeze(*range(len(free.layer.rules)))
    yield "new rule", fresh, list(fresh.parameters())


def measure(folder: str, split: str) -> Iterator[dict[str, Any]]:
    """The lines of a run: without its push rule, or with pushes where it never saw one."""
    blocks = FrozenBlocks(folder)
    trained = cast("Config", blocks.run.config)
    one = {"seed": blocks.run.seed, "run": folder, "split": split}
    lines = without_pushes if trained.mode != "shapes" else given_pushes
    if trained.transition == "gnn":
        lines = gnn_given_pushes
    return (one | line for line in lines(blocks, split))


def without_pushes(blocks: FrozenBlocks, split: str) -> Iterator[dict[str, Any]]:
    model = cast("RuleTransition", blocks.model.transition)
    rule = push_rule(blocks, model, blocks.train.at(slice(20_000)))
    found = without_rule(blocks, model, rule, blocks.every_action(split))
    yield {"part": "switch off", "rule": rule, **found}


def given_pushes(blocks: FrozenBlocks, split: str) -> Iterator[dict[str, Any]]:
    seed, free = blocks.run.seed, cast("RuleTransition", blocks.model.transition)
    test = blocks.every_action(split)
    donor = cast("RuleTransition", blocks.make(100 + seed))
    seconds = fit(donor, blocks.train, blocks.loss, DONOR_STEPS, seed=seed, without_context=0.05)
    rule = push_rule(blocks, donor, blocks.train.at(slice(20_000)))
    yield {"part": "donor", "rule": rule, "seconds": round(seconds), **blocks.right(donor, test)}
    yield before(blocks, split)

    def energy(model: Transition, data: Steps) -> Tensor:
        return blocks.energy(model, data, TEMPERATURE)

    for pushes in FEW:
        examples = few(blocks.train, pushes, seed)
        for name, model, trained in ways(free, donor, rule):
            fit_few(model, examples, energy, seed, trained)
            yield {"part": "few", "way": name, "pushes": pushes, **blocks.right(model, test)}


def gnn_given_pushes(blocks: FrozenBlocks, split: str) -> Iterator[dict[str, Any]]:
    seed, test = blocks.run.seed, blocks.every_action(split)
    yield before(blocks, split)
    for pushes in FEW:
        model = copy.deepcopy(blocks.model.transition)
        fit_few(model, few(blocks.train, pushes, seed), blocks.loss, seed)
        yield {"part": "few", "way": "gnn", "pushes": pushes, **blocks.right(model, test)}
    model = copy.deepcopy(blocks.model.transition)
    fit(model, blocks.train, blocks.loss, ALL_STEPS, seed=seed, learning_rate=RATE)
    pushes = int((blocks.train.outcome == Outcome.PUSH).sum())
    yield {"part": "all", "way": "gnn", "pushes": pushes, **blocks.right(model, test)}


def before(blocks: FrozenBlocks, split: str) -> dict[str, Any]:
    """The model as it was trained, where blocks push and where they do not."""
    calm = FrozenBlocks(str(blocks.run.folder), "shapes")
    return {
        "part": "before",
        "without pushes": calm.right(calm.model.transition, calm.every_action(split)),
        "with": blocks.right(blocks.model.transition, blocks.every_action(split)),
    }


def fit_few(
    model: Transition, examples: Steps, loss: Loss, seed: int, trained: list[Tensor] | None = None
) -> None:
    size = {"learning_rate": RATE, "batch_size": 64}
    fit(model, examples, loss, FEW_STEPS, seed=seed, parameters=trained, **size)


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
