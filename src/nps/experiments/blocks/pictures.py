"""Pictures of pushes: which rule moved the pushed block, and which block was its context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.blocks.pushes import Pushes, last_fired
from nps.inspect import style
from nps.inspect.report import Figure
from nps.rules import Trace
from nps.worlds.blocks import render
from nps.worlds.blocks.drawing import CELL

if TYPE_CHECKING:
    from jaxtyping import Int


def pushes_figure(
    pushes: Pushes, trace: Trace, slot: Int[Tensor, "objects"], shown: int = 5
) -> Figure:
    """The images before and after some pushes; an arrow from context to pushed block."""
    step = max(1, len(pushes.action) // shown)
    some = torch.arange(0, len(pushes.action), step)[:shown].tolist()
    fired = last_fired(trace, slot[pushes.pushed])
    block_of = {int(m): block for block, m in enumerate(slot)}
    contexts = [block_of.get(int(fired.context[p])) for p in some]
    rules = [int(fired.rule[p]) for p in some]
    with style.settings():
        figure = style.new_figure(3.0 * style.WIDTH / (1.3 * shown))
        axes = figure.subplots(2, len(some), squeeze=False)
        for column, p, context, rule in zip(axes.T, some, contexts, rules, strict=True):
            column[0].imshow(render(pushes.before.at(p)).cpu().numpy())
            column[1].imshow(render(pushes.after.at(p)).cpu().numpy())
            if context is not None:
                middle = (pushes.before.positions[p].cpu().numpy() + 0.5) * CELL - 0.5
                right = context == int(pushes.pusher[p])
                arrow(column[0], middle[context], middle[int(pushes.pushed[p])], right)
            column[0].set_title(f"rule {rule}" if rule >= 0 else "no rule")
        for axis in axes.flat:
            style.image_axes(axis)
        axes[0, 0].set_ylabel("before")
        axes[1, 0].set_ylabel("after")
        drawn = style.png(figure)
    caption = (
        "Pushes. The arrow leads from the block of the contextual slot to the pushed block, whose "
        "rule is named above; red where the context is not the pusher"
    )
    return Figure("pushes", drawn, caption)


def arrow(axis: Any, begin: Any, end: Any, right: bool) -> None:
    """Draw an arrow from one cell (row, column) to another."""
    drawn = {"arrowstyle": "-|>", "color": "white" if right else "red", "linewidth": 2.0}
    axis.annotate("", xy=end[::-1], xytext=begin[::-1], arrowprops=drawn)
