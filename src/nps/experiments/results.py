"""Read the logs of finished runs: `<preset>/seed-<s>` folders with config, metrics and test.json.

Reports are made from these files alone, so that the committed logs in results/ are enough to make
every table and figure again.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nps.errors import UserError
from nps.experiments import changes
from nps.files import read_json
from nps.inspect.report import Heading, Lines
from nps.training.run import Run


@dataclass(frozen=True)
class Result:
    """One finished and tested run."""

    preset: str
    seed: int
    config: dict[str, Any]
    test: dict[str, Any]
    run: Run

    @property
    def seconds(self) -> float:
        return float(sum(s["wall_seconds"] for s in self.provenance))

    @property
    def all_timed(self) -> bool:
        """A sitting that was killed has told no time: then the next begins where none ended."""
        ends = [0, *(s["to_step"] for s in self.provenance)]
        return all(s["from_step"] <= end for s, end in zip(self.provenance, ends, strict=False))

    @property
    def seeds_in_stack(self) -> int:
        """How many seeds shared those seconds."""
        return max(int(s.get("seeds_in_stack", 1)) for s in self.provenance)

    @property
    def provenance(self) -> list[dict[str, Any]]:
        return self.run.provenance()


def tested(folder: Path) -> list[Path]:
    """The folders of tested runs, also those one level further down: `<game>/<preset>/seed-<s>`."""
    found = [path for deep in ("*", "*/*") for path in folder.glob(f"{deep}/seed-*/test.json")]
    if not found:
        raise UserError(f"{folder}: no tested runs (<preset>/seed-<s>/test.json) in it")
    return sorted(path.parent for path in found)


def read_results(folder: Path) -> dict[str, list[Result]]:
    """preset -> its tested runs, by seed."""
    results: dict[str, list[Result]] = {}
    for path in sorted(folder.glob("*/seed-*/test.json")):
        result = read_result(path.parent)
        results.setdefault(result.preset, []).append(result)
    if not results:
        raise UserError(f"{folder}: no tested runs (<preset>/seed-<s>/test.json) in it")
    return {name: sorted(runs, key=lambda r: r.seed) for name, runs in results.items()}


def read_result(folder: Path) -> Result:
    """The tested run in `<preset>/seed-<s>`."""
    run = Run(folder)
    saved = run.read()
    test = read_json(folder / "test.json")
    return Result(folder.parent.name, saved["seed"], saved["config"], test, run)


def values(results: Sequence[Result], metric: str) -> list[float]:
    return [float(result.test[metric]) for result in results]


def spread(results: Sequence[Result], metric: str, style: str = ".4f") -> str:
    """Median and range over seeds, e.g. `0.0127 (0.0102 to 0.0178)`."""
    numbers = values(results, metric)
    middle = format(statistics.median(numbers), style)
    if len(numbers) == 1:
        return middle
    return f"{middle} ({min(numbers):{style}} to {max(numbers):{style}})"


def mean_sd(numbers: Sequence[float], style: str = ".1f") -> str:
    """Mean and standard deviation over seeds, e.g. `97.1 ± 0.4`; of one seed its number."""
    middle = format(statistics.fmean(numbers), style)
    if len(numbers) == 1:
        return middle
    return f"{middle} ± {statistics.stdev(numbers):{style}}"


def median_run(results: Sequence[Result], metric: str) -> Result:
    """The run in the middle: what a reader should expect, not the best of the lot."""
    ordered = sorted(results, key=lambda result: result.test[metric])
    return ordered[(len(ordered) - 1) // 2]


def count(results: Sequence[Result], good: Callable[[Result], bool]) -> str:
    return f"{sum(map(good, results))} of {len(results)}"


def wall_time(runs: Sequence[Result]) -> str:
    """What training took, for as many seeds as were trained together."""
    seconds = sum(run.seconds for run in runs) / len(runs)
    together = max(run.seeds_in_stack for run in runs)
    known = f"{seconds:.0f} s" if all(run.all_timed for run in runs) else f"over {seconds:.0f} s"
    return f"{known} a run" if together == 1 else f"{known} for {together} seeds"


def provenance(results: Collection[Sequence[Result]]) -> list[Heading | Lines]:
    """Commands, seeds, wall time, machine and commit of the runs of each preset."""
    lines = []
    for runs in results:
        seeds = _which([run.seed for run in runs])
        epochs = runs[0].config["epochs"]
        lines.append(f"{changes.command(runs)}: {seeds}, {epochs} epochs, {wall_time(runs)}")
    sittings = [sitting for runs in results for run in runs for sitting in run.provenance]
    for key in ("device", "torch", "commit"):
        lines.append(f"{key}: {', '.join(sorted({str(sitting[key]) for sitting in sittings}))}")
    return [Heading("Where the numbers come from"), Lines(lines)]


def _which(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"{len(seeds)} seeds ({min(seeds)} to {max(seeds)})"
