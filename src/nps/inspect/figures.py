"""Figures, drawn without a screen. matplotlib is an extra: without it reports have none."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray


def available() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def usage_over_training(
    panels: dict[str, tuple[Sequence[int], Float[ndarray, "T O N"]]], operations: Sequence[str]
) -> bytes:
    """How often each rule serves each operation, over training: a row a model (paper, figure 4).

    Args:
        panels: model name -> (epochs, usage tables at those epochs).
        operations: names of the O operations, a column each.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.0 * len(operations), 2.3 * len(panels) + 0.5), layout="constrained")
    axes = figure.subplots(len(panels), len(operations), sharex="row", sharey=True, squeeze=False)
    for row, (name, (epochs, tables)) in enumerate(panels.items()):
        share = tables / np.maximum(tables.sum(-1, keepdims=True), 1)
        for column, operation in enumerate(operations):
            axis = axes[row, column]
            for rule in range(tables.shape[-1]):
                axis.plot(epochs, share[:, column, rule], label=f"rule {rule}", linewidth=1.6)
            axis.set_ylim(-0.03, 1.03)
            axis.grid(alpha=0.3)
            if row == 0:
                axis.set_title(operation)
            axis.set_xlabel("epoch")
            if column == 0:
                axis.set_ylabel(f"{name}\nshare of uses")
    axes[0, -1].legend(loc="center right", fontsize=8)
    return png(figure)


def png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
