"""The tables of falling towers: errors, and what rules say; medians over seeds (ranges)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from nps.experiments import changes
from nps.experiments.experiment import Experiment
from nps.experiments.learning import learning
from nps.experiments.results import Result, by_variant, read_results
from nps.experiments.stacks.presets import NUMBERS
from nps.experiments.stacks.task import FOUR
from nps.experiments.summaries import median_range
from nps.inspect.report import Part, Report, Table

LABELS = {
    "stacks-rpin": "RPIN",
    "stacks": "parallel NPS",
    "stacks-snps": "sequential NPS",
    "stacks-none": "no interaction",
    **{f"stacks-n{n}": f"parallel NPS, N = {n}, shorter" for n in NUMBERS},
    **{f"stacks-snps-n{n}": f"sequential NPS, N = {n}, shorter" for n in NUMBERS},
    "stacks-as-published": "parallel NPS, as published",
    "stacks-rpin-as-published": "RPIN, as published",
}
PAPER = {
    "stacks-rpin": ("1.254", "6.377"),
    "stacks": ("1.250", "5.411"),
    "stacks-snps": ("1.68", "5.80"),
}
"""Section 4.2, fifteen seeds: frames 1 to 15, and 16 to 30."""
FLOORS = {"still": "floor: nothing moves", "average": "floor: the mean way"}
SHORT = ("stacks-rpin", "stacks", "stacks-snps", "stacks-none", "stacks-rpin-as-published")
"""The rows of the short table, above the floors."""
GUESSES = (("", "p1"), ("", "p2"), (FOUR, "p2"))
"""Prefix and metric of the columns of the short table in which a floor has a number."""
CURVES = {"frames of training": "best10_p1", "those after them": "best10_p2"}
"""Panel of the learning curves -> metric."""
NONE = "–"
LEVELS = 3

Results = Mapping[str, list[Result]]


class Tested(TypedDict):
    """The fields of test.json that every table has; those of rules depend on the model."""

    p1: float
    p2: float
    best10_p1: float
    best10_p2: float
    best_p1: float
    best_p2: float
    still_p1: float
    still_p2: float
    four_p1: float
    four_p2: float


def write_report(path: Path, experiment: Experiment) -> Report:
    """Tables of the tested runs at `path`."""
    results = by_variant(read_results(path), LABELS)
    report = Report("Falling towers: where shapes go, from one picture")
    report.add(*changes.notice(results.values(), experiment))
    report.add(error_table(results, ""), error_table(results, FOUR), *rule_table(results))
    report.add(*short_table(results))
    axis, caption = "1,000 × squared image sides", "Validation towers, best of 10 draws"
    report.add(*learning(results, LABELS, CURVES, axis, caption, log=True))
    report.add(*changes.provenance(results.values(), experiment))
    return report


def cell(runs: Sequence[Result], metric: str, style: str = ".2f") -> str:
    """Median and range of the seeds, or a dash."""
    measured = [run.number(metric) for run in runs if metric in run.test]
    return median_range(measured, style) if measured else NONE


def error_table(results: Results, prefix: str) -> Table:
    """The paper's metric for the best of some draws, and for all of them."""
    metrics = [f"{kind}{m}" for kind in ("best10_", "best_", "centre_", "") for m in ("p1", "p2")]
    rows = [
        [
            LABELS.get(name, name),
            *(PAPER.get(name, (NONE, NONE)) if not prefix else (NONE, NONE)),
            *(cell(runs, prefix + metric) for metric in metrics),
        ]
        for name, runs in results.items()
    ]
    first = next(iter(results.values()))[:1]
    for floor, label in FLOORS.items():
        cells = [cell(first, f"{prefix}{floor}_{m}") for m in ("p1", "p2")]
        if cells[0] != NONE:
            rows.append([label, NONE, NONE, *[NONE] * 4, *cells, NONE, NONE])
    shapes = "Towers of four shapes" if prefix else "Towers of three shapes, as in training"
    caption = (
        f"{shapes}: 1,000 × mean squared distance of centres, in image sides; near: the frames of "
        "training (1 to 15), far: those after them. Best of 10 and of all draws of the latent for "
        "each tower, the one guess of the likeliest latent, and the mean over draws. Median over "
        "seeds (range)."
    )
    head = ["Model", "Paper, near", "far", "Best of 10, near", "far", "Best of all, near", "far"]
    head += ["One guess, near", "far", "Mean, near", "far"]
    return Table(head, rows, caption, "four" if prefix else "")


def rule_table(results: Results) -> list[Part]:
    """Who holds whom, and where rules fire; empty without rules."""
    rows = [
        [
            LABELS.get(name, name),
            cell(runs, "held", ".0%"),
            cell(runs, "held_chance", ".0%"),
            *(cell(runs, f"fires_level_{i}", ".0%") for i in range(LEVELS)),
            *(cell(runs, f"fires_{kind}", ".0%") for kind in ("cuboid", "cylinder", "sphere")),
            *(cell(runs, f"rule_by_{group}", ".0%") for group in ("level", "shape")),
        ]
        for name, runs in results.items()
        if any("fires_level_0" in run.test for run in runs)
    ]
    caption = (
        "Held: of shapes that move and touch another one, how often the context is one they touch; "
        "chance: a random other shape. Then how often a rule, not the null rule, fires: on the "
        "lowest shape, the middle one and the uppermost; on cuboids, cylinders and spheres. Told: "
        "how much of the choice between rules, and the null rule, the level or the kind explains."
    )
    head = ["Model", "Held", "chance", "Fires: lowest", "middle", "uppermost"]
    head += ["cuboids", "cylinders", "spheres", "Told by level", "by kind"]
    table = Table(head, rows, caption, "rules")
    return [table] if rows else []


def short_table(results: Results) -> list[Part]:
    """The main comparison, for a page of one screen; empty without any of its models."""
    rows = []
    for name in SHORT:
        if name in results:
            runs, (near, far) = results[name], PAPER.get(name, (NONE, NONE))
            of_ten = [cell(runs, f"best10_{m}") for m in ("p1", "p2")]
            others = [cell(runs, metric) for metric in ("centre_p1", "centre_p2", "four_best10_p2")]
            cells = [near, of_ten[0], far, of_ten[1], *others, cell(runs, "held", ".0%")]
            rows.append([LABELS[name], *cells])
    if not rows:
        return []
    everything = [run for runs in results.values() for run in runs]
    for floor, label in FLOORS.items():
        guess = [cell(everything[:1], f"{prefix}{floor}_{m}") for prefix, m in GUESSES]
        rows.append([label, NONE, NONE, NONE, NONE, *guess, NONE])
    chance = cell(
        [run for run in everything if "held_chance" in run.test][:1], "held_chance", ".0%"
    )
    rows.append(["chance: a random other shape", *[NONE] * 7, chance])
    caption = "The main comparison in short. Median over seeds (range)."
    head = ["Model", "Paper, 1–15", "Best of 10, 1–15", "Paper, 16–30", "Best of 10, 16–30"]
    head += ["One guess, 1–15", "16–30", "Four shapes, 16–30", "Holds"]
    return [Table(head, rows, caption, "short")]
