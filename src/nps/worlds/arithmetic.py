"""Coordinate arithmetic (paper, section 4.1 and appendix "Coordinate Arithmetic Task").

Two points in the plane; one of four operations changes one of them, the primary, with a contextual
point as second argument. The model sees the points before and after and has to infer the operation,
the primary point and the contextual point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

OPERATIONS = ("x addition", "x subtraction", "y addition", "y subtraction")
POINTS = 2

Reading = Literal["any", "other"]


class Demonstrations(NamedTuple):
    """E examples, each with its true operation, primary point and contextual point."""

    before: Float[Tensor, "E 2 2"]
    after: Float[Tensor, "E 2 2"]
    operation: Int[Tensor, "E"]
    primary: Int[Tensor, "E"]
    context: Int[Tensor, "E"]

    def to(self, device: torch.device | str) -> Demonstrations:
        return Demonstrations(*(part.to(device) for part in self))


def demonstrate(count: int, seed: int, reading: Reading = "any") -> Demonstrations:
    """Draw demonstrations with coordinates uniform in [0, 1).

    Args:
        count: number of examples E.
        seed: equal seeds give equal demonstrations.
        reading: the contextual point is "selected randomly from the input X" (appendix): `any` of
            the two, the primary itself included; or the `other` one ("another randomly selected
            coordinate", main text).
    """
    draw = torch.Generator().manual_seed(seed)
    before = torch.rand(count, POINTS, 2, generator=draw)
    operation = torch.randint(len(OPERATIONS), (count,), generator=draw)
    primary = torch.randint(POINTS, (count,), generator=draw)
    context = torch.randint(POINTS, (count,), generator=draw)
    if reading == "other":
        context = 1 - primary
    axis = operation // 2
    sign = 1.0 - 2.0 * (operation % 2)
    example = torch.arange(count)
    after = before.clone()
    after[example, primary, axis] += sign * before[example, context, axis]
    return Demonstrations(before, after, operation, primary, context)
