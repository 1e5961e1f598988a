"""Pictures that the model draws of a few test digits, small enough for the log of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.mnist.compose import compose, rules_in_use
from nps.inspect.pictures import pack
from nps.models.digits import DigitTransformation
from nps.worlds.transformations import EVERY_OPERATION, paste, transform

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

SHOWN = 3
"""Number of digits."""
SEQUENCE = ("rotate_right", "translate_up", "translate_up", "rotate_left", "translate_down")
"""An example like the paper's, one step longer than the history of any training picture."""


@torch.no_grad()
def pictures(
    model: DigitTransformation,
    digits: UInt8[Tensor, "E 28 28"],
    matrices: Float[Tensor, "O 2 3"],
    operations: int,
) -> dict[str, Any]:
    """Packed grey pictures of the first test digits.

    Returns:
        `input` (B), `target` and `output` (operation, B); and of the sequence in `SEQUENCE`
        `truth`, `pictures` and `slot` (step, B).
    """
    images = paste(digits[:SHOWN].to(matrices.device))
    operation = torch.arange(operations, device=images.device).repeat_interleave(len(images))
    repeated = images.repeat(operations, 1, 1)
    shape = (operations, len(images))
    shown = {
        "input": images,
        "target": transform(repeated, operation, matrices).unflatten(0, shape),
        "output": model(repeated, operation).sigmoid().unflatten(0, shape),
    }
    numbers = torch.tensor([EVERY_OPERATION.index(name) for name in SEQUENCE])
    steps = numbers.to(images.device).unsqueeze(-1).expand(-1, len(images))
    rule_of = rules_in_use(model, images, operations)
    shown |= compose(model, images, steps, rule_of, matrices)._asdict()
    return {name: pack(values.cpu().numpy()) for name, values in shown.items()}
