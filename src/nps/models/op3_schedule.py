"""When OP3 refines its slots and when it moves them on, and how much the loss of each step counts.

The benchmark's schedule "rprp": some refinements of the first frame, then for each other frame a
move and refinements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Step = Literal["refine", "move"]


def rprp(frames: int, *, first: int = 4, later: int = 2) -> list[Step]:
    """Refinements of the first frame, then for each other frame a move and refinements."""
    start: list[Step] = ["refine"] * first
    then: list[Step] = ["move"]
    then += ["refine"] * later
    return start + (frames - 1) * then


def require_schedule(schedule: Sequence[Step], frames: int) -> None:
    """Refuse unknown steps, and refinements on frames that there are none of."""
    frame = 0
    for i, step in enumerate(schedule):
        if step not in get_args(Step):
            raise ValueError(
                f"schedule: got {step!r} in place {i}, expected one of {get_args(Step)}"
            )
        frame += step == "move"
        if step == "refine" and frame >= frames:
            raise ValueError(
                f"schedule: got a refinement on frame {frame}, expected one of {frames} frames"
            )


def loss_weights(schedule: Sequence[Step]) -> list[float]:
    """Weights of the steps' losses, which sum to 1: later refinements of a frame count more, and a
    move counts as much as the last of them."""
    weights: list[float] = []
    for i, step in enumerate(schedule):
        if step == "move":
            weights.append(1.0)
            continue
        start = max((j for j in range(i) if schedule[j] == "move"), default=-1)
        end = next((j for j in range(i, len(schedule)) if schedule[j] == "move"), len(schedule))
        weights.append((i - start) / (end - start - 1))
    return [weight / sum(weights) for weight in weights]
