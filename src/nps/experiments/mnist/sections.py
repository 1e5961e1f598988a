"""Sections of the MNIST report: drawn digits, composition of operations, surgery on rules.

A section is left out if no run has measured what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nps.errors import extra
from nps.experiments.mnist.pictures import SEQUENCE
from nps.experiments.results import Result
from nps.experiments.summaries import count, median_range, median_run
from nps.inspect import figures
from nps.inspect.pictures import unpack
from nps.inspect.report import Figure, Heading, Part, Table, Text
from nps.worlds.transformations import EVERY_OPERATION, OPERATIONS

Results = dict[str, list[Result]]
Labels = dict[str, str]

NO_FIGURE = Text(f"No figure: it needs the extra, {extra('plots')}")
WAYS = {"pictures": "through pictures", "slot": "in the slot"}


def holding(results: Results, key: str) -> Results:
    """The variants whose runs have all measured this."""
    return {name: runs for name, runs in results.items() if all(run.test.get(key) for run in runs)}


def middle(runs: Sequence[Result]) -> Result:
    """The run with median segregation, or with median error for models without rules."""
    return median_run(runs, "segregation" if "segregation" in runs[0].test else "mse")


def grid(results: Results, labels: Labels) -> list[Part]:
    """Inputs, targets and outputs of every operation."""
    drawn = holding(results, "pictures")
    if not drawn:
        return []
    heading = Heading("What they draw")
    if not figures.available():
        return [heading, NO_FIGURE]
    parts: list[Part] = [heading]
    for name, runs in drawn.items():
        run = middle(runs)
        shown = {key: unpack(value) for key, value in run.test["pictures"].items()}
        rows = []
        for b, image in enumerate(shown["input"]):
            beside = {"target": image, "output": np.full_like(image, np.nan)}
            rows += [(key, np.stack([beside[key], *shown[key][:, b]])) for key in beside]
        operations = EVERY_OPERATION[: len(shown["target"])]
        png = figures.picture_rows(rows, ["input", *_spoken(operations)])
        caption = f"Test digits under each operation. {labels[name]}, seed {run.seed} (the median)"
        parts.append(Figure(f"grid-{name}", png, caption))
    return parts


# -- composition ----------------------------------------------------------------------------------


def composition(results: Results, labels: Labels) -> list[Part]:
    """Errors of sequences of 1 to 5 operations, and one sequence drawn."""
    composed = holding(results, "composition")
    if not composed:
        return []
    depth = next(iter(composed.values()))[0].config["depth"]
    about = Text(
        "Rules applied by hand, one after the other: through pictures (decoded and encoded again "
        "before the next) and in the slot (decoded at the end). In training the model applied one "
        f"rule at a time, to true pictures transformed 0 to {depth - 1} times before: no sequence "
        f"was trained, and those longer than {depth} end in pictures of a kind it never saw."
    )
    parts: list[Part] = [Heading("Composition"), about, composition_table(composed, labels)]
    if not figures.available():
        return [*parts, NO_FIGURE]
    return [*parts, composition_figure(composed, labels, depth), *strips(composed, labels)]


def composition_table(results: Results, labels: Labels) -> Table:
    """One row per length: median and range over seeds in both ways, and the baselines."""
    first = next(iter(results.values()))[0].test["composition"]
    columns = ["Operations"]
    columns += [f"{labels[name]}, {way}" for name in results for way in WAYS.values()]
    rows = []
    for k, length in enumerate(first["length"]):
        cells = [
            median_range([run.test["composition"][way][k] for run in runs])
            for runs in results.values()
            for way in WAYS
        ]
        floors = [f"{first[floor][k]:.4f}" for floor in ("black", "copy")]
        rows.append([str(length), *cells, *floors])
    caption = (
        "MSE against the true sequence of operations, random sequences on test digits, median over "
        "seeds (range). Black: an all-black picture. Copy: the true picture before the last "
        "operation."
    )
    return Table([*columns, "Black", "Copy"], rows, caption)


def composition_figure(results: Results, labels: Labels, depth: int) -> Figure:
    first = next(iter(results.values()))[0].test["composition"]
    named = {"mnist": "NPS, paper's settings", "mnist-balanced": "NPS, balanced (ours)"}
    lines = {
        named.get(name, labels[name]): {
            spoken: np.array([run.test["composition"][way] for run in runs])
            for way, spoken in WAYS.items()
        }
        for name, runs in results.items()
    }
    floors = {"all black": first["black"], "last input copied": first["copy"]}
    png = figures.error_over_length(first["length"], lines, floors, depth)
    caption = "Error of composed operations; right of the line: longer than any history in training"
    return Figure("composition", png, caption)


def strips(results: Results, labels: Labels) -> list[Part]:
    """One sequence, for the first digit, by every model."""
    rows: list[tuple[str, Any]] = []
    for name, runs in holding(results, "pictures").items():
        shown = {
            key: unpack(value)[:, 0]
            for key, value in middle(runs).test["pictures"].items()
            if key in ("truth", *WAYS)
        }
        rows += [] if rows else [("truth", shown["truth"])]
        rows += [(f"{labels[name]},\n{WAYS[way]}", shown[way]) for way in WAYS]
    if not rows:
        return []
    png = figures.picture_rows(rows, _spoken(SEQUENCE))
    return [Figure("strip", png, "One digit, the picture after each operation (median seeds)")]


# -- surgery --------------------------------------------------------------------------------------


def deletion(results: Results, labels: Labels) -> list[Part]:
    """Before and after the deletion of each operation's rule."""
    parts: list[Part] = []
    for name, runs in holding(results, "deletion").items():
        run = middle(runs)
        rows = []
        for cut in run.test["deletion"]:
            own = cut["deleted"]
            others = [o for o in range(len(cut["before"])) if o != own]
            rows.append(
                [
                    OPERATIONS[own].replace("_", " "),
                    str(cut["rule"]),
                    f"{cut['before'][own]:.4f}",
                    f"{cut['after'][own]:.4f}",
                    " ".join(f"{cut['before'][o]:.4f}" for o in others),
                    " ".join(f"{cut['after'][o]:.4f}" for o in others),
                    _yes(all(cut["equal"][o] for o in others)),
                    count(runs, _others_keep(own)),
                ]
            )
        caption = (
            f"{labels[name]}, seed {run.seed}: MSE before and after the rule of one operation is "
            "deleted, of that operation and of the other three. Equal: their pictures are the same "
            "bit for bit; in how many seeds."
        )
        columns = ["Deleted", "Rule", "Its MSE", "after", "Other three", "after", "Equal", "Seeds"]
        parts.append(Table(columns, rows, caption))
    return [Heading("Surgery: a rule is deleted"), *parts] if parts else []


def _others_keep(own: int) -> Callable[[Result], bool]:
    def keep(run: Result) -> bool:
        equal = run.test["deletion"][own]["equal"]
        return all(same for o, same in enumerate(equal) if o != own)

    return keep


def fifth(results: Results, labels: Labels) -> list[Part]:
    """The old operations before and after a fifth rule was added and trained, and the fifth."""
    parts: list[Part] = []
    for name, runs in holding(results, "fifth").items():
        run = median_run(runs, "mse")
        tested = run.test["fifth"]
        rows = [
            [
                operation.replace("_", " "),
                f"{tested['before'][o]:.4f}",
                f"{tested['after'][o]:.4f}",
                _yes(tested["equal"][o]),
                count(runs, lambda r, o=o: r.test["fifth"]["equal"][o]),  # type: ignore[misc]
            ]
            for o, operation in enumerate(OPERATIONS)
        ]
        new = [r.test["fifth"]["mse"] for r in runs]
        rows.append([EVERY_OPERATION[len(OPERATIONS)], "–", f"{tested['mse']:.4f}", "–", "–"])
        uses = tested["uses"]
        caption = (
            f"{labels[name]}, seed {run.seed}: MSE before and after. Equal: the pictures are the "
            f"same bit for bit; in how many seeds. The fifth operation: {median_range(new)} over "
            f"seeds, beside {tested['black']:.4f} (all black) and {tested['copy']:.4f} (the input "
            f"itself); its own rule served it in {uses[-1]} of {sum(uses)} cases."
        )
        columns = ["Operation", "Before", "After", "Equal", "Seeds"]
        parts.append(Table(columns, rows, caption))
    return [Heading("Surgery: a fifth rule is added"), *parts] if parts else []


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _spoken(names: Sequence[str]) -> list[str]:
    return [name.replace("_", " ") for name in names]
