"""`nps eval RUN`: test a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console

from nps.commands.shared import (
    DataFolder,
    Device,
    OtherTestSet,
    about,
    find_device,
    own_data,
    positional,
    require_exists,
)
from nps.errors import one_line
from nps.flag_help import flags_of
from nps.flags import parse


@dataclass(frozen=True)
class EvalArgs:
    device: Device = "cpu"
    """cpu or cuda."""
    which: Literal["best", "last"] = "best"
    """The model with the best validation score, or the last one."""
    data: DataFolder = None
    on: OtherTestSet = None
    all: bool = False
    """Print every number, not only those that matter most."""


def evaluate(args: Sequence[str]) -> None:
    """Test a trained model: the numbers that matter, each beside its floor, and a verdict.

    All settings are read from the run folder. --all prints every number.

    The numbers of the best model on validation, of the newest checkpoint, go to RUN/test.json, from
    which tables are made; other checkpoints, models and test sets get files of their own. RUN may
    be the name of a model that ships with nps (`nps models`); nothing is written then. A model that
    was edited by hand is shown beside the numbers from before its edits.

    Examples:
      nps eval runs/sharp
      nps eval runs/sharp --all
      nps eval blocks-best
      nps eval runs/sharp/checkpoints/step-00046800 --which last
      nps eval runs/blocks --on unobserved-zero-shot-shape
      nps eval runs/mine --on other.h5
    """
    from nps import experiments
    from nps.commands.show import eval_report
    from nps.experiments.unedited import beside, unedited
    from nps.training.run import run_at
    from nps.zoo import find_run

    name, rest = positional(evaluate, "RUN", args, lambda: flags_of(EvalArgs))
    options = parse(EvalArgs, rest, prog="nps eval RUN", about=about(evaluate))
    require_exists(options.data)
    folder = find_run(name)
    experiment = experiments.experiment_of(folder)
    given = own_data(experiment, options.data)
    find_device(options.device)
    metrics = experiments.evaluate(folder, options.device, options.which, given, options.on)
    config = run_at(folder).read()["config"]
    headline = experiment.headline(metrics, config)
    before = unedited(run_at(folder).folder, metrics)
    if before is not None:
        headline = beside(headline, before, experiment, config)
    shown = eval_report(
        one_line(name), metrics, headline, every=options.all, flags=rest, before=before
    )
    shown.show(Console())
