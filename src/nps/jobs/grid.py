"""A grid of configs: `rules=2,4 dropout=0,0.1` means all combinations of these values.

Every point is validated like a config file, and its name can be used for a folder.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nps.errors import UserError, nearest
from nps.flags import require_short_names
from nps.training.config import TrainConfig, from_json, from_text, spell, to_json

Grid = dict[str, tuple[Any, ...]]
MOST_POINTS = 10_000


@dataclass(frozen=True)
class Point:
    """One config of the grid, named by its values, e.g. `rules=4,dropout=0.1`."""

    name: str
    values: dict[str, Any]
    config: TrainConfig


def parse_grid(cls: type[TrainConfig], texts: Sequence[str]) -> Grid:
    """Parse `["rules=2,4", "dropout=0,0.1"]` into fields and their values, without repeats."""
    fields = [field.name for field in dataclasses.fields(cls)]
    grid: Grid = {}
    for text in texts:
        given, equals, values = text.partition("=")
        name = given.replace("-", "_")
        if not equals:
            raise UserError(f"--grid: got {text!r}, expected NAME=VALUE,VALUE,…")
        if name not in fields:
            raise UserError(f"--grid: unknown field {given!r}{nearest(name, fields)}")
        if name in grid:
            raise UserError(f"--grid: got {name} twice, expected {name}=VALUE,VALUE,…")
        try:
            read = [from_text(cls, name, value.strip()) for value in values.split(",")]
        except UserError as error:
            raise UserError(f"--grid: {error}") from None
        grid[name] = tuple(dict.fromkeys(read))
    return grid


def points(config: TrainConfig, grid: Grid, default_name: str) -> list[Point]:
    """`config` with every combination of values; an empty grid is one point, `default_name`."""
    count = math.prod(map(len, grid.values()))
    if count > MOST_POINTS:
        raise UserError(f"--grid: got {count} combinations, expected at most {MOST_POINTS}")
    found = []
    for combination in itertools.product(*grid.values()):
        values = dict(zip(grid, combination, strict=True))
        name = ",".join(f"{key}={quote(spell(value), safe='')}" for key, value in values.items())
        require_short_names("--grid", name)  # of the folder
        try:
            changed = from_json(type(config), {**to_json(config), **values})
        except UserError as error:
            raise UserError(f"--grid {name}: {error}") from None
        found.append(Point(name or default_name, values, changed))
    return found
