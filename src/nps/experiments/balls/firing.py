"""Which rule fires on which slot when: the paper's figure for bouncing balls (appendix E.2).

Of a single rule, which fires on every slot in every frame, that would say nothing; which slot is
its context does, beside who truly collides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from nps.experiments.balls.collisions import chosen_contexts
from nps.inspect import style
from nps.rules import Trace

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64

FAINT = "#9a9a9a"
TOLD, MISSED = "#a9d6f5", "#ffd9a8"
"""Behind the cells of slots whose balls collide: the context is the ball that is hit, or not."""
LARGE, SMALL = 8.0, 6.0
"""Font sizes of the numbers."""


def firing_figure(
    trace: Trace,
    change: Float[Tensor, "T M"],
    collided: Bool[Tensor, "T M M"],
    seen: int,
    loud: float | None = None,
) -> bytes:
    """A row for each slot, a column of stages for each frame. The number is the rule that fires;
    of a layer with one rule alone, the contextual slot.

    Args:
        trace: what fired in one scene, (T, K, M).
        change: how much each slot was changed in each frame.
        collided: whether the balls that two slots show hit each other: those cells are blue if
            one is the context of the other, else orange.
        seen: number of frames with input; a line separates the others.
        loud: how large a change is that tells of a collision: those numbers are bold and dark.
    """
    rule, context = (x.cpu().numpy() for x in (trace.rule, trace.context))
    frames, stages, slots = rule.shape
    single = one_rule(trace)
    bold = np.zeros((frames, slots), bool) if loud is None else change.cpu().numpy() > loud
    with style.settings():
        from matplotlib.patches import Rectangle

        figure = style.new_figure(0.3 * slots + 0.8, style.WIDTH)
        axis = figure.subplots()
        axis.grid(False)
        right = (chosen_contexts(trace) & collided).any(-1)
        for t, m in collided.any(-1).nonzero().tolist():
            colour = TOLD if right[t, m] else MISSED
            axis.add_patch(Rectangle((t, m - 0.5), 1, 1, color=colour, linewidth=0))
        for t, k, m in zip(*(rule >= 0).nonzero(), strict=True):
            number = context[t, k, m] if single else rule[t, k, m]
            how = text_style(int(rule[t, k, m]), bool(bold[t, m]), loud is not None, single)
            if number >= 0:
                axis.text(t + (k + 0.5) / stages, m, str(number), ha="center", va="center", **how)
        axis.set_xlim(0, frames)
        axis.set_ylim(slots - 0.5, -0.5)
        axis.set_yticks(range(slots))
        axis.set_xticks(np.arange(0, frames, 5) + 0.5, range(1, frames + 1, 5))
        axis.axvline(seen, color="black", linewidth=1)
        axis.set_xlabel("predicted frame; right of the line without input")
        axis.set_ylabel("slot")
        return style.png(figure)


def one_rule(trace: Trace) -> bool:
    """Whether the layer has a single rule, and thus the number of what fires says nothing."""
    return trace.rule_scores.shape[-1] == 1


def text_style(rule: int, bold: bool, bolds: bool, single: bool) -> dict[str, object]:
    """Of a number: those that tell of a collision stand out; rules have their colours."""
    colour = "black" if single else style.RULES[rule % len(style.RULES)]
    if not bolds:
        return {"color": colour, "size": SMALL}
    if bold:
        return {"color": colour, "size": LARGE, "weight": "bold"}
    return {"color": FAINT if single else colour, "size": SMALL}


def collisions_of_slots(
    collided: Bool[Tensor, "T M M"], slot_of_ball: Int64[Tensor, "M"], slots: int
) -> Bool[Tensor, "T slots slots"]:
    """Which slots show balls that have hit each other."""
    shown = F.one_hot(slot_of_ball.clamp(min=0), slots) * (slot_of_ball >= 0).unsqueeze(-1)
    of_slots: Tensor = shown.T.float() @ collided.float() @ shown.float()
    return of_slots > 0
