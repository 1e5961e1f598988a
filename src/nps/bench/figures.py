"""Time over slots and over rules: logarithmic axes, one line per model, one panel per workload."""

from __future__ import annotations

from nps.bench.cases import AXES, MODELS, WORKS, Axis
from nps.bench.report import WORK_WORDS, Bench, on_axis
from nps.inspect import style

# The lean GNNs are left to the tables: ten lines in a panel are too many to distinguish.
VARIANTS = {
    "sequential": 0,
    "sequential-3": 1,
    "parallel": 0,
    "parallel-3": 1,
    "gnn-512": 0,
    "gnn-128": 1,
    "attention": 0,
    "transformer": 1,
}
NAMES = {
    "sequential": "NPS, 1 stage",
    "sequential-3": "NPS, 3 stages",
    "parallel": "parallel NPS, 1 stage",
    "parallel-3": "parallel NPS, 3 stages",
    "gnn-512": "GNN, 512 wide (C-SWM)",
    "gnn-128": "GNN, 128 wide",
    "attention": "attention",
    "transformer": "transformer layer",
}
AXIS_LABELS = {"batch": "batch size", "slots": "number of slots", "rules": "number of rules"}
SIZES = {"batch": "batch of {}", "slots": "{} slots", "rules": "{} rules"}


def time_over(bench: Bench, axis: Axis) -> bytes | None:
    """A PNG, or None if fewer than two sizes were measured."""
    mode = "captured" if bench.device == "cuda" else "eager"
    rows = [
        row
        for row in bench.rows
        if row.section != "goals"
        and row.mode == mode
        and row.ms is not None
        and row.model in VARIANTS
        and on_axis(row, axis, bench.centre)
    ]
    sizes = sorted({getattr(row, axis) for row in rows})
    measured = {work: {getattr(row, axis) for row in rows if row.work == work} for work in WORKS}
    works = [work for work in WORKS if len(measured[work]) > 1]
    if not works:
        return None
    columns = min(2, len(works))
    height = 2.7 * -(-len(works) // columns) + (0.9 if len(works) != 3 else 0.3)
    with style.settings():
        figure = style.new_figure(height)
        panels = figure.subplots(-(-len(works) // columns), columns, squeeze=False).flat
        shown = {}
        for panel, work in zip(panels, works, strict=False):
            for model in (name for name in MODELS if name in VARIANTS):
                mine = [row for row in rows if (row.work, row.model) == (work, model)]
                # At the centre the axis's own measurement comes last and counts.
                mine.sort(key=lambda row: row.section == axis)
                points = sorted({getattr(row, axis): row.ms for row in mine}.items())
                if len(points) > 1:
                    drawn = style.line(NAMES[model], VARIANTS[model])
                    (shown[NAMES[model]],) = panel.plot(*zip(*points, strict=True), **drawn)
            panel.set(title=WORK_WORDS[work], xlabel=AXIS_LABELS[axis], ylabel="milliseconds")
            panel.set(xscale="log", yscale="log")
            style.plain_log_ticks(panel.yaxis)
            panel.set_xticks(sizes, [str(size) for size in sizes])
            panel.minorticks_off()
        if len(works) == 3:  # the legend takes the fourth place
            panels[3].set_axis_off()
            panels[3].legend(shown.values(), shown, loc="center")
        else:
            figure.legend(shown.values(), shown, loc="outside lower center", ncols=3)
        middle = dict(zip(AXES, bench.centre, strict=True))
        at = ", ".join(SIZES[name].format(middle[name]) for name in AXES if name != axis)
        machine = bench.environment.get("device", bench.device)
        figure.suptitle(f"{machine}, {mode}; {at}", fontsize=9)
        return style.png(figure)
