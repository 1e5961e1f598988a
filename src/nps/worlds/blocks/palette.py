"""Colours and weights of the blocks, sampled for every episode.

Observed weights are shades of ColorBrewer's Blues: the darker, the heavier. Unobserved ones are
colours of its Set1, whose order is arbitrary: the weight of a colour is its position in the list.
The new colours of the few-shot tests are from Set3, with weights between those of Set1. Weights are
twice the position, so that halves are integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int8, UInt8

    Weighted = tuple[Int8[Tensor, "B M"], UInt8[Tensor, "B M 3"]]

BLUES = ["f7fbff", "deebf7", "c6dbef", "9ecae1", "6baed6", "4292c6", "2171b5", "08519c", "08306b"]
SET1 = ["e41a1c", "377eb8", "4daf4a", "984ea3", "ff7f00", "ffff33", "a65628", "f781bf", "999999"]
NEW = {"80b1d3": 4, "ffffb3": 1, "b3de69": 6}
"""Colours of Set3 and their positions. Ke et al. sample new ones for every data set; with a fixed
choice, the data to adapt on and the test data share them."""


def shades(count: int, objects: int, draw: torch.Generator, spread: float) -> Weighted:
    """Evenly spaced shades, each moved by up to `spread` of the distance to the next."""
    gap = 1 / (objects - 1)
    noise = (2 * torch.rand(count, objects, generator=draw, device=draw.device) - 1) * gap * spread
    noise[:, 0] = noise[:, 0].abs()  # the outermost stay on the scale
    noise[:, -1] = -noise[:, -1].abs()
    return _by_shade(torch.arange(objects, device=draw.device) * gap + noise)


def any_shades(count: int, objects: int, draw: torch.Generator) -> Weighted:
    """Uniformly random shades."""
    shade = torch.rand(count, objects, generator=draw, device=draw.device)
    return _by_shade(shade.sort(-1).values)


def set1(count: int, objects: int, draw: torch.Generator, new: int = 0) -> Weighted:
    """Different colours of Set1 and the first `new` ones of `NEW`, in the order of these lists.

    As in the original, a block's index is therefore its rank among the known weights.
    """
    known = len(SET1)
    score = torch.rand(count, known + new, generator=draw, device=draw.device)
    index = score.argsort(-1)[:, :objects].sort(-1).values
    weights = [2 * place for place in range(known)] + [2 * place + 1 for place in NEW.values()]
    return (
        torch.tensor(weights, dtype=torch.int8, device=draw.device)[index],
        _table([*SET1, *NEW], draw.device)[index],
    )


def first(count: int, objects: int, draw: torch.Generator) -> Weighted:
    """The first colours of Set1, the same in every episode."""
    index = torch.arange(objects, device=draw.device).expand(count, objects)
    return (2 * index).to(torch.int8), _table(SET1, draw.device)[index]


def weightless(count: int, objects: int, draw: torch.Generator) -> Weighted:
    """The same colours on blocks of equal weight: none of them pushes."""
    weights, colours = first(count, objects, draw)
    return torch.zeros_like(weights), colours


def blues(shade: Float[Tensor, "*batch"]) -> UInt8[Tensor, "*batch 3"]:
    """From almost white (0) to dark (1), interpolated between the colours of the list."""
    table = _table(BLUES, shade.device).float()
    place = shade * (len(BLUES) - 1)
    below = place.long().clamp(0, len(BLUES) - 2)
    return torch.lerp(table[below], table[below + 1], (place - below)[..., None]).round().byte()


def _by_shade(rising: Float[Tensor, "B M"]) -> Weighted:
    """Block 0 is the darkest and heaviest."""
    weights = torch.arange(rising.shape[-1], 0, -1, dtype=torch.int8, device=rising.device)
    return weights.expand(rising.shape).clone(), blues(rising.flip(-1))


def _table(colours: list[str], device: torch.device) -> UInt8[Tensor, "C 3"]:
    return torch.tensor(
        [list(bytes.fromhex(colour)) for colour in colours], dtype=torch.uint8, device=device
    )
