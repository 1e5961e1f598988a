"""Rule surgery on coordinate arithmetic: write a fourth rule by analogy.

    python benchmarks/surgery_arithmetic.py results/surgery/arithmetic.jsonl [SEED ...]

Models with three rules learn three operations; y subtraction is never shown. Its rule is then
written by hand: the rule of x subtraction with x and y exchanged, in what it reads, in what it adds
and in its condition. That needs no example; then the selection may learn from a few of the new
operation (and as many of the old ones). Beside it: a fourth rule that learns from the same
examples, and fine-tuning all of a model with a fourth rule. A model that has not found the three
operations is reported and left out of the rest.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nps.experiments.arithmetic.presets import PRESETS
from nps.experiments.arithmetic.task import ArithmeticTask, error_of_each, what_fired
from nps.metrics.segregation import segregation, usage_table
from nps.models.arithmetic import CoordinateArithmetic
from nps.rules import free_energy
from nps.training import provenance
from nps.worlds.arithmetic import OPERATIONS, Demonstrations

SEEDS = 10
NEW = OPERATIONS.index("y subtraction")
LIKE = OPERATIONS.index("x subtraction")
STEPS, FEW_STEPS, BATCH = 4_000, 600, 256
RIGHT = 1e-3
"""Largest squared error of what counts as right: a hundredth of what it is to do nothing."""
FEW = (0, 1, 3, 10, 30, 100)
CONFIG = replace(PRESETS["arithmetic-energy"].config, rules=3)


def some(data: Demonstrations, index: Tensor) -> Demonstrations:
    return Demonstrations(*(part[index] for part in data))


def fit(
    model: CoordinateArithmetic,
    data: Demonstrations,
    parameters: list[Tensor],
    steps: int,
    learning_rate: float,
    seed: int,
) -> None:
    """The preset's objective and schedule, on any examples."""
    draw = torch.Generator().manual_seed(seed)
    adam = torch.optim.Adam(parameters, learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps, 0.003 * learning_rate)
    model.train()
    for _ in range(steps):
        size = min(BATCH, len(data.operation))
        index = torch.randint(len(data.operation), (size,), generator=draw)
        before, after = data.before[index], data.after[index]
        log_prior, updated = model.every_update(before, after)
        losses = error_of_each(before, updated, after)
        loss = free_energy(log_prior, losses, CONFIG.energy_temperature).mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        decay.step()
    model.eval()


@torch.no_grad()
def judge(model: CoordinateArithmetic, data: Demonstrations) -> dict[str, float]:
    """Mean squared error of the new operation and of the old ones, and the share done right."""
    error = (model(data.before, data.after) - data.after).square().mean((1, 2))
    new, right = data.operation == NEW, (error < RIGHT).float()
    found = {"new": error[new], "old": error[~new]}
    found |= {"new_right": right[new], "old_right": right[~new]}
    return {name: values.mean().item() for name, values in found.items()}


@torch.no_grad()
def rule_of(model: CoordinateArithmetic, data: Demonstrations) -> tuple[int, float]:
    """The rule of x subtraction, and how well the three rules segregate."""
    old = some(data, (data.operation != NEW).nonzero().squeeze(1))
    _, trace = model(old.before, old.after, return_trace=True)
    table = usage_table(old.operation, what_fired(trace)[1], len(OPERATIONS), 3)
    return int(table[LIKE].argmax()), segregation(table[:NEW])


def write_by_analogy(model: CoordinateArithmetic, like: int) -> None:
    """Overwrite the last rule with another one, x and y exchanged."""
    rules = model.layer.rules
    exchanged = torch.tensor([1, 0])
    read = torch.cat([exchanged, exchanged + 2])  # of the primary point, and of the contextual one
    with torch.no_grad():
        for name, order, dim in (("weight_in", read, 0), ("weight_out", exchanged, 1)):
            part = rules.tensor(name)
            part[-1] = part[like].index_select(dim, order)
        rules.tensor("bias_in")[-1] = rules.tensor("bias_in")[like]
        rules.tensor("bias_out")[-1] = rules.tensor("bias_out")[like][exchanged]
        # A condition that scores every demonstration as the other one scores its mirror image.
        shown = torch.rand(200, 4, generator=torch.Generator().manual_seed(0))
        size = rules.tensor("embedding").shape[1]
        each = model.layer.select(shown.unsqueeze(1), torch.eye(size))[:, 0]
        wanted = model.layer.select(shown[:, read].unsqueeze(1), rules.tensor("embedding"))
        solved = torch.linalg.lstsq(each, wanted[:, 0, like].unsqueeze(1), driver="gelsd").solution
        rules.tensor("embedding")[-1] = solved.squeeze(1)


def acts(name: str) -> bool:
    return name.startswith(("layer.rules.weight", "layer.rules.bias"))


def ways(
    model: CoordinateArithmetic, like: int, seed: int
) -> Iterator[tuple[str, CoordinateArithmetic, list[Tensor]]]:
    """Each way to learn the new operation: its name, a fresh model, what of it learns."""
    for name in ("written by analogy", "new rule", "fine-tuned"):
        other = copy.deepcopy(model)
        torch.manual_seed(seed)  # of the new rule
        other.layer.rules.add(1)
        if name == "written by analogy":
            write_by_analogy(other, like)
        if name == "new rule":
            other.layer.rules.freeze(0, 1, 2)
        learns = [
            p
            for part, p in other.named_parameters()
            if name != "written by analogy" or not acts(part)
        ]
        yield name, other, learns


def measure(seed: int) -> Iterator[dict[str, Any]]:
    task = ArithmeticTask(CONFIG, torch.device("cpu"))
    train, test = task.truth["train"], task.truth["test"]
    old = (train.operation != NEW).nonzero().squeeze(1)
    new = (train.operation == NEW).nonzero().squeeze(1)
    model = task.make_model(seed)
    fit(model, some(train, old), list(model.parameters()), STEPS, CONFIG.learning_rate, seed)
    like, clean = rule_of(model, task.truth["validation"])
    yield {"seed": seed, "part": "before", "segregation": clean, "rule": like, **judge(model, test)}
    if clean < 0.99:
        return
    draw = torch.Generator().manual_seed(seed)
    for count in FEW:
        index = torch.cat(
            [part[torch.randperm(len(part), generator=draw)[:count]] for part in (new, old)]
        )
        for name, other, learns in ways(model, like, seed):
            if count == 0:
                yield {"seed": seed, "part": name, "examples": 0, **judge(other, test)}
                continue
            fit(other, some(train, index), learns, FEW_STEPS, 1e-3, seed)
            yield {"seed": seed, "part": name, "examples": count, **judge(other, test)}


def main() -> None:
    path, seeds = Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]]
    path.parent.mkdir(parents=True, exist_ok=True)
    given = provenance.describe(torch.device("cpu"))
    given |= {"command": " ".join(["python", *sys.argv])}
    with path.open("w") as file:
        for seed in seeds or range(SEEDS):
            for line in measure(seed):
                print(line, flush=True)
                file.write(json.dumps(line | given) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
