"""Pictures of pushes: the contextual slot's block, the pushed block and the rule that fired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.blocks.pushes import Pushes, last_fired
from nps.inspect.figures import png
from nps.inspect.report import Figure
from nps.rules import Trace
from nps.worlds.blocks import render
from nps.worlds.blocks.drawing import CELL

if TYPE_CHECKING:
    from jaxtyping import Int


def pushes_figure(
    pushes: Pushes, trace: Trace, slot: Int[Tensor, "objects"], shown: int = 8
) -> Figure:
    """The images before and after some pushes; an arrow from context to pushed block."""
    from matplotlib.figure import Figure as Drawing

    step = max(1, len(pushes.action) // shown)
    some = torch.arange(0, len(pushes.action), step)[:shown].tolist()
    fired = last_fired(trace, slot[pushes.pushed])
    block_of = {int(m): block for block, m in enumerate(slot)}
    figure = Drawing(figsize=(1.6 * len(some), 3.6), layout="constrained")
    axes = figure.subplots(2, len(some), squeeze=False)
    for column, p in zip(axes.T, some, strict=True):
        column[0].imshow(render(pushes.before.at(p)).cpu().numpy())
        column[1].imshow(render(pushes.after.at(p)).cpu().numpy())
        context = block_of.get(int(fired.context[p]))
        middle = (pushes.before.positions[p].cpu().numpy() + 0.5) * CELL - 0.5
        if context is not None:
            right = context == int(pushes.pusher[p])
            arrow(column[0], middle[context], middle[int(pushes.pushed[p])], right)
        rule = int(fired.rule[p])
        column[0].set_title(f"rule {rule}" if rule >= 0 else "no rule", fontsize=8)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0, 0].set_ylabel("before", fontsize=8)
    axes[1, 0].set_ylabel("after", fontsize=8)
    caption = (
        "Pushes. The arrow points from the contextual slot's block to the pushed one, the primary "
        "slot's, and is red where the context is not the pusher; above: the rule that fired"
    )
    return Figure("pushes", png(figure), caption)


def arrow(axis: Any, begin: Any, end: Any, right: bool) -> None:
    """Draw an arrow from one cell (row, column) to another."""
    style = {"arrowstyle": "-|>", "color": "white" if right else "red", "linewidth": 2.0}
    axis.annotate("", xy=end[::-1], xytext=begin[::-1], arrowprops=style)
