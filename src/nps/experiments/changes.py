"""How tested runs differ from their presets: what a report must say before its numbers are read."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nps.inspect.report import Text
from nps.training.config import flag, spell, to_json

if TYPE_CHECKING:
    from nps.experiments.experiment import Experiment
    from nps.experiments.results import Result


def command(runs: Sequence[Result]) -> str:
    """The `nps train` command that gives these runs, told from what is recorded.

    Precision is the one thing that changes a result and is no part of the config.
    """
    experiment, preset = _trained_as(runs[0])
    words = ["nps train", preset]
    if experiment is not None:
        always = {name: runs[0].config[name] for name in experiment.flags}
        changed = {name: now for name, (_, now) in changes(runs[0]).items()}
        for name, value in {**always, **changed}.items():
            words.append(flag("data" if name == experiment.data_field else name, value))
    precision = next((s["precision"] for s in runs[0].provenance if "precision" in s), "float32")
    if precision != "float32":
        words.append(flag("precision", precision))
    return " ".join([words[0], *map(shlex.quote, words[1:])])


def changes(result: Result) -> dict[str, tuple[Any, Any]]:
    """field -> (the preset's value, the run's), of a preset that is known."""
    experiment, preset = _trained_as(result)
    if experiment is None or preset not in experiment.presets:
        return {}
    return _from_preset(result, experiment, preset)


def told(results: Iterable[Sequence[Result]]) -> list[Text]:
    """A sentence for the top of a report on runs that are not their presets as they are."""
    firsts = [runs[0] for runs in results]
    changed = [run for run in firsts if _of_training(run)]
    if not changed:
        return []
    values: dict[str, tuple[list[str], list[str]]] = {}
    for run in changed:
        for name, (usual, now) in _of_training(run).items():
            before, after = values.setdefault(name, ([], []))
            before.append(spell(usual))
            after.append(spell(now))
    what = ", ".join(
        f"{name} {_either(after)} instead of {_either(before)}"
        for name, (before, after) in values.items()
    )
    whose = dict.fromkeys(_trained_as(run)[1] for run in changed)
    where = "" if len(changed) == len(firsts) else f" (in {', '.join(whose)})"
    if all(map(_is_short, changed)):
        begin = "This is the short version"
        end = "Read its numbers beside neither the paper's nor those of the full presets."
    else:
        begin = "Not the presets as they are"
        end = "Which run has which is told at the end."
    return [Text(f"{begin}: {what}{where}. {end}")]


def _of_training(result: Result) -> dict[str, tuple[Any, Any]]:
    """The changes, apart from which data and which model it begins with."""
    experiment, _ = _trained_as(result)
    about = _about_data(experiment) if experiment else set()
    return {name: both for name, both in changes(result).items() if name not in about}


def _from_preset(result: Result, experiment: Experiment, preset: str) -> dict[str, tuple[Any, Any]]:
    usual = to_json(experiment.presets[preset].config)
    return {
        name: (usual[name], value)
        for name, value in result.config.items()
        if name in usual and value != usual[name]
    }


def _about_data(experiment: Experiment) -> set[str | None]:
    return {"start_from", *experiment.flags, experiment.data_field}


def _either(values: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(values))


def _is_short(result: Result) -> bool:
    """Has it what `nps run --quick` changes?"""
    experiment, _ = _trained_as(result)
    return experiment is not None and any(
        quick and all(result.config.get(name) == value for name, value in quick.items())
        for quick in experiment.quick.values()
    )


def _trained_as(result: Result) -> tuple[Experiment | None, str]:
    """The experiment and preset in its config.json; its folder may have another name.

    If that is the name of a preset which has the run's very settings, it is that one: a variant
    that was tried with flags, and got a name for its results.
    """
    from nps.experiments import EXPERIMENTS  # which has the reports that are made here

    saved = result.run.read()
    experiment = EXPERIMENTS.get(saved["experiment"])
    if experiment is not None and result.preset in experiment.presets:
        differs = _from_preset(result, experiment, result.preset)
        if set(differs) <= _about_data(experiment):
            return experiment, result.preset
    return experiment, str(saved["preset"])
