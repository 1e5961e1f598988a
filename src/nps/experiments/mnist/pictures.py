"""What the model makes of a few digits: for the log of a run, and as a picture while training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.mnist.compose import compose, rules_in_use
from nps.inspect.grids import grey, grid
from nps.inspect.pictures import pack
from nps.models.digits import DigitTransformation
from nps.worlds.transformations import EVERY_OPERATION, paste, transform

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from numpy import ndarray

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
    target, output = every_operation(model, images, matrices, operations)
    shown = {"input": images, "target": target, "output": output}
    numbers = torch.tensor([EVERY_OPERATION.index(name) for name in SEQUENCE])
    steps = numbers.to(images.device).unsqueeze(-1).expand(-1, len(images))
    rule_of = rules_in_use(model, images, operations)
    shown |= compose(model, images, steps, rule_of, matrices)._asdict()
    return {name: pack(values.cpu().numpy()) for name, values in shown.items()}


def every_operation(
    model: DigitTransformation,
    images: Float[Tensor, "B 64 64"],
    matrices: Float[Tensor, "O 2 3"],
    operations: int,
) -> tuple[Float[Tensor, "operations B 64 64"], Float[Tensor, "operations B 64 64"]]:
    """Target and output of each image under each operation."""
    every = torch.arange(operations, device=images.device).repeat_interleave(len(images))
    again, shape = images.repeat(operations, 1, 1), (operations, len(images))
    target = transform(again, every, matrices).unflatten(0, shape)
    return target, model(again, every).sigmoid().unflatten(0, shape)


@torch.no_grad()
def digits_picture(
    model: DigitTransformation,
    digits: UInt8[Tensor, "E 28 28"],
    matrices: Float[Tensor, "O 2 3"],
    operations: int,
) -> UInt8[ndarray, "height width 3"]:
    """The first digits under every operation, a column for each: target above output.

    The first column has the inputs. The first row shows what an operation does to the letter F,
    which looks different after each of them.
    """
    images = paste(digits[:SHOWN].to(matrices.device))
    target, output = every_operation(model, images, matrices, operations)
    letter, blank = paste(letter_f().to(images.device)), torch.ones_like(images[0])
    each = torch.arange(operations, device=images.device)
    moved = transform(letter.expand(operations, -1, -1), each, matrices)
    rows = [torch.cat([letter, moved])]
    for b, image in enumerate(images):
        rows += [torch.stack([image, *target[:, b]]), torch.stack([blank, *output[:, b]])]
    return grid(grey(torch.stack(rows).cpu().numpy()))


def letter_f() -> UInt8[Tensor, "1 28 28"]:
    letter = torch.zeros(1, 28, 28, dtype=torch.uint8)
    letter[:, 4:24, 8:12] = letter[:, 4:8, 8:22] = letter[:, 12:16, 8:18] = 255
    return letter
