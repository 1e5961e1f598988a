"""How runs differ from their presets, and the commands that repeat them.

A report states both: the differences before its numbers, the commands after them.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from nps.experiments.experiment import Experiment
from nps.experiments.results import Result
from nps.experiments.summaries import wall_time
from nps.inspect.report import Heading, Lines, Text
from nps.training.config import flag, spell, to_json

Changes = dict[str, tuple[Any, Any]]
"""field -> (the preset's value, the run's)"""


def provenance(
    groups: Collection[Sequence[Result]], experiment: Experiment
) -> list[Heading | Lines]:
    """Commands, seeds, wall times, devices and commits of runs, one group per table row."""
    lines = []
    for runs in groups:
        seeds = _seeds([run.seed for run in runs])
        epochs = runs[0].config["epochs"]
        lines.append(f"{command(runs, experiment)}: {seeds}, {epochs} epochs, {wall_time(runs)}")
    sessions = [session for runs in groups for run in runs for session in run.provenance]
    for key in ("device", "torch", "commit"):
        lines.append(f"{key}: {', '.join(sorted({str(session[key]) for session in sessions}))}")
    return [Heading("Where the numbers come from"), Lines(lines)]


def command(runs: Sequence[Result], experiment: Experiment) -> str:
    """The `nps train` command that gives these runs.

    Precision changes a result but is not part of the config: it is read from the provenance.
    """
    first = runs[0]
    preset = preset_of(first, experiment)
    fields = {name: first.config[name] for name in experiment.flags}
    fields |= {name: now for name, (_, now) in changes(first, experiment).items()}
    flags = [
        flag("data" if name == experiment.data_field else name, value)
        for name, value in fields.items()
    ]
    precision = next((s["precision"] for s in first.provenance if "precision" in s), "float32")
    if precision != "float32":
        flags.append(flag("precision", precision))
    return " ".join(["nps train", *map(shlex.quote, [preset, *flags])])


def notice(groups: Iterable[Sequence[Result]], experiment: Experiment) -> list[Text]:
    """A sentence for the top of a report, if training differed from the presets."""
    firsts = [runs[0] for runs in groups]
    changed = [run for run in firsts if _training_changes(run, experiment)]
    if not changed:
        return []
    values: dict[str, tuple[list[str], list[str]]] = {}
    for run in changed:
        for name, (preset, now) in _training_changes(run, experiment).items():
            before, after = values.setdefault(name, ([], []))
            before.append(spell(preset))
            after.append(spell(now))
    what = ", ".join(
        f"{name} {_either(after)} instead of {_either(before)}"
        for name, (before, after) in values.items()
    )
    presets = dict.fromkeys(preset_of(run, experiment) for run in changed)
    where = "" if len(changed) == len(firsts) else f" (in {', '.join(presets)})"
    if all(_is_quick(run, experiment) for run in changed):
        start = "This is the quick version"
        end = "Do not compare its numbers with the paper's, or with those of the full presets."
    else:
        start = "Some settings differ from the presets"
        end = "The commands at the end show which runs have which."
    return [Text(f"{start}: {what}{where}. {end}")]


def changes(result: Result, experiment: Experiment) -> Changes:
    """The fields in which the run differs from its preset; empty if the preset is gone."""
    preset = preset_of(result, experiment)
    return _differences(result, experiment, preset) if preset in experiment.presets else {}


def preset_of(result: Result, experiment: Experiment) -> str:
    """The preset that describes the run best.

    That is the one it was trained with, unless its variant is named after a preset with the same
    settings: a variant that was first tried with flags, and became a preset later.
    """
    if result.variant in experiment.presets:
        differences = _differences(result, experiment, result.variant)
        if set(differences) <= _data_fields(experiment):
            return result.variant
    return result.preset


def _differences(result: Result, experiment: Experiment, preset: str) -> Changes:
    defaults = to_json(experiment.presets[preset].config)
    return {
        name: (defaults[name], value)
        for name, value in result.config.items()
        if name in defaults and value != defaults[name]
    }


def _training_changes(result: Result, experiment: Experiment) -> Changes:
    """The changes, without those that only say which data or initial model was used."""
    fields = _data_fields(experiment)
    return {name: both for name, both in changes(result, experiment).items() if name not in fields}


def _data_fields(experiment: Experiment) -> set[str | None]:
    return {"start_from", *experiment.flags, experiment.data_field}


def _is_quick(result: Result, experiment: Experiment) -> bool:
    """True if the run has the settings of `nps run --quick`."""
    return any(
        quick and all(result.config.get(name) == value for name, value in quick.items())
        for quick in experiment.quick.values()
    )


def _either(values: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(values))


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    return f"{len(seeds)} seeds ({min(seeds)} to {max(seeds)})"
