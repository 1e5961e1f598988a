"""A model that the viewer shows: its run, its workbench, and what is computed of it once."""

from __future__ import annotations

import copy
import dataclasses
from functools import cached_property
from threading import RLock
from typing import Any, Self

from nps.errors import UserError
from nps.experiments import find_experiment
from nps.inspect import forcing
from nps.inspect.descriptions import describe_all
from nps.inspect.workbench import Workbench
from nps.reading import read_json
from nps.rules import ParallelNPS
from nps.viewer import lineage
from nps.viewer.payload import number, plain
from nps.zoo import is_shipped


class Shown:
    """A run in the viewer.

    Args:
        number: its place in the list of models.
        run: as `nps.load` returns it.
        title: what it is called on the page.
    """

    def __init__(self, number: int, run: Any, title: str) -> None:
        self.number, self.run, self._title = number, run, title
        self.lock = RLock()
        """Held while the model computes: hooks and caches of a model are not for two threads."""
        self._described: dict[str, Any] | None = None

    @cached_property
    def workbench(self) -> Workbench:
        bench: Workbench = self.run.workbench
        return bench

    @property
    def title(self) -> str:
        return self._title

    @property
    def kind(self) -> str:
        """How its rules are chosen."""
        layer = self.workbench.layer
        if layer is None:
            return "none"
        return "parallel" if isinstance(layer, ParallelNPS) else "sequential"

    @property
    def has_folder(self) -> bool:
        """Whether it is of a run folder, and not of a model in memory alone."""
        return self.run.folder is not None

    def renumbered(self, number: int) -> Self:
        """The same model at another place."""
        other = copy.copy(self)
        other.number = number
        return other

    def rules(self, episodes: int) -> dict[str, Any]:
        """What its rules do, from so many episodes; found once, while names may change."""
        bench = self.workbench
        with self.lock:
            if self._described is None:
                count = min(episodes, bench.count())
                found = [plain(each.to_json()) for each in describe_all(bench, count)]
                self._described = {"rules": found, "episodes": count}
            named = zip(self._described["rules"], bench.rule_names, strict=True)
            return self._described | {"rules": [rule | {"name": name} for rule, name in named]}

    def about(self) -> dict[str, Any]:
        """What the page needs to know of it, but for the names of its slots."""
        with self.lock:
            names = list(self.workbench.rule_names)
            return {"id": self.number, **self._fixed, "rules": names}

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        bench, layer = self.workbench, self.workbench.layer
        shipped = self.has_folder and is_shipped(self.run.folder)
        return {
            "title": self.title,
            "experiment": self.run.experiment,
            "preset": self.run.preset,
            "seed": self.run.seed,
            "stages": 0 if layer is None else layer.stages,
            "actions": list(bench.actions),
            "keys": {key: [int(action) for action in each] for key, each in bench.keys.items()},
            "features": list(bench.feature_names),
            "drags": bench.drags,
            **_plays(bench),
            # Steps up to which an action after the last one makes the episode longer.
            "longest": getattr(bench, "longest", 0),
            "decodes": bench.decodes,
            "episodes": bench.count(),
            "fps": bench.fps,
            "opening": bench.opening,
            "error": bench.error_name,
            "encoder": bench.encoder,
            "lineage": lineage.of(self.run),
            "edited": lineage.edited(self.run, bench.rule_names),
            "training": lineage.training(self.run),
            "renames": self.has_folder and layer is not None and not shipped,
            "saves": self.has_folder and layer is not None,
            "kind": self.kind,
            "forces": forcing.options(layer),
            "reading": bench.reading,
            "metrics": self._metrics(),
        }

    def _metrics(self) -> dict[str, float | str]:
        """The numbers of its test that matter, or those of its newest validation."""
        if (card := getattr(self.run, "card", None)) is not None:
            return {str(name): str(value) for name, value, *_ in card["numbers"]}
        if self.run.folder is not None and (tested := _tested(self.run)):
            return tested
        for row in reversed(self.run.metrics):
            if isinstance(found := row.get("validation"), dict):
                read = {k: number(v) for k, v in found.items() if isinstance(v, (int, float))}
                return {name: value for name, value in read.items() if value is not None}
        return {}


def _plays(bench: Workbench) -> dict[str, bool | str]:
    """Whether its world can be stepped here, and if something is missing, what."""
    try:
        return {"plays": bench.world(0) is not None, "needs": ""}
    except UserError as error:
        return {"plays": False, "needs": str(error)}


def _tested(run: Any) -> dict[str, float | str]:
    """The headline of test.json; nothing if there is none or it cannot be read."""
    path = run.folder / "test.json"
    if not path.is_file():
        return {}
    try:
        metrics = read_json(path, dict[str, Any], finite=False)
        headline = find_experiment(run.experiment).headline(metrics, dataclasses.asdict(run.config))
    except (UserError, LookupError, TypeError):  # of another version, or half of it
        return {}
    return {} if headline is None else {row[0]: row[1] for row in headline.table.rows}
