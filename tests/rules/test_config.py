"""The settings of a rule layer: validated, passed on whole, and given back by the layer."""

import dataclasses
import json

import pytest
import torch

from nps import ParallelNPS, RuleConfig, SequentialNPS

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
OTHER = RuleConfig(
    3,
    stages=2,
    rule_dim=5,
    key_dim=4,
    hidden_dim=9,
    hidden_layers=2,
    temperature=0.5,
    dropout=0.35,
    context_dropout=0.1,
    query="mlp",
    context_query="linear",
    self_context=False,
    context_gradient="update",
    null_handicap=1.5,
)


@BOTH
@pytest.mark.parametrize("config", [RuleConfig(4), OTHER], ids=["defaults", "other"])
def test_a_layer_from_a_config_is_the_layer_from_its_keywords(kind, config):
    options = dataclasses.asdict(config)
    if kind is SequentialNPS:
        del options["null_handicap"]
    layers = []
    for build in (lambda: kind.from_config(config, 6), lambda: kind(6, **options)):
        torch.manual_seed(0)
        layers.append(build())
    slots = torch.randn(7, 5, 6)
    noise = torch.rand(layers[0].noise_shape(7, slots=5))
    assert torch.equal(*(layer(slots, noise=noise) for layer in layers))
    assert layers[0].config == config


def test_every_field_reaches_the_layer():
    """No default hides a field that the constructor forgets."""
    assert all(
        getattr(OTHER, field.name) != field.default for field in dataclasses.fields(RuleConfig)
    )
    assert ParallelNPS(6, **dataclasses.asdict(OTHER)).config == OTHER


@BOTH
def test_sizes_and_rules_beside_the_config(kind):
    layer = kind.from_config(RuleConfig(4), 6, selection_dim=3)
    assert layer(torch.randn(2, 5, 6), selection=torch.randn(2, 5, 3)).shape == (2, 5, 6)
    again = kind.from_config(RuleConfig(4), 6, rules=layer.rules)
    assert again.rules is layer.rules


def test_a_config_survives_json():
    assert RuleConfig(**json.loads(json.dumps(dataclasses.asdict(OTHER)))) == OTHER


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_rules", 0),
        ("stages", 1.5),
        ("rule_dim", 0),
        ("key_dim", -1),
        ("hidden_dim", 0),
        ("hidden_layers", 0),
        ("temperature", 0.0),
        ("dropout", 1.0),
        ("context_dropout", -0.1),
        ("query", "conv"),
        ("context_query", "conv"),
        ("self_context", 1),
        ("context_gradient", "rule"),
        ("null_handicap", -1.0),
    ],
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        dataclasses.replace(RuleConfig(4), **{field: value})
