"""The tables of bouncing balls: segments, motion, collisions; medians over seeds (ranges)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nps.experiments.balls.task import TRANSFER
from nps.experiments.results import Result
from nps.experiments.summaries import median_range
from nps.inspect.report import Table

LABELS = {
    "balls-scoff": "SCOFF",
    "balls-attention": "SCOFF++ (attention)",
    "balls-pnps": "parallel NPS",
    "balls": "NPS",
    "balls-best": "parallel NPS (ours)",
    "balls-as-published": "NPS, no places or background",
    "balls-gnn": "GNN",
    "balls-none": "no interaction",
}
PAPER = {
    "balls-scoff": ("0.28", "0.15"),
    "balls-attention": ("0.84", "0.26"),
    "balls-pnps": ("0.78", "0.20"),
    "balls": ("0.85", "0.36"),
}
"""Section 4.2, two seeds: "ARI" with 4 balls, and with 6 to 8."""
FLOORS = {
    "grid": "floor: 3 × 3 grid",
    "colour": "floor: colours alone",
    "copy": "floor: previous frame",
}
BUMPS = {"random": "floor: random ball", "nearest": "floor: nearest ball"}
"""Floors of who bumped whom."""
SEGMENTATION = ("fg_ari", "ari", "fg_miou", "video_fg_ari", "video_ari")
BALLS = {"": "4", TRANSFER: "6–8"}
NONE = "–"

Results = Mapping[str, list[Result]]


def cell(runs: Sequence[Result], metric: str, style: str = ".3f", over: str | None = None) -> str:
    """Median and range of the seeds in which it was measured, or a dash; as a multiple of `over`,
    if that is given."""
    measured = [run for run in runs if metric in run.test]
    if not measured:
        return NONE
    found = [run.number(metric) / (run.number(over) if over else 1.0) for run in measured]
    some = f", {len(found)} of {len(runs)} seeds" if len(found) < len(runs) else ""
    return median_range(found, style) + some


def paper(name: str, prefix: str) -> str:
    return PAPER.get(name, (NONE, NONE))[bool(prefix)]


def one_run(results: Results) -> list[Result]:
    """A run to take the floors from, which do not depend on it."""
    return next(iter(results.values()))[:1]


def segmentation_table(results: Results, prefix: str) -> Table:
    """The paper's metric in both readings, the IoU and the next frame's error."""
    metrics = [prefix + metric for metric in SEGMENTATION]
    error, copied = f"{prefix}mse", f"{prefix}copy_mse"
    rows = [
        [
            LABELS.get(name, name),
            paper(name, prefix),
            *(cell(runs, metric) for metric in metrics),
            cell(runs, error, ".4f"),
            cell(runs, error, ".2f", over=copied),
        ]
        for name, runs in results.items()
    ]
    first = one_run(results)
    for floor, label in FLOORS.items():
        cells = [cell(first, f"{prefix}{floor}_{metric}") for metric in SEGMENTATION]
        errors = [cell(first, copied, ".4f"), "1"] if floor == "copy" else [NONE, NONE]
        rows.append([label, NONE, *cells, *errors])
    balls = "6 to 8 balls, 9 slots" if prefix else "4 balls, 5 slots, as in training"
    caption = (
        f"{balls}: the next frame, after 2 to 10 seen ones; median over seeds (range). Paper: its "
        "ARI, of which pixels is not said. FG-ARI: of the balls' pixels; ARI: of all; mIoU: of the "
        "balls. Video: over all frames, where a ball has to keep its slot. / copy: MSE over that "
        "of copying the previous frame."
    )
    head = ["Model", "Paper", "FG-ARI", "ARI", "mIoU", "Video FG-ARI", "Video ARI", "MSE", "/ copy"]
    return Table(head, rows, caption, "transfer" if prefix else "")


def motion_table(results: Results) -> Table:
    """How far predicted balls are from the true ones."""
    metrics = {
        "position": ".2f",
        "position_collision": ".2f",
        "rollout_position": ".2f",
        "rollout_fg_ari": ".3f",
        "rollout_video_fg_miou": ".3f",
        "rollout_mse": ".4f",
    }
    rows = [
        [LABELS.get(name, name), balls, *(cell(runs, prefix + m, f) for m, f in metrics.items())]
        for prefix, balls in BALLS.items()
        for name, runs in results.items()
    ]
    first = one_run(results)
    for prefix, balls in BALLS.items():
        for floor in ("grid", "copy"):
            cells = [cell(first, f"{prefix}{floor}_{m}", f) for m, f in metrics.items()]
            if set(cells) != {NONE}:
                rows.append([FLOORS[floor], balls, *cells])
    caption = (
        "Next: distance of a ball from its slot's pixels in the next frame, in radii of a light "
        "ball; bumped: the same in the two frames after a collision. Then 20 frames without input: "
        "distance, FG-ARI, mIoU over the whole video and MSE. Median over seeds (range)."
    )
    head = ["Model", "Balls", "Next", "Bumped", "Roll-out", "FG-ARI", "mIoU", "MSE"]
    return Table(head, rows, caption, "motion", names=2)


def collision_table(results: Results) -> list[Table]:
    """Who bumped whom, as the trace or attention tells it; empty without such a model."""
    told = (
        *("partner", "partner_chance", "pair_recall"),
        *("who_recall", "who_precision", "who_precision_chance", "who_f1"),
    )
    rows = [
        [LABELS.get(name, name), balls, *(cell(runs, prefix + m, ".0%") for m in told)]
        for prefix, balls in BALLS.items()
        for name, runs in results.items()
        if tells(runs, f"{prefix}pair_recall")
    ]
    if not rows:
        return []
    first = one_run(results)
    for prefix, balls in BALLS.items():
        for floor, label in BUMPS.items():
            if tells(first, f"{prefix}{floor}_pair_recall"):
                cells = (cell(first, f"{prefix}{floor}_{m}", ".0%") for m in told)
                rows.append([label, balls, *cells])
    caption = (
        "Partner: of colliding balls whose slot had another ball's as context, how often that is "
        "the one it hits. Told: collisions in which that holds for either ball. Recall, precision, "
        "F1: of statements that come with a large change of the slot; how large is chosen on "
        "validation scenes. Chance: the same of a random other ball. Of attention, the slot with "
        "the largest weight is the context. Floors name, for every ball in every frame, a random "
        "other ball, or the one whose surface is nearest in the frame before, by true positions; "
        "a near one is a large change. Median over seeds (range)."
    )
    head = ["Model", "Balls", "Partner", "chance", "Told", "Recall", "Precision", "chance", "F1"]
    return [Table(head, rows, caption, "collisions", names=2)]


def firing_table(results: Results) -> list[Table]:
    """Whether rules fire at collisions; empty without a model that has rules."""
    rates = ("firing", "collision_rule")
    rows = [
        [
            LABELS.get(name, name),
            balls,
            *(cell(runs, f"{prefix}{m}_{at}", ".0%") for m in rates for at in PLACES),
        ]
        for prefix, balls in BALLS.items()
        for name, runs in results.items()
        if tells(runs, f"{prefix}firing_elsewhere")
    ]
    caption = (
        "Any rule: share of balls on which a rule (not the null rule) fires in a frame, of balls "
        "that collide before the next frame, and of all others. One rule: the same of the rule "
        "with the largest difference on validation scenes. Median over seeds (range)."
    )
    head = ["Model", "Balls", "Any rule: colliding", "others", "One rule: colliding", "others"]
    return [Table(head, rows, caption, "firing", names=2)] if rows else []


PLACES = ("collision", "elsewhere")


def tells(runs: Iterable[Result], metric: str) -> bool:
    return any(metric in run.test for run in runs)
