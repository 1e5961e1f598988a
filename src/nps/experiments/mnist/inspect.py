"""What `nps inspect` shows of a run of mnist: its rules, and digits transformed by chosen rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nps.errors import UserError, extra, nearest
from nps.experiments.mnist.compose import (
    CHUNK,
    Composed,
    compose,
    in_the_slot,
    rules_in_use,
    through_pictures,
)
from nps.inspect import figures
from nps.inspect.report import Figure, Part, Table, Text
from nps.inspect.rules import rule_table, usage
from nps.metrics.segregation import usage_table
from nps.models.digits import DigitTransformation, OperandNPS
from nps.worlds import mnist
from nps.worlds.transformations import EVERY_OPERATION, paste

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from nps.experiments.mnist.task import MnistTask

MOST = 20
"""Most digits, and most steps, that fit a picture."""


@dataclass(frozen=True)
class InspectOptions:
    """Flags of `nps inspect` for runs of mnist."""

    compose: str = ""
    """Operations to apply in sequence (rotate_right,translate_up), each by the model's own rule."""
    rules: str = ""
    """Rules to apply in sequence instead, by index (0,2)."""
    index: str = "0,1,2,3"
    """Test images to transform, by index."""
    digits: str = ""
    """Test images to transform, by digit (7,7,2): each is the first one that is not yet taken."""

    def __post_init__(self) -> None:
        if self.compose and self.rules:
            raise ValueError("compose, rules: got both, expected one of the two")
        for operation in self.operations:
            if operation not in EVERY_OPERATION:
                hint = nearest(operation, EVERY_OPERATION)
                raise ValueError(f"compose: unknown operation {operation!r}{hint}")
        for name in ("rules", "digits", "index"):
            integers(name, getattr(self, name))
        if not self.digits and not self.index:
            raise ValueError("index: got none, expected some, e.g. 0,15,300")
        if max(len(self.operations), len(integers("rules", self.rules))) > MOST:
            raise ValueError(f"compose: got more than {MOST} steps, expected at most {MOST}")
        if any(digit > 9 for digit in integers("digits", self.digits)):
            raise ValueError(f"digits: got {self.digits!r}, expected digits from 0 to 9")

    @property
    def operations(self) -> list[str]:
        return [name.strip() for name in self.compose.split(",")] if self.compose else []


def integers(name: str, text: str) -> list[int]:
    """Parse integers separated by commas."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() for part in parts) or len(parts) > MOST:
        raise ValueError(f"{name}: got {text!r}, expected up to {MOST} numbers, e.g. 0,2")
    return [int(part) for part in parts]


def inspect_digits(
    task: MnistTask, model: DigitTransformation, options: InspectOptions
) -> Sequence[Part]:
    """The rules of the model, or what a sequence of them does to some test digits."""
    if not options.compose and not options.rules:
        return rule_use(task, model)
    if not figures.available():
        flag = "--compose" if options.compose else "--rules"
        raise UserError(f"{flag} draws a picture: {extra('plots')}")
    images, names = chosen_digits(task, options)
    if options.compose:
        return by_operation(task, model, images, names, options.operations)
    return by_rule(model, images, names, integers("rules", options.rules))


@torch.no_grad()
def rule_use(task: MnistTask, model: DigitTransformation) -> list[Part]:
    """Which rule serves which operation, over the first test digits."""
    digits, chains = task.digits["test"][:CHUNK], task.chains["test"][:CHUNK]
    errors: list[Tensor] = []
    rules: list[Tensor] = []
    for part in zip(digits.split(100), chains.split(100), strict=True):
        pairs = task.chain_pairs(*part)
        logits, trace = model(pairs.before, pairs.operation, return_trace=True)
        errors.append((logits.sigmoid() - pairs.after).square().mean((-2, -1)))
        rules.append(trace.rule.flatten(1).amax(-1))
    mse = torch.cat(errors).mean().item()
    over = f"the first {len(digits)} test digits; MSE {mse:.4f}"
    if not isinstance(model.layer, OperandNPS):
        return [Text(f"No rules: one MLP gets the operation as input. Over {over}")]
    operation, rule = chains.flatten().cpu(), torch.cat(rules).cpu()
    table = usage_table(operation, rule, len(task.operations), len(model.layer.rules))
    caption = f"Uses over {over}"
    return [
        usage(task.operations, table, caption),
        rule_table(model.layer.rules, task.operations, table),
    ]


def chosen_digits(
    task: MnistTask, options: InspectOptions
) -> tuple[Float[Tensor, "B 64 64"], list[str]]:
    """The chosen test images, and their names."""
    test = task.digits["test"]
    labels = mnist.load(task.config.world).test.labels[: len(test)]
    if options.digits:
        places = first_showing(labels, integers("digits", options.digits))
    else:
        places = integers("index", options.index)
    for place in places:
        if place >= len(test):
            raise UserError(f"--index: got {place}, expected 0 to {len(test) - 1}")
    names = [f"{labels[place].item()} (test {place})" for place in places]
    return paste(test[torch.tensor(places, device=test.device)]), names


def first_showing(labels: Int[Tensor, "E"], digits: Sequence[int]) -> list[int]:
    """The indices of the first images that show these digits, all different."""
    found: list[int] = []
    for digit in digits:
        shows: list[int] = (labels == digit).nonzero().flatten().tolist()
        left = [place for place in shows if place not in found]
        if not left:
            raise UserError(f"--digits: only {len(shows)} test images show a {digit}")
        found.append(left[0])
    return found


def by_operation(
    task: MnistTask,
    model: DigitTransformation,
    images: Float[Tensor, "B 64 64"],
    names: Sequence[str],
    operations: Sequence[str],
) -> list[Part]:
    """The true pictures and the model's, after each operation."""
    for name in operations:
        if name not in task.operations:
            raise UserError(f"--compose: this model was not trained on {name}")
    steps = torch.tensor([task.operations.index(name) for name in operations])
    rule_of = rules_in_use(model, paste(task.digits["test"][:CHUNK]), len(task.operations))
    sequence = steps.to(images.device).unsqueeze(-1).expand(-1, len(images))
    shown = compose(model, images, sequence, rule_of, task.matrices)
    chooses = isinstance(model.layer, OperandNPS)
    rules = [f"rule {rule_of[int(step)]}" if chooses else "no rule" for step in steps]
    columns = [f"{name}\n{rule}" for name, rule in zip(operations, rules, strict=True)]
    ways = {"truth": shown.truth, "through pictures": shown.pictures, "in the slot": shown.slot}
    errors = error_table(images, shown, operations, rules)
    return [errors, drawing(images, names, ways, columns, operations)]


def error_table(
    images: Tensor, shown: Composed, operations: Sequence[str], rules: Sequence[str]
) -> Table:
    before = torch.cat([images[None], shown.truth[:-1]])
    answers = (shown.pictures, shown.slot, torch.zeros_like(before), before)
    columns = [(answer - shown.truth).square().mean((1, 2, 3)).tolist() for answer in answers]
    rows = [
        [f"{k + 1}", operations[k], rules[k], *(f"{column[k]:.4f}" for column in columns)]
        for k in range(len(operations))
    ]
    caption = (
        "MSE over these digits after each step. Through pictures: decoded and encoded again before "
        "the next rule. In the slot: rule after rule, decoded only to be shown. Copy: the true "
        "picture before the step."
    )
    head = ["Step", "Operation", "Rule", "Through pictures", "In the slot", "Black", "Copy"]
    return Table(head, rows, caption)


@torch.no_grad()
def by_rule(
    model: DigitTransformation,
    images: Float[Tensor, "B 64 64"],
    names: Sequence[str],
    rules: Sequence[int],
) -> list[Part]:
    """The picture after each rule, whichever operation it serves."""
    if not isinstance(model.layer, OperandNPS):
        raise UserError("--rules: this model has no rules; use --compose")
    count = len(model.layer.rules)
    for rule in rules:
        if rule >= count:
            raise UserError(f"--rules: there is no rule {rule}, expected 0 to {count - 1}")
    sequence = torch.tensor(rules, device=images.device).unsqueeze(-1).expand(-1, len(images))
    ways = {
        "through pictures": through_pictures(model, images, sequence),
        "in the slot": in_the_slot(model, images, sequence),
    }
    columns = [f"rule {rule}" for rule in rules]
    return [drawing(images, names, ways, columns, columns)]


def drawing(
    images: Tensor,
    names: Sequence[str],
    ways: dict[str, Tensor],
    columns: Sequence[str],
    steps: Sequence[str],
) -> Figure:
    """A row for each digit and way: the digit, then the picture after each step."""
    rows: list[tuple[str, Any]] = []
    for b, name in enumerate(names):
        for way, pictures in ways.items():
            row = torch.cat([images[b][None], pictures[:, b]])
            rows.append((f"{name}\n{way}", row.cpu().numpy().astype(np.float32)))
    png = figures.picture_rows(rows, ["digit", *columns])
    return Figure("compose", png, f"The picture after each of {', '.join(steps)}")
