"""Names that people give to the rules of a trained run, kept beside its checkpoints.

    rule-names.json    {"<rule set in the model>": ["rule 0", "push", …], …}

Checkpoints are never written again for a name. A file that does not fit the model is left out with
a warning: a name is no reason not to load a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from nps.errors import UserError, say
from nps.files import os_errors_in_one_line, write_json
from nps.reading import Missing, read_json
from nps.rules import RuleSet
from nps.zoo import require_writable

FILE = "rule-names.json"


def rename(run: Any, rule: int | str, name: str) -> list[str]:
    """Give a rule of a run another name, and save it with the run; returns all names.

    Args:
        run: as `nps.load` returns it.
        rule: its index or its present name.
        name: not yet the name of another rule.
    """
    require_writable(run.folder)
    layer = run.workbench.layer
    if layer is None:
        raise UserError(f"{run.folder}: this model has no rules")
    rules, before = layer.rules, list(layer.rules.names)
    try:
        rules[rule].name = name.strip()
    except ValueError as error:
        raise UserError(str(error)) from None
    try:
        save(run.folder, run.model)
    except BaseException:
        rules.names = before
        raise
    return list(rules.names)


def save(folder: Path, model: nn.Module) -> None:
    """Write the names of all rules of a model."""
    path = folder / FILE
    with os_errors_in_one_line(f"cannot write {path}"):
        write_json(path, {where: list(rules.names) for where, rules in rule_sets(model).items()})


def apply(folder: Path, model: nn.Module) -> None:
    """Give the rules of a model the names that were saved."""
    path = folder / FILE
    try:
        saved: dict[str, list[str]] = read_json(path, dict[str, list[str]])
    except Missing:
        return
    except UserError as error:
        say(f"{error}; rules keep their names")
        return
    known = rule_sets(model)
    for where, names in saved.items():
        try:
            known[where].names = names
        except (LookupError, ValueError):
            say(f"{path}: does not fit the model; its rules keep their names")


def rule_sets(model: nn.Module) -> dict[str, RuleSet]:
    """The rule sets of a model, by their places in it."""
    modules = model.named_modules()
    return {name: module for name, module in modules if isinstance(module, RuleSet)}
