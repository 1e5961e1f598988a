"""Configs: frozen dataclasses to JSON and back, strictly, and the fields every experiment shares.

A config file is untrusted data: unknown fields, wrong types and impossible values are refused by
name. It names no code, and nothing is unpickled.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from nps import schema
from nps.errors import UserError, nearest
from nps.rules.check import require_int, require_number
from nps.training.precision import Precision

SCHEMA = 1
"""Version of the run folder's layout. Readers refuse newer ones."""
RENAMED = {"alone_until": "context_from", "image_asks": "image_selects"}
"""Fields of experiments' configs: old name -> new name. Saved runs and tables have the old ones."""
REMOVED = frozenset({"blind"})
"""Fields that are gone. They had to do with training alone: a saved model is what it was."""
ADDED = {
    "frames": 1,
    "separate_encoding": False,
    "start_from": None,
    "whole_chains": False,
    "objective": "expected",
    "energy_temperature": 5e-4,
}
"""Fields of experiments' configs that came later: name -> the value that earlier runs had."""


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the training loop. Experiments inherit these and add their own."""

    flags_title: ClassVar[str] = "Training"

    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 64
    """Examples per step; the incomplete last batch of an epoch is left out."""
    learning_rate: float = 1e-4
    """Adam's learning rate."""
    final_learning_rate: float | None = None
    """Learning rate at the end of a cosine schedule; none keeps it constant."""
    restart_at: float | None = None
    """Fraction of training after which the cosine starts over; none: never."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises linearly from zero."""
    weight_decay: float = 0.0
    """Decoupled weight decay (AdamW)."""
    clip_norm: float | None = None
    """Clip the norm of the gradient to this; none does not clip."""
    ema_decay: float | None = None
    """Decay of an exponential moving average of the parameters, which is validated and tested in
    their place; none uses the parameters themselves."""
    validate_every: int = 5
    """Epochs between validations; the best model is chosen there."""

    def __post_init__(self) -> None:
        require_int("epochs", self.epochs, at_least=1)
        require_int("batch_size", self.batch_size, at_least=1)
        require_int("validate_every", self.validate_every, at_least=1)
        require_int("warmup_steps", self.warmup_steps, at_least=0)
        require_number("weight_decay", self.weight_decay, 0.0, 1e3, open_top=False)
        require_number("learning_rate", self.learning_rate, 0.0, 1e3, open_top=False)
        if self.final_learning_rate is not None:
            top = self.learning_rate
            require_number("final_learning_rate", self.final_learning_rate, 0, top, open_top=False)
        if self.restart_at is not None:
            require_number("restart_at", self.restart_at, 0.0, 1.0, open_top=True)
        if self.clip_norm is not None:
            require_number("clip_norm", self.clip_norm, 0.0, float("inf"), open_top=False)
        if self.ema_decay is not None:
            require_number("ema_decay", self.ema_decay, 0.0, 1.0, open_top=True)

    def trained(self) -> Self:
        """The config of the finished model, without what only the start of training needs."""
        return self


@dataclass(frozen=True)
class Settings:
    """How to run a training. Only the precision changes results, and it is part of the identity."""

    tensorboard: bool = False
    keep: int = 2
    """Checkpoints to keep; each holds the best model so far."""
    stop_at: int | None = None
    """Stop after this step as if by a signal, saved and ready to resume."""
    seconds_between_saves: float = 30.0
    """At least: more where a save takes long. In between, the best model is kept in memory."""
    capture: bool = True
    """On CUDA, replay the step as a graph."""
    precision: Precision = "float32"
    seeds_at_once: int | None = None
    """Most seeds in a stack; by default as many as fit in memory."""
    draw_every: int | None = None
    """Epochs between pictures; by default they are drawn at the end of the training only."""
    progress: bool = True
    """Show progress."""
    call: str | None = None
    """The call of `nps.train`, for provenance; None: a command. A program gets lines of progress
    where there is no terminal, and a second Ctrl-C as an exception."""


C = TypeVar("C", bound=TrainConfig)


def to_json(config: TrainConfig) -> dict[str, Any]:
    return dataclasses.asdict(config)


def spell(value: Any) -> str:
    """A value as typed on a command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def flag(name: str, value: Any) -> str:
    """A field and its value as typed on a command line."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def from_json(cls: type[C], data: object) -> C:
    """Build a config from JSON data, or say in one line what is wrong with it."""
    if not isinstance(data, dict):
        raise UserError(f"config: got {type(data).__name__}, expected an object of fields")
    fields, types = {field.name for field in dataclasses.fields(cls)}, typing.get_type_hints(cls)
    hints = {name: hint for name, hint in types.items() if name in fields}
    for key, value in data.items():
        if key not in hints:
            raise UserError(f"config: unknown field {key!r}{nearest(str(key), hints)}")
        if (what := schema.problem(value, hints[key], key)) is not None:
            raise UserError(f"config: {what}")
    try:
        return cls(**data)
    except ValueError as error:
        raise UserError(f"config: {error}") from None


def from_text(cls: type[TrainConfig], name: str, text: str) -> Any:
    """A field's value as typed on a command line: a number, a word, true, false or none."""
    hint = typing.get_type_hints(cls)[name]
    for read in (_word, float, int, str):  # the first that fits the field's type
        try:
            value = read(text)
        except ValueError:
            continue
        if schema.fits(value, hint):
            return value
    raise UserError(f"{name}: got {text!r}, expected {schema.spell(hint)}")


def _word(text: str) -> bool | None:
    words = {"true": True, "false": False, "none": None}
    if text.lower() not in words:
        raise ValueError
    return words[text.lower()]


def with_new_names(config: dict[str, Any]) -> dict[str, Any]:
    """A saved config, with the fields that were renamed or removed after it was saved."""
    kept = {name: value for name, value in config.items() if name not in REMOVED}
    return {RENAMED.get(name, name): value for name, value in kept.items()}


def with_defaults(config: dict[str, Any]) -> dict[str, Any]:
    """A saved config, with the fields of the loop that were added after it was saved."""
    return {field.name: field.default for field in dataclasses.fields(TrainConfig)} | config


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Readable list of the fields that differ."""
    keys = sorted(old.keys() | new.keys())
    absent = {key: ADDED.get(key, "(absent)") for key in keys}
    old, new = absent | old, absent | new
    return [
        f"{key}: {_brief(old[key])} -> {_brief(new[key])}" for key in keys if old[key] != new[key]
    ]


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= schema.SHORT else f"{text[: schema.SHORT]}…"
