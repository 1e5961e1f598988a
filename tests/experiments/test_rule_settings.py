"""The flags of an experiment reach its rule layer, each of them, as one `RuleConfig`."""

import pytest
import torch

from nps import RuleConfig
from nps.experiments import arithmetic, blocks, mnist
from nps.experiments.arithmetic.task import make_layer as arithmetic_layer
from nps.experiments.mnist.task import make_layer as mnist_layer
from nps.experiments.world_models.model import make_dynamics
from nps.models.world_model import Actions

SELECTIONS = {"linear": "linear", "mlp": "mlp", "per-slot": "linear"}
"""--selection -> the queries of the layer."""
SHARED = {"num_rules": 3, "rule_dim": 5, "key_dim": 7, "temperature": 0.5, "self_context": False}
OWN = {
    "arithmetic": {"hidden_dim": 9, "dropout": 0.2, "query": "mlp", "context_query": "mlp"},
    "mnist": {"hidden_dim": 9, "dropout": 0.2},
    "blocks": {
        "stages": 2,
        "hidden_dim": 9,
        "hidden_layers": 2,
        "context_gradient": "update",
        "context_dropout": 0.2,
        "null_handicap": 2.0,
    },
}
FLAGS = {"num_rules": "rules"}
WORLD_MODEL_FLAGS = FLAGS | {"hidden_dim": "rule_hidden_dim", "hidden_layers": "rule_layers"}


def layer_of(config):
    if isinstance(config, arithmetic.Config):
        return arithmetic_layer(config)
    if isinstance(config, mnist.Config):
        return mnist_layer(config, config.rules)
    return make_dynamics(config, Actions(25, config.slots, config.action)).layer


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        (arithmetic.Config, FLAGS),
        (mnist.Config, FLAGS),
        (blocks.Config, WORLD_MODEL_FLAGS),
    ],
    ids=["arithmetic", "mnist", "blocks"],
)
@pytest.mark.parametrize("kind", ["snps", "pnps"])
def test_every_flag_reaches_the_layer(config, flags, kind):
    experiment = config.__module__.split(".")[2]
    wanted = SHARED | OWN[experiment]
    values = {flags.get(name, name): value for name, value in wanted.items()}
    if experiment == "blocks":
        values["transition"] = kind
    with torch.device("meta"):
        layer = layer_of(config(**values))
    assert layer.config == RuleConfig(**wanted)


def test_the_selection_of_world_models_sets_the_query():
    queries = {name: blocks.Config(selection=name).rule_config.query for name in SELECTIONS}
    assert queries == SELECTIONS


@pytest.mark.parametrize(
    ("config", "value", "message"),
    [
        (arithmetic.Config, {"rules": 0}, "rules: got 0, expected at least 1"),
        (blocks.Config, {"rule_hidden_dim": 0}, "rule_hidden_dim: got 0, expected at least 1"),
        (blocks.Config, {"rule_layers": 1.5}, "rule_layers: got"),
        (mnist.Config, {"dropout": 1.0}, "dropout: got 1"),
        (mnist.Config, {"temperature": 0.0}, "temperature: got 0"),
        (arithmetic.Config, {"query": "conv"}, "query: got 'conv'"),
    ],
)
def test_mistakes_are_named_by_their_flag(config, value, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        config(**value)
