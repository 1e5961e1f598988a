"""The identity of a run: what its config.json says, and what each of its checkpoints repeats.

An id, made once when the run is created, tells two trainings with the same settings apart. It
moves with the folder: a run that is copied or renamed as a whole stays the same run, and a
checkpoint that is put into the folder of another run is refused there.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from nps import schema
from nps.errors import UserError
from nps.reading import LARGEST, parse_json
from nps.training.config import TrainConfig, differences, to_json, with_defaults, with_new_names
from nps.training.precision import Precision

Identity = dict[str, Any]
"""experiment, preset, seed, precision, config; and once the run is created, id."""

SIGNED = {"id", "experiment", "seed"}
"""Keys of an identity that each checkpoint repeats, with the config."""
PLACES = {"start_from", "episodes"}
"""Config fields that hold paths of other files, which may be moved after training."""


def identity(
    experiment: str,
    preset: str,
    seed: int,
    config: TrainConfig,
    precision: Precision = "float32",
) -> Identity:
    """What identifies a run: the content of its config.json."""
    return {
        "experiment": experiment,
        "preset": preset,
        "seed": seed,
        "precision": precision,
        "config": to_json(config),
    }


def require_storable(run: Identity) -> None:
    """Refuse what a config.json cannot hold, since it could not be read again."""
    for name, value in {**run, **run["config"]}.items():
        if isinstance(value, int) and abs(value) > LARGEST:
            got = schema.shown(value)
            raise UserError(f"{name}: got {got}, expected a number of at most {LARGEST}")
    parse_json(json.dumps(run).encode(), "this config", dict[str, Any], finite=False)


def new_id() -> str:
    return secrets.token_hex(8)


def signature(run: Identity) -> Identity:
    """The part of an identity that checkpoints repeat, to recognise their run."""
    config = {key: value for key, value in run["config"].items() if key not in PLACES}
    return {key: run[key] for key in run if key in SIGNED} | {"config": config}


def changes(old: Identity, new: Identity, *, ids: bool = False) -> list[str]:
    """The settings in which two identities differ; with `ids`, also their ids."""
    return differences(_flat(old, ids), _flat(json.loads(json.dumps(new)), ids))


def _flat(saved: Identity, ids: bool) -> dict[str, Any]:
    """Every field of an identity; those of older versions get the defaults of newer fields."""
    left_out = {"config", "schema", "preset"} | (set() if ids else {"id"})
    rest = {key: value for key, value in saved.items() if key not in left_out}
    config = with_defaults(with_new_names(saved["config"]))
    return {"precision": "float32", **rest, **config}
