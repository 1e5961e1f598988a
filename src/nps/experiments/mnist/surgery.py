"""Measure rule surgery (paper, section 2: rules can be added and deleted independently).

Deleting the rule of one operation must leave the pictures of the other operations the same, bit for
bit; so must adding a fifth rule and training it on a fifth operation.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.experiments.mnist.compose import CHUNK, rules_in_use
from nps.models.digits import DigitTransformation
from nps.worlds.transformations import OPERATIONS, transform

if TYPE_CHECKING:
    from jaxtyping import Float


class Compared(NamedTuple):
    """A model before and after a change, one entry per operation."""

    before: list[float]
    """MSE."""
    after: list[float]
    """MSE."""
    equal: list[bool]
    """True if all pictures are the same, bit for bit."""


@torch.no_grad()
def compare(
    model: DigitTransformation,
    changed: Sequence[DigitTransformation],
    images: Float[Tensor, "B 64 64"],
    matrices: Float[Tensor, "O 2 3"],
    operations: int = len(OPERATIONS),
) -> list[Compared]:
    """Apply every operation to every image, with the model and with each changed one."""
    errors = torch.zeros(1 + len(changed), operations, device=images.device)
    equal = [[True] * operations for _ in changed]
    for o in range(operations):
        for image in images.split(CHUNK):
            operation = torch.full((len(image),), o, device=images.device)
            target = transform(image, operation, matrices)
            was = model(image, operation)
            answers = [other(image, operation) for other in changed]
            for row, logits in enumerate([was, *answers]):
                errors[row, o] += (logits.sigmoid() - target).square().mean((-2, -1)).sum()
            for same, logits in zip(equal, answers, strict=True):
                same[o] &= torch.equal(was, logits)
    before, *after = (errors / len(images)).tolist()
    return [Compared(before, a, e) for a, e in zip(after, equal, strict=True)]


def deletion(
    model: DigitTransformation,
    images: Float[Tensor, "B 64 64"],
    matrices: Float[Tensor, "O 2 3"],
) -> list[dict[str, Any]]:
    """Delete the rule of each operation in turn.

    Returns:
        One row per operation: its index (`deleted`), the `rule` that served it, and for all
        operations the MSE `before` and `after` and whether the pictures are `equal`. No rows for a
        model with a single rule.
    """
    if len(model.layer.rules) == 1:
        return []
    rule_of = rules_in_use(model, images[:CHUNK], len(OPERATIONS))
    without = []
    for rule in rule_of:
        other = copy.deepcopy(model)
        other.layer.rules.remove(rule)
        without.append(other)
    rows = compare(model, without, images, matrices)
    return [
        {"deleted": o, "rule": rule, **row._asdict()}
        for o, (rule, row) in enumerate(zip(rule_of, rows, strict=True))
    ]


@torch.no_grad()
def fifth(
    original: DigitTransformation,
    model: DigitTransformation,
    images: Float[Tensor, "B 64 64"],
    matrices: Float[Tensor, "O 2 3"],
) -> dict[str, Any]:
    """The old four operations with and without the fifth rule, and the fifth operation.

    Returns:
        `before`, `after` and `equal` as for `deletion`; the fifth operation's `mse`, beside the
        baselines `black` and `copy`, and how often each rule served it (`uses`).
    """
    old = compare(original, [model], images, matrices)[0]
    number = len(OPERATIONS)
    sums = torch.zeros(3, device=images.device)
    uses = torch.zeros(len(model.layer.rules), dtype=torch.long)
    for image in images.split(CHUNK):
        operation = torch.full((len(image),), number, device=images.device)
        target = transform(image, operation, matrices)
        logits, trace = model(image, operation, return_trace=True)
        for row, answer in enumerate((logits.sigmoid(), torch.zeros_like(image), image)):
            sums[row] += (answer - target).square().mean((-2, -1)).sum()
        fired = trace.rule.flatten(1).amax(-1).cpu()
        uses += torch.bincount(fired, minlength=len(uses))
    mse, black, copied = (sums / len(images)).tolist()
    return {**old._asdict(), "mse": mse, "black": black, "copy": copied, "uses": uses.tolist()}
