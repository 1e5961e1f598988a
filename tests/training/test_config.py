"""Configs survive JSON exactly, and nothing else gets in."""

import json
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nps.errors import UserError
from nps.training.config import TrainConfig, differences, from_json, to_json
from nps.training.run import Run


@dataclass(frozen=True)
class Config(TrainConfig):
    kind: Literal["a", "b"] = "a"
    flag: bool = False
    name: str = ""


@given(
    epochs=st.integers(1, 10**6),
    rate=st.floats(1e-12, 1.0),
    clip=st.none() | st.floats(0, 10),
    kind=st.sampled_from("ab"),
    flag=st.booleans(),
    name=st.text(),
)
def test_round_trip(epochs, rate, clip, kind, flag, name):
    config = Config(
        epochs=epochs, learning_rate=rate, clip_norm=clip, kind=kind, flag=flag, name=name
    )
    assert from_json(Config, to_json(config)) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 3}, "unknown field 'epoch'; did you mean epochs?"),
        ({"epochs": "3"}, "epochs is '3', expected int"),
        ({"epochs": True}, "epochs is True, expected int"),
        ({"epochs": 0}, "epochs: got 0, expected at least 1"),
        ({"learning_rate": None}, "learning_rate is None, expected float"),
        ({"learning_rate": -1.0}, "learning_rate: got -1"),
        ({"final_learning_rate": 1.0}, "final_learning_rate: got 1"),
        ({"clip_norm": "x"}, "expected float or none"),
        ({"warmup_steps": -1}, "warmup_steps: got -1, expected at least 0"),
        ({"weight_decay": -0.1}, "weight_decay: got -0.1"),
        ({"ema_decay": 1.0}, "ema_decay: got 1"),
        ({"kind": "c"}, "kind is 'c', expected one of a, b"),
        ({"flag": 1}, "flag is 1, expected bool"),
        ({"batch_size": 2.5}, "batch_size is 2.5, expected int"),
    ],
)
def test_refused(change, message):
    with pytest.raises(UserError) as error:
        from_json(Config, {**to_json(Config()), **change})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_not_an_object():
    with pytest.raises(UserError, match="expected an object"):
        from_json(Config, [1])


def test_differences_name_what_changed():
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == [
        "b: 2 -> 3",
        "c: (absent) -> 4",
    ]


def test_renamed_fields_are_read_by_their_new_names(tmp_path):
    """A run of an older version; resuming it compares its config with today's."""
    saved = {"schema": 1, "experiment": "mnist", "preset": "mnist-balanced", "seed": 0}
    old = {"epochs": 2, "image_asks": False, "alone_until": 0.05}
    (tmp_path / "config.json").write_text(json.dumps({**saved, "config": old}))
    new = {"epochs": 2, "image_selects": False, "context_from": 0.05}
    assert Run(tmp_path).read()["config"] == new
    identity = {"experiment": "mnist", "preset": "mnist-balanced", "seed": 0, "config": new}
    assert Run(tmp_path).differences(identity) == []


def test_class_attributes_are_not_fields():
    with pytest.raises(UserError, match="config: unknown field 'shared'"):
        from_json(WithClassAttribute, {"shared": {}})


@dataclass(frozen=True)
class WithClassAttribute(TrainConfig):
    shared: ClassVar[dict[str, str]] = {}
