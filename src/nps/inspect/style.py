"""One style for every figure: a model keeps its colour and marker wherever it is drawn.

NPS is blue circles, parallel NPS light-blue squares, the GNN orange triangles, attention green
diamonds, models without slots or rules purple, baselines that learn nothing grey dashes, the
paper's own numbers black stars. The colours stay apart under deuteranopia and protanopia (a test
measures it), and no figure relies on colour alone.

Figures are 7 inches wide at most and are shown about 700 pixels wide, so a point of type is a
little more than a pixel and 8 points stay readable.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

WIDTH = 7.0
"""Inches; the docs show a figure at this width times 100 pixels."""
DPI = 160

RULES = ("#332288", "#DDAA33", "#000000", "#66B5DC", "#8C510A", "#7A7A7A")
"""Colours of the rules of one model; their lines differ too."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
FILLS = ("full", "none", "left", "bottom")
"""Variants of one model: the first is solid, the second hollow and dashed, and so on."""

SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class ModelStyle:
    """How one model is drawn."""

    colour: str
    marker: str


MODELS = {
    "NPS": ModelStyle("#0058A8", "o"),
    "parallel NPS": ModelStyle("#6CC0F5", "s"),
    "GNN": ModelStyle("#E66F00", "^"),
    "attention": ModelStyle("#1B7A3D", "D"),
    "other": ModelStyle("#A83279", "v"),
}
MARKS = {
    "gnn": "GNN",
    "c-swm": "GNN",
    "attention": "attention",
    "transformer": "attention",
    "mlp": "other",
    "parallel": "parallel NPS",
    "nps": "NPS",
}
"""Part of a label -> the model that it names; the first match counts."""
FLOOR = ModelStyle("#9A9A9A", "")
PAPER = ModelStyle("#000000", "*")


def model_of(label: str) -> str:
    """The model that a label names, as a key of `MODELS`.

    A label reads `[world: ]model[, variant]`: "NPS, aligned negatives", "Fixed palette: GNN".
    """
    words = label.lower()
    found = (name for mark, name in MARKS.items() if mark in words)
    return next(found, "other")


def line(label: str, variant: int = 0) -> dict[str, Any]:
    """Keyword arguments of `Axes.plot` for a line of the model that `label` names.

    Args:
        label: the line's name in the legend.
        variant: 0 for the first line of a model in a figure, 1 for its second, and so on.
    """
    return {"linestyle": DASHES[variant % len(DASHES)], **points(label, variant)}


def points(label: str, variant: int = 0) -> dict[str, Any]:
    """The same without a line between the points."""
    style = MODELS[model_of(label)]
    return {
        "color": style.colour,
        "marker": style.marker,
        "fillstyle": FILLS[variant % len(FILLS)],
        "markerfacecoloralt": "white",
        "label": label,
    }


def floor(label: str, variant: int = 0) -> dict[str, Any]:
    """A baseline that learns nothing."""
    return {"color": FLOOR.colour, "linestyle": ("--", ":")[variant % 2], "label": label}


def paper(label: str, variant: int = 0) -> dict[str, Any]:
    """Numbers that the paper reports."""
    fill = FILLS[variant % len(FILLS)]
    marker = {"color": PAPER.colour, "marker": PAPER.marker, "markersize": 8, "fillstyle": fill}
    return {**marker, "linestyle": "none", "label": label}


def variants(labels: Iterable[str]) -> dict[str, int]:
    """The variant of each label: how many labels of the same model come before it."""
    before: dict[str, int] = {}
    numbered = {}
    for label in dict.fromkeys(labels):
        model = model_of(label)
        numbered[label] = before.get(model, 0)
        before[model] = numbered[label] + 1
    return numbered


def new_figure(height: float, width: float = WIDTH) -> Any:
    """An empty figure in this style, in inches. Draw on it inside `settings()`."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def settings() -> Any:
    """A context in which matplotlib draws in this style."""
    import matplotlib

    return matplotlib.rc_context(SETTINGS)


def plain_log_ticks(axis: Any) -> None:
    """Numbers such as 0.2, 0.5, 1, 2 along a logarithmic axis, at least two of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def image_axes(axis: Any) -> None:
    """Axes that hold an image: a frame, no ticks, no grid."""
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
    axis.spines[:].set_visible(True)


def png(figure: Any) -> bytes:
    """The figure as the bytes of a PNG file, the same every time."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()
