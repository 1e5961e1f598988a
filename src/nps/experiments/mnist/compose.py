"""Apply chosen rules in sequence (appendix, figure "MNIST Transformation Task").

There are two ways. *Through pictures*, as in the paper's demonstration: the output is decoded and
encoded again before the next rule. *In the slot*: rule after rule on the slot, decoded at the end.

Training only shows one rule at a time, on the slot of a true picture that was transformed 0 to
depth - 1 times before. So no rule is trained on a picture drawn by the model, or on a slot that
another rule has changed, and a sequence longer than depth ends in a kind of picture that was never
a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.models.digits import DigitTransformation, OperandNPS
from nps.training import rng
from nps.worlds.transformations import OPERATIONS, paste, transform

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8

WAYS = ("pictures", "slot")
LONGEST = 5
DIGITS = 2_000
"""Test digits on which errors are measured."""
CHUNK = 500
"""Pictures per batch, so that the decoder's activations fit into memory."""


class Composed(NamedTuple):
    """The pictures after each of K steps, as grey levels."""

    truth: Float[Tensor, "K B 64 64"]
    pictures: Float[Tensor, "K B 64 64"]
    slot: Float[Tensor, "K B 64 64"]


def rules_in_use(
    model: DigitTransformation, images: Float[Tensor, "B 64 64"], operations: int
) -> list[int]:
    """The rule that the model selects most often for each operation on these images.

    A model without rules gets the operation as input; for it, the result is the operation.
    """
    if not isinstance(model.layer, OperandNPS):
        return list(range(operations))
    chosen = []
    for o in range(operations):
        operation = torch.full((len(images),), o, device=images.device)
        _, trace = model(images, operation, return_trace=True)
        fired = trace.rule.flatten(1).amax(-1)  # one slot has the rule, the other -1
        chosen.append(int(torch.bincount(fired, minlength=len(model.layer.rules)).argmax()))
    return chosen


def through_pictures(
    model: DigitTransformation, images: Float[Tensor, "B 64 64"], rules: Int[Tensor, "K B"]
) -> Float[Tensor, "K B 64 64"]:
    """The picture after each rule, which is encoded again for the next one."""
    shown = []
    for rule in rules:
        images = model.decode(act(model, model.encode(images), rule))
        shown.append(images)
    return torch.stack(shown)


def in_the_slot(
    model: DigitTransformation, images: Float[Tensor, "B 64 64"], rules: Int[Tensor, "K B"]
) -> Float[Tensor, "K B 64 64"]:
    """The picture after each rule; the next one continues with the slot."""
    slot, shown = model.encode(images), []
    for rule in rules:
        slot = act(model, slot, rule)
        shown.append(model.decode(slot))
    return torch.stack(shown)


def act(
    model: DigitTransformation, slot: Float[Tensor, "B D"], rule: Int[Tensor, "B"]
) -> Float[Tensor, "B D"]:
    """Apply to each slot its own rule; a model without rules gets the operation as input."""
    if not isinstance(model.layer, OperandNPS):
        stepped = model.step(slot, rule)
        assert isinstance(stepped, Tensor)  # without return_trace
        return stepped
    changed = slot.clone()
    for i in rule.unique().tolist():
        here = rule == i
        changed[here] = model.act(slot[here], i)
    return changed


def true_pictures(
    images: Float[Tensor, "B 64 64"],
    operations: Int[Tensor, "K B"],
    matrices: Float[Tensor, "O 2 3"],
) -> Float[Tensor, "K B 64 64"]:
    """The picture after each true transformation."""
    shown = []
    for operation in operations:
        images = transform(images, operation, matrices)
        shown.append(images)
    return torch.stack(shown)


@torch.no_grad()
def compose(
    model: DigitTransformation,
    images: Float[Tensor, "B 64 64"],
    operations: Int[Tensor, "K B"],
    rule_of: Sequence[int],
    matrices: Float[Tensor, "O 2 3"],
) -> Composed:
    """A sequence of operations on each image: the true result, and that of the model's rules."""
    rules = torch.tensor(rule_of, device=operations.device)[operations]
    return Composed(
        true_pictures(images, operations, matrices),
        through_pictures(model, images, rules),
        in_the_slot(model, images, rules),
    )


@torch.no_grad()
def composition(
    model: DigitTransformation,
    digits: UInt8[Tensor, "E 28 28"],
    matrices: Float[Tensor, "O 2 3"],
    operations: int = len(OPERATIONS),
    seed: int = 0,
) -> dict[str, Any]:
    """MSE after 1 to 5 random operations, in both ways, with two baselines.

    Every digit has a random sequence of five, whose first n are its sequence of length n.

    Returns:
        `length`, and for each length the mean over the first 2,000 digits of: `pictures`, `slot`
        (the two ways), `black` (an all-black picture) and `copy` (the true picture before the last
        operation). `rules`: the rule used for each operation.
    """
    device = next(model.parameters()).device
    images = paste(digits[:DIGITS].to(device))
    draw = torch.Generator().manual_seed(rng.derive(seed, "composition"))
    sequences = torch.randint(operations, (LONGEST, len(images)), generator=draw).to(device)
    rule_of = rules_in_use(model, images[:CHUNK], operations)
    sums = torch.zeros(4, LONGEST, device=device)
    for image, sequence in zip(images.split(CHUNK), sequences.split(CHUNK, 1), strict=True):
        truth, *ways = compose(model, image, sequence, rule_of, matrices)
        before = torch.cat([image[None], truth[:-1]])
        for row, answer in enumerate([*ways, torch.zeros_like(truth), before]):
            sums[row] += (answer - truth).square().mean((-2, -1)).sum(-1)
    means = (sums / len(images)).tolist()
    names = (*WAYS, "black", "copy")
    errors = dict(zip(names, means, strict=True))
    return {"length": list(range(1, LONGEST + 1)), **errors, "rules": rule_of}
