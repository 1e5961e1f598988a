"""The figures of reports, drawn without a screen, in the style of `nps.inspect.style`.

matplotlib is an extra (`plots`): without it reports have no figures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.inspect import style

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray

PAPER = "the paper's "
"""Lines whose names start with this show numbers of the paper."""


def available() -> bool:
    """True if matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def usage_over_training(
    panels: dict[str, tuple[Sequence[int], Float[ndarray, "T O N"]]], operations: Sequence[str]
) -> bytes:
    """How often each rule serves each operation over training, one row per model (paper, figure 4).

    Args:
        panels: model name -> (epochs, usage tables at those epochs).
        operations: names of the O operations, one column each.
    """
    with style.settings():
        figure = style.new_figure(1.45 * len(panels) + 0.7)
        axes = figure.subplots(
            len(panels), len(operations), sharex="row", sharey=True, squeeze=False
        )
        for row, (name, (epochs, tables)) in zip(axes, panels.items(), strict=True):
            share = 100 * tables / np.maximum(tables.sum(-1, keepdims=True), 1)
            for column, axis in enumerate(row):
                for rule in range(tables.shape[-1]):
                    axis.plot(
                        epochs,
                        share[:, column, rule],
                        color=style.RULES[rule % len(style.RULES)],
                        linestyle=style.DASHES[rule % len(style.DASHES)],
                        label=f"rule {rule}",
                    )
                axis.set_ylim(-4, 104)
                axis.set_yticks([0, 50, 100])
            row[0].set_ylabel(f"{name}\nuses, %")
        for axis, operation in zip(axes[0], operations, strict=True):
            axis.set_title(operation)
        for axis in axes[-1]:
            axis.set_xlabel("epoch")
        handles, names = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
        return style.png(figure)


def picture_rows(
    rows: Sequence[tuple[str, Float[ndarray, "K H W"]]], columns: Sequence[str]
) -> bytes:
    """Grey images in a grid.

    Args:
        rows: (name, its K images), grey levels in [0, 1]; NaN leaves a place empty.
        columns: titles of the K columns.
    """
    with style.settings():
        width = min(style.WIDTH, 1.1 * len(columns) + 1.3)
        cell = (width - 1.3) / len(columns)
        figure = style.new_figure(cell * len(rows) + 0.3, width)
        axes = figure.subplots(len(rows), len(columns), squeeze=False)
        for (name, pictures), line in zip(rows, axes, strict=True):
            for axis, picture in zip(line, pictures, strict=True):
                axis.imshow(picture, cmap="gray", vmin=0.0, vmax=1.0)
                style.image_axes(axis)
                axis.set_frame_on(not np.isnan(picture).all())
            line[0].set_ylabel(name, rotation=0, ha="right", va="center")
        for axis, column in zip(axes[0], columns, strict=True):
            axis.set_title(column)
        return style.png(figure)


def error_over_length(
    lengths: Sequence[int],
    lines: Mapping[str, Mapping[str, Float[ndarray, "S K"]]],
    floors: Mapping[str, Sequence[float]],
    trained_to: int,
) -> bytes:
    """Error of composed operations over their number: medians over seeds, with their range.

    Args:
        lengths: numbers of operations.
        lines: model -> way of composing, one panel each -> errors of S seeds at each length.
        floors: name -> error of a baseline that learns nothing, at each length.
        trained_to: the longest history of an image in training.
    """
    ways = list(dict.fromkeys(way for of_model in lines.values() for way in of_model))
    numbered = style.variants(lines)
    with style.settings():
        figure = style.new_figure(3.6)
        axes = figure.subplots(1, len(ways), sharey=True, squeeze=False)[0]
        for axis, way in zip(axes, ways, strict=True):
            for number, (name, values) in enumerate(floors.items()):
                axis.plot(lengths, values, **style.floor(name, number))
            for m, (name, of_model) in enumerate(lines.items()):
                errors = of_model[way]
                # Side by side: models with the same error would hide each other.
                places = np.asarray(lengths) + 0.09 * (m - (len(lines) - 1) / 2)
                drawn = style.line(name, numbered[name])
                axis.vlines(places, errors.min(0), errors.max(0), colors=drawn["color"], alpha=0.5)
                axis.plot(places, np.median(errors, 0), **drawn)
            axis.axvline(trained_to + 0.5, color=style.FLOOR.colour, linewidth=0.8)
            axis.set_xticks(list(lengths))
            axis.set(title=way, xlabel="operations, one after the other", yscale="log")
        axes[0].set_ylabel("mean squared error")
        axes[0].annotate(
            "longer than\nin training →",
            (trained_to + 0.45, 0.98),
            xycoords=("data", "axes fraction"),
            ha="right",
            va="top",
            fontsize=7.5,
            color="#666666",
        )
        style.plain_log_ticks(axes[0].yaxis)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=3)
        return style.png(figure)


def means_over(
    panels: Mapping[str, Mapping[str, Mapping[int, Float[ndarray, "S"]]]],
    x: str,
    y: str,
    floor: str | None = None,
    log: bool = False,
    ranges: bool = False,
    log_panels: Collection[str] = (),
) -> bytes:
    """Means over seeds, three panels side by side at most.

    The first line of each model has a band: a standard deviation on either side of the mean, or
    on a logarithmic axis, where that could be negative, the range of the seeds.

    Args:
        panels: name -> line -> place on the x axis -> values of S seeds.
        x, y: labels of the axes.
        floor: the line that is a baseline which learns nothing.
        log: whether the y axis is logarithmic.
        ranges: medians, and bands of the range of the seeds: for metrics with bounds, beyond which
            a standard deviation may reach, and for seeds of which few are unlike the others.
        log_panels: those with a logarithmic axis, if they are not alike; each then has its own.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    numbered = style.variants(
        line for lines in panels.values() for line in lines if line != floor and not is_paper(line)
    )
    papers = list(
        dict.fromkeys(line for lines in panels.values() for line in lines if is_paper(line))
    )
    with style.settings():
        figure = style.new_figure(3.3 if rows == 1 else 2.1 * rows + 0.6)
        axes = figure.subplots(rows, columns, sharey=not log_panels, squeeze=False)
        middle = np.median if ranges else np.mean
        shown: dict[str, Any] = {}
        for axis, (name, lines) in zip(axes.flat, panels.items(), strict=False):
            for line, values in lines.items():
                places, means = list(values), [middle(seeds) for seeds in values.values()]
                if line == floor:
                    axis.plot(places, means, **style.floor(line))
                elif is_paper(line):
                    axis.plot(places, means, **style.paper(line, papers.index(line)))
                else:
                    drawn = style.line(line, numbered[line])
                    if len(places) > 20:
                        drawn["marker"] = ""
                    axis.plot(places, means, **drawn)
                    if numbered[line] == 0:
                        low, high = spread(list(values.values()), log or ranges)
                        axis.fill_between(
                            places, low, high, color=drawn["color"], alpha=0.16, linewidth=0
                        )
            if len(lines) and len(next(iter(lines.values()))) <= 8:
                axis.set_xticks(sorted({place for values in lines.values() for place in values}))
            axis.set_title(name)
            axis.set_xlabel(x)
            if log or name in log_panels:
                axis.set_yscale("log")
                style.plain_log_ticks(axis.yaxis)
            handles, names = axis.get_legend_handles_labels()
            shown |= dict(zip(names, handles, strict=True))
        for axis in axes.flat[len(panels) :]:
            axis.set_axis_off()
        for axis in axes[:, 0]:
            axis.set_ylabel(y)
        columns = len(shown) if len(shown) <= 5 else 3
        figure.legend(shown.values(), shown, loc="outside lower center", ncols=columns)
        return style.png(figure)


def is_paper(line: str) -> bool:
    """True if the line shows numbers of the paper."""
    return line.startswith(PAPER)


def spread(
    values: Sequence[Float[ndarray, "S"]], ranges: bool
) -> tuple[Float[ndarray, "X"], Float[ndarray, "X"]]:
    """The lower and upper edge of a band around the means: a standard deviation, or the range."""
    if ranges:
        return np.array([v.min() for v in values]), np.array([v.max() for v in values])
    means = np.array([v.mean() for v in values])
    widths = np.array([v.std(ddof=min(1, len(v) - 1)) for v in values])
    return means - widths, means + widths


def percent_points(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]], x: str, y: str
) -> bytes:
    """One point per seed, panels side by side; both axes in per cent.

    Args:
        panels: title -> group -> its points' (x, y). A group is named `world: model`; the world
            decides how the model's marker is filled.
        x, y: labels of the axes.
    """
    groups = list(dict.fromkeys(group for of_panel in panels.values() for group in of_panel))
    worlds = list(dict.fromkeys(group.partition(": ")[0] for group in reversed(groups)))
    with style.settings():
        figure = style.new_figure(4.0)
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, (name, of_panel) in zip(axes, panels.items(), strict=True):
            for group, (across, up) in of_panel.items():
                variant = worlds.index(group.partition(": ")[0])
                drawn = style.points(group, variant)
                axis.plot(across, up, linestyle="none", markersize=6, **drawn)
            axis.set(xlim=(-4, 104), ylim=(-4, 104), title=name, xlabel=x)
        axes[0].set_ylabel(y)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
        return style.png(figure)
