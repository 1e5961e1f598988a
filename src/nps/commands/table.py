"""`nps table RESULTS` and `nps presets`: what there is to read."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.shared import about, positional, require
from nps.flag_help import flags_of, screen_width
from nps.flags import parse

MORE = "`nps table --add --help` shows the flags for adding runs."


@dataclass(frozen=True)
class TableArgs:
    into: tuple[Path, ...] = ()
    """Markdown files: tables replace what stands between `<!-- table: NAME -->` and
    `<!-- end -->`."""
    report: bool = False
    """Also write report.html and its figures into the folder."""
    list: bool = False
    """List all runs instead, also those that are not tested or not published."""


@dataclass(frozen=True)
class AddArgs:
    add: tuple[Path, ...]
    """Tested runs: run folders, or folders of run folders."""
    to: Path
    """Folder of the table, results/EXPERIMENT; a table is made if it has none."""
    published: bool = False
    """Show these runs in the tables of README and docs."""
    group: str | None = None
    """Keep the runs apart under this name, such as quick/pong (default: the values of the
    experiment's own flags, such as the game)."""
    variant: str | None = None
    """The name of the model in tables (default: of the folder above seed-<s>, or the preset)."""
    replace: bool = False
    """Replace runs of the same group, variant and seed."""


def table(args: Sequence[str]) -> None:
    """Print the results table of a folder of runs as Markdown, put it into documents, or add runs
    to the tables of results/.

    RESULTS is a folder of runs, the folder of a table such as results/atari, which shows its
    published runs, the name of a group in a table, or the folder of all tables, results, which
    shows whether the paper's claims hold.

    Examples:
      nps table runs/arithmetic
      nps table results/arithmetic --report --into docs/experiments/arithmetic.md
      nps table results --into README.md docs/claims.md
      nps table results/atari/study
      nps table results/atari --list
      nps table --add runs/atari/pong/atari-nps --to results/atari --published
      nps table --add runs/mine/seed-0 --to results/blocks --group quick --replace
      nps table --add --help
    """
    if any(arg.partition("=")[0] == "--add" for arg in args):
        _add(parse(AddArgs, args, prog="nps table", about=about(table)))
        return
    name, rest = positional(table, "RESULTS", args, lambda: flags_of(TableArgs), note=MORE)
    options = parse(TableArgs, rest, prog="nps table RESULTS", about=about(table))
    if options.list:
        _list(Path(name))
    else:
        _show(Path(name), options)


def _show(path: Path, options: TableArgs) -> None:
    """Print the first table, or write the report and put tables into documents."""
    from nps.experiments import find_experiment
    from nps.experiments.results import read_results, require_whole
    from nps.experiments.verdicts import claims_tables, experiments_in, verdicts_table
    from nps.inspect.report import Table, markdown, put_into

    if experiments_in(path):
        require(not options.report, f"--report: got {path}, expected one experiment's folder")
        tables = {"verdicts": verdicts_table(path), **claims_tables(path)}
    else:
        results = read_results(path)
        experiment = find_experiment(results[0].experiment)
        require_whole(results, experiment.tested, ["epochs", *experiment.flags])
        report = experiment.report(path)
        summary, *more = (part for part in report.parts if isinstance(part, Table))
        named = {f"{experiment.name} {table.name}": table for table in more if table.name}
        tables = {experiment.name: summary, **named}
        if options.report:
            path.mkdir(parents=True, exist_ok=True)  # a group of a table may have no folder
            print(f"{report.write(path)} written")
    if not options.into and not options.report:
        print(markdown(next(iter(tables.values()))))
    for document in options.into:
        for name in put_into(document, tables):
            print(f"{document}: table {name} updated")


def _list(path: Path) -> None:
    """A row for each variant: how many runs there are, and of which kind."""
    from nps.experiments.results import read_runs
    from nps.inspect.report import Table, markdown

    runs: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for run in read_runs(path):
        runs.setdefault((run.group, run.variant), []).append((run.tested, run.published))
    require(bool(runs), f"{path}: no runs in it")
    rows = [
        [group or "–", variant, *map(str, (len(kinds), *map(sum, zip(*kinds, strict=True))))]
        for (group, variant), kinds in runs.items()
    ]
    columns = ["Group", "Variant", "Runs", "Tested", "Published"]
    print(markdown(Table(columns, rows)))


def _add(options: AddArgs) -> None:
    from nps.experiments import find_experiment
    from nps.experiments.collect import add
    from nps.experiments.results import read_run, require_whole, run_folders

    runs = []
    for path in options.add:
        folders = run_folders(path)
        require(bool(folders), f"--add: {path}: no run folder, and no folder of run folders")
        for run in map(read_run, folders):
            flags = find_experiment(run.experiment).flags
            require_whole([run], dict, flags)
            default_group = "/".join(str(run.config[name]) for name in flags)
            runs.append(
                dataclasses.replace(
                    run,
                    group=default_group if options.group is None else options.group.strip("/"),
                    variant=options.variant or run.variant,
                    published=options.published,
                )
            )
    require(bool(runs), "--add: expected at least one run")
    added = add(options.to, runs, replace=options.replace)
    replaced = f", {added.replaced} replaced" if added.replaced else ""
    runs_added = "1 run" if added.new == 1 else f"{added.new} runs"
    print(f"{options.to}: {runs_added} added{replaced}; it has {added.total}")


def presets(args: Sequence[str]) -> None:
    """List the presets."""
    from nps.experiments import EXPERIMENTS

    if args and args[0] in ("-h", "--help"):
        print("nps presets: list the presets of every experiment")
        return
    require(not args, f"nps presets: got {' '.join(args)!r}, expected no arguments")
    width, indent = screen_width(), " " * 30
    for experiment in EXPERIMENTS.values():
        print(textwrap.fill(f"{experiment.name}: {experiment.about}", width))
        for name, preset in experiment.presets.items():
            about = textwrap.fill(
                preset.about, width, initial_indent=indent, subsequent_indent=indent
            )
            if len(name) < len(indent) - 2:
                print(f"  {name:28}{about[len(indent) :]}")
            else:
                print(f"  {name}\n{about}")
