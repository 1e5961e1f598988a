"""Figures, drawn without a screen. matplotlib is an extra: without it reports have none."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
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


def picture_rows(
    rows: Sequence[tuple[str, Float[ndarray, "K H W"]]], columns: Sequence[str]
) -> bytes:
    """Grey pictures in a grid.

    Args:
        rows: (name, its K pictures), grey levels in [0, 1]; NaN leaves a place empty.
        columns: what stands above the K columns.
    """
    from matplotlib.figure import Figure

    size = (1.0 * len(columns) + 1.2, 1.0 * len(rows) + 0.3)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    for (name, pictures), line in zip(rows, axes, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_frame_on(not np.isnan(picture).all())
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    for axis, column in zip(axes[0], columns, strict=True):
        axis.set_title(column, fontsize=8)
    return png(figure)


def error_over_length(
    lengths: Sequence[int],
    lines: Mapping[str, Mapping[str, Float[ndarray, "S K"]]],
    floors: Mapping[str, Sequence[float]],
    trained_to: int,
) -> bytes:
    """Error of composed operations over their number: medians over seeds, with their range.

    Args:
        lengths: how many operations.
        lines: model -> way of composing (two at most) -> errors of S seeds at each length.
        floors: name -> what no model is needed for, at each length.
        trained_to: the longest history of a picture in training.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 5.0), layout="constrained")
    axis = figure.subplots()
    for m, (name, ways) in enumerate(lines.items()):
        # Side by side: models that do the same would hide each other.
        places = np.asarray(lengths) + 0.07 * (m - (len(lines) - 1) / 2)
        colour = f"C{m}"
        looks = (("-", colour), ("-.", "white"))
        for (way, errors), (style, inside) in zip(ways.items(), looks, strict=False):
            middle = np.median(errors, 0)
            reach = [middle - errors.min(0), errors.max(0) - middle]
            axis.errorbar(
                places,
                middle,
                reach,
                color=colour,
                linestyle=style,
                linewidth=1.2,
                marker="o",
                markerfacecolor=inside,
                capsize=3,
                label=f"{name}, {way}",
            )
    for (name, values), style in zip(floors.items(), ("--", ":"), strict=False):
        axis.plot(lengths, values, style, color="gray", label=name)
    axis.axvline(trained_to + 0.5, color="gray", linewidth=0.8)
    axis.set_xticks(list(lengths))
    axis.set_yscale("log")
    axis.set_xlabel("operations, one after the other")
    axis.set_ylabel("MSE")
    axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return png(figure)


def means_over(
    panels: Mapping[str, Mapping[str, Mapping[int, Float[ndarray, "S"]]]],
    x: str,
    y: str,
    floor: str | None = None,
) -> bytes:
    """Means over seeds with their standard deviation, three panels at most beside each other.

    Args:
        panels: name -> line -> place on the x axis -> numbers of S seeds.
        x, y: what the axes show.
        floor: the line that is dashed, by its means alone.
    """
    from matplotlib.figure import Figure

    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.1 * rows + 0.8), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
    shown: dict[str, Any] = {}
    # A line has its colour in every panel, though not every panel has every line.
    colours = dict.fromkeys(line for lines in panels.values() for line in lines if line != floor)
    for axis, (name, lines) in zip(axes.flat, panels.items(), strict=False):
        for line, points in lines.items():
            means = [numbers.mean() for numbers in points.values()]
            bars = [numbers.std(ddof=min(1, len(numbers) - 1)) for numbers in points.values()]
            if line == floor:
                axis.plot(list(points), means, "k--", label=line)
            else:
                colour = f"C{list(colours).index(line)}"
                axis.errorbar(
                    list(points), means, bars, None, "o-", c=colour, capsize=3, label=line
                )
            axis.set_xticks(list(points)[:: 1 + len(points) // 11])  # ten numbers at most
        axis.set_title(name)
        axis.set_xlabel(x)
        axis.grid(alpha=0.3)
        handles, names = axis.get_legend_handles_labels()
        shown |= dict(zip(names, handles, strict=True))
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis in axes[:, 0]:
        axis.set_ylabel(y)
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=columns, fontsize=8)
    return png(figure)


def percent_points(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], x: str
) -> bytes:
    """A point a seed, panels beside each other; both axes are per cent.

    Args:
        panels: what the y axis shows -> group -> its points' (x, y).
        x: what the x axes show.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(panels) + 2.4, 3.9), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (name, groups) in zip(axes, panels.items(), strict=True):
        for i, (group, (across, up)) in enumerate(groups.items()):
            marker = "os^DvP*X"[i % 8]
            axis.plot(across, up, marker, label=group, markersize=7, alpha=0.75, markeredgewidth=0)
        axis.set(xlim=(-4, 104), ylim=(-4, 104), xlabel=x, title=name)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("%")
    axes[-1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    return png(figure)


def png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()
