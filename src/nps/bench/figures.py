"""Time over slots and over rules: log-log, a line a model, a panel a work."""

from __future__ import annotations

from nps.bench.cases import AXES, MODELS, WORKS, Axis
from nps.bench.report import Bench, on_axis
from nps.inspect.figures import png

# One hue a family, so that ten lines can be told apart: rules warm, graphs blue, attention green.
STYLES = {
    "sequential": ("#d62728", "-", "o"),
    "sequential-3": ("#d62728", "--", "s"),
    "parallel": ("#ff7f0e", "-", "o"),
    "parallel-3": ("#ff7f0e", "--", "s"),
    "gnn-512": ("#08306b", "-", "^"),
    "gnn-512-lean": ("#08306b", "--", "v"),
    "gnn-128": ("#4292c6", "-", "^"),
    "gnn-128-lean": ("#4292c6", "--", "v"),
    "attention": ("#2ca02c", "-", "D"),
    "transformer": ("#98df8a", "-", "D"),
}


def time_over(bench: Bench, axis: Axis) -> bytes | None:
    """A PNG, or None where fewer than two sizes were measured."""
    from matplotlib.figure import Figure

    mode = "captured" if bench.device == "cuda" else "eager"
    rows = [
        row
        for row in bench.rows
        if row.section != "goals"
        and row.mode == mode
        and row.ms is not None
        and on_axis(row, axis, bench.centre)
    ]
    sizes = sorted({getattr(row, axis) for row in rows})
    measured = {work: {getattr(row, axis) for row in rows if row.work == work} for work in WORKS}
    works = [work for work in WORKS if len(measured[work]) > 1]
    if not works:
        return None
    figure = Figure(figsize=(4.2 * len(works) + 2.2, 4.2), layout="constrained")
    panels = figure.subplots(1, len(works), sharex=True, squeeze=False)[0]
    for panel, work in zip(panels, works, strict=True):
        for model in MODELS:
            mine = [row for row in rows if (row.work, row.model) == (work, model)]
            # At the centre the axis's own measurement comes last and counts.
            mine.sort(key=lambda row: row.section == axis)
            points = sorted({getattr(row, axis): row.ms for row in mine}.items())
            if len(points) > 1:
                colour, line, marker = STYLES[model]
                style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4}
                panel.plot(*zip(*points, strict=True), label=MODELS[model].label, **style)
        panel.set(title=work, xlabel=axis, xscale="log", yscale="log")
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.minorticks_off()
        panel.grid(alpha=0.3, which="both")
    panels[0].set_ylabel(f"milliseconds ({bench.device}, {mode})")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    middle = dict(zip(AXES, bench.centre, strict=True))
    at = ", ".join(f"{name} {value}" for name, value in middle.items() if name != axis)
    figure.suptitle(f"Time over {axis} ({at})", fontsize=11)
    return png(figure)
