"""`nps table RESULTS` and `nps presets`: what there is to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.shared import about, positional, require
from nps.flags import parse


@dataclass(frozen=True)
class TableArgs:
    into: tuple[Path, ...] = ()
    """Markdown files whose `<!-- table: NAME -->` … `<!-- end -->` is replaced by the table."""
    report: bool = False
    """Also write report.html and its figures into the folder."""


def table(args: Sequence[str]) -> None:
    """Print the results table of a folder of runs as Markdown, or put it into documents.

    Examples:
      nps table results/arithmetic
      nps table results/arithmetic --report --into README.md docs/arithmetic.md
      nps table runs/atari
    """
    from nps.experiments import find_experiment
    from nps.experiments.results import read_result, tested
    from nps.inspect.report import Table, markdown, put_into

    name, rest = positional(table, "RESULTS", args)
    options = parse(TableArgs, rest, prog="nps table RESULTS", about=about(table))
    folder = Path(name)
    first = read_result(tested(folder)[0]).run.read()
    experiment = find_experiment(first["experiment"])
    report = experiment.report(folder)
    summary, *more = (part for part in report.parts if isinstance(part, Table))
    if not options.into and not options.report:
        print(markdown(summary))
    if options.report:
        print(f"{report.write(folder)} written")
    for path in options.into:
        put_into(path, experiment.name, [summary, *(table for table in more if table.name)])
        print(f"{path}: table {experiment.name} updated")


def presets(args: Sequence[str]) -> None:
    """List the presets."""
    from nps.experiments import EXPERIMENTS

    if args and args[0] in ("-h", "--help"):
        print("nps presets: list the presets of every experiment")
        return
    require(not args, f"nps presets: got {' '.join(args)!r}, expected no arguments")
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name}: {experiment.about}")
        for name, preset in experiment.presets.items():
            print(f"  {name:28} {preset.about}")
