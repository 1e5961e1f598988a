"""The settings of a rule layer: validated, passed on whole, and given back by the layer."""

import dataclasses
import inspect
import json
import typing

import pytest
import torch

from nps import ParallelNPS, RuleConfig, SequentialNPS
from nps.rules import AdaptiveNPS
from nps.rules.construction import LayerOptions
from nps.rules.layer import RuleLayer

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
    zero_start=True,
    null_handicap=1.5,
    most=2,
)

DEFAULTS = {field.name: field.default for field in dataclasses.fields(RuleConfig)}


@BOTH
@pytest.mark.parametrize("config", [RuleConfig(4), OTHER], ids=["defaults", "other"])
def test_a_layer_from_a_config_is_the_layer_from_its_keywords(kind, config):
    options = keywords_of(kind, config)
    layers = []
    for build in (lambda: kind.from_config(config, 6), lambda: kind(6, **options)):
        torch.manual_seed(0)
        layers.append(build())
    slots = torch.randn(7, 5, 6)
    noise = torch.rand(layers[0].noise_shape(7, slots=5))
    assert torch.equal(*(layer(slots, noise=noise) for layer in layers))
    assert layers[0].config == config


def keywords_of(kind, config):
    return {k: v for k, v in dataclasses.asdict(config).items() if k not in kind.unused}


def test_every_field_reaches_a_layer():
    """No default hides a field that the constructor forgets."""
    maps = dataclasses.replace(OTHER, hidden_layers=1, kernel_size=5)
    for field in dataclasses.fields(RuleConfig):
        values = {getattr(config, field.name) for config in (OTHER, maps)}
        assert values - {field.default}, field.name
    for kind, config in ((ParallelNPS, OTHER), (ParallelNPS, maps), (AdaptiveNPS, OTHER)):
        expected = dataclasses.replace(config, **{name: DEFAULTS[name] for name in kind.unused})
        assert kind(6, **keywords_of(kind, config)).config == expected
    assert not set.intersection(*(set(kind.unused) for kind in (ParallelNPS, AdaptiveNPS)))


@BOTH
def test_sizes_and_rules_beside_the_config(kind):
    layer = kind.from_config(RuleConfig(4), 6, selection_dim=3)
    assert layer(torch.randn(2, 5, 6), selection=torch.randn(2, 5, 3)).shape == (2, 5, 6)
    again = kind.from_config(RuleConfig(4), 6, rules=layer.rules)
    assert again.rules is layer.rules


def test_the_constructor_has_the_defaults_and_types_of_the_config():
    parameters = inspect.signature(SequentialNPS).parameters
    sizes = {"slot_dim", "num_rules", "selection_dim", "rules", "device", "dtype"}
    for field in dataclasses.fields(RuleConfig):
        if field.name not in {"num_rules", *SequentialNPS.unused}:
            parameter = parameters[field.name]
            assert (parameter.default, parameter.annotation) == (field.default, field.type)
            sizes.add(field.name)
    assert set(parameters) == sizes


def test_editors_read_the_keywords_of_both_layers():
    """`LayerOptions` stands for the keyword arguments of `RuleLayer` in signatures."""
    keywords = inspect.get_annotations(RuleLayer.__init__, eval_str=True)
    assert typing.get_type_hints(LayerOptions) == {
        name: keywords[name]
        for name, parameter in inspect.signature(RuleLayer).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    options = inspect.get_annotations(ParallelNPS.__init__, eval_str=True)["options"]
    assert options == typing.Unpack[LayerOptions]


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
        ("kernel_size", 0),
        ("temperature", 0.0),
        ("dropout", 1.0),
        ("context_dropout", -0.1),
        ("query", "conv"),
        ("context_query", "conv"),
        ("self_context", 1),
        ("context_gradient", "rule"),
        ("zero_start", 1),
        ("null_handicap", -1.0),
        ("most", 0),
    ],
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        dataclasses.replace(RuleConfig(4), **{field: value})
