"""What `nps inspect` shows of a world model of the user's own episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.experiments.custom.pictures import rollout_figure, slots_figure
from nps.experiments.custom.shares import CAPTION, COLUMNS, OVER_SEEDS, Share, shares
from nps.experiments.custom.steps import predict_steps, summary
from nps.experiments.custom.task import CustomTask
from nps.experiments.custom.verdict import verdict
from nps.experiments.headline import Headline, Metrics
from nps.experiments.results import Curve
from nps.experiments.world_models.inspect import action_tables, ranking_table
from nps.inspect import figures
from nps.inspect.report import Figure, Heading, Part, Table, Text
from nps.models.world_model import WorldModel

if TYPE_CHECKING:
    from jaxtyping import Float
    from numpy import ndarray


def inspect_own(task: CustomTask, model: WorldModel) -> list[Part]:
    """The verdict and its numbers, pictures, what serves which action, and C-SWM's ranking."""
    steps = predict_steps(model, task.rollouts)
    metrics = summary(steps)
    return [
        Text(verdict([metrics], dataclasses.asdict(task.config))),
        shares_table({"": shares([metrics])}, metrics),
        *rollout_figure(task, model, steps),
        *slots_figure(task, model, steps),
        *action_tables(task, model, task.names),
        Heading("C-SWM's ranking"),
        ranking_table(task.ranking(model), task.horizons),
    ]


def headline(metrics: Metrics, config: Mapping[str, Any]) -> Headline:
    """The verdict and its numbers of one tested run, for `nps eval`."""
    return Headline(verdict([metrics], config), shares_table({"": shares([metrics])}, metrics))


def shares_table(rows: Mapping[str, Sequence[Share]], test: Mapping[str, Any]) -> Table:
    """The shares of predicted steps: a row for each model and number of steps.

    Args:
        rows: model -> its shares; without a column for the model if its name is empty.
        test: test metrics of one run, for the size of the test set.
    """
    named = "" not in rows
    several = any(share.over_seeds for of in rows.values() for share in of)
    columns = [*(["Model"] if named else []), *COLUMNS, *([OVER_SEEDS] if several else [])]
    cells = [
        [*([name] if named else []), *share.cells, *missing(share, several)]
        for name, of in rows.items()
        for share in of
    ]
    size = (
        f" The test has {test['predicted_steps']} steps and {test['distinct_observations']} "
        "distinct observations."
    )
    over = " Over seeds: Student's t." if several else ""
    return Table(columns, cells, CAPTION + over + size, names=1 + named)


def missing(share: Share, several: bool) -> list[str]:
    """A dash if its seeds give no interval, being one or equal, and others do."""
    return ["–"] if several and share.over_seeds is None else []


def curves_figure(logs: Mapping[str, Sequence[Curve]]) -> list[Part]:
    """Loss over training, of training and validation; empty without matplotlib or epochs.

    Args:
        logs: model -> the metric logs of its seeds.
    """
    if not figures.available() or not any(log for of in logs.values() for log in of):
        return []
    panels = {
        panel: {name: losses(of, panel) for name, of in logs.items()}
        for panel in ("training", "validation")
    }
    caption = (
        "Loss over training, on training and on validation episodes. A low loss is no evidence of "
        "good predictions: the loss also rewards telling observations apart."
    )
    return [Figure("curves", figures.means_over(panels, "epoch", "loss"), caption)]


def losses(logs: Sequence[Curve], panel: str) -> dict[int, Float[ndarray, "S"]]:
    """Epoch -> the loss of each seed, on training or validation episodes."""
    found: dict[int, list[float]] = {}
    for row in (row for log in logs for row in log):
        loss = (row if panel == "training" else row.get("validation", {})).get("loss")
        if isinstance(loss, float):
            found.setdefault(row["epoch"], []).append(loss)
    return {epoch: np.array(seeds) for epoch, seeds in sorted(found.items())}
