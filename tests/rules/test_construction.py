"""Layers can be built again from their config, on any device and type, and drawn anew."""

import pytest
import torch

from nps import ConvRules, MLPRules, ParallelNPS, RuleConfig, SequentialNPS, interactions

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
CONFIG = RuleConfig(3, stages=2, rule_dim=5, hidden_layers=2, dropout=0.35, query="mlp")


def rebuilt(layer, **options):
    """A layer built from the config of another."""
    sizes = {"selection_dim": layer.selection_dim, **options}
    return type(layer).from_config(layer.config, layer.slot_dim, **sizes)


# -- round trip ------------------------------------------------------------------------------------

LAYERS = {
    "sequential": lambda: SequentialNPS.from_config(CONFIG, 6, selection_dim=5),
    "parallel": lambda: ParallelNPS.from_config(CONFIG, 6, selection_dim=5),
    "convolutional": lambda: ParallelNPS(6, 3, selection_dim=5, kernel_size=5, hidden_dim=7),
    "given rules": lambda: SequentialNPS(
        6, 3, selection_dim=5, rules=MLPRules(3, 6, rule_dim=4, hidden_dim=3, hidden_layers=2)
    ),
    "given convolutional rules": lambda: SequentialNPS(
        6, 3, selection_dim=5, rules=ConvRules(3, 6, rule_dim=4, hidden_dim=3, kernel_size=1)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_can_be_built_again_from_its_config(name):
    layer = LAYERS[name]()
    layer.rules.add(2)
    layer.rules.remove(0)
    layer.stages, layer.temperature, layer.self_context = 4, 0.25, not layer.self_context
    other = rebuilt(layer)
    assert other.config == layer.config
    assert (other.config.num_rules, other.config.stages, other.temperature) == (4, 4, 0.25)
    other.load_state_dict(layer.state_dict())  # raises unless all shapes are the same
    maps = (4, 4) if layer.rules.event_dims == 3 else ()
    slots, features = torch.randn(7, 3, 6, *maps), torch.randn(7, 3, 5)
    for training in (True, False):
        calls = []
        for each in (layer.train(training), other.train(training)):
            noise = torch.Generator().manual_seed(0)
            calls.append(each(slots, selection=features, noise=noise))
        assert torch.equal(*calls)


def test_a_router_can_be_built_again_from_its_config():
    layer = interactions.Routing(6, 3, num_slots=4, stages=2, hidden_dim=5)
    other = rebuilt(layer, num_slots=4)
    assert other.config == layer.config
    other.load_state_dict(layer.state_dict())
    slots = torch.randn(7, 4, 6)
    assert torch.equal(layer.eval()(slots), other.eval()(slots))


def test_rules_of_another_kind_are_passed_again():
    class Shift(MLPRules):
        pass

    layer = SequentialNPS(6, 3, rules=Shift(3, 6, hidden_dim=4))
    other = rebuilt(layer, rules=Shift(3, 6, hidden_dim=4))
    assert isinstance(other.rules, Shift)
    assert other.config == layer.config


def test_a_schedule_leaves_the_config_alone():
    layer = SequentialNPS(6, 3, temperature=2.0, dropout=0.5)
    layer.temperature, layer.dropout = torch.tensor(1.0), torch.tensor(0.1)
    assert (layer.config.temperature, layer.config.dropout) == (2.0, 0.5)


@BOTH
def test_kernel_size_makes_convolutional_rules(kind):
    layer = kind(6, 3, kernel_size=5, hidden_dim=7)
    assert isinstance(layer.rules, ConvRules)
    assert layer.rules.weight_in.shape == (3, 7, 12, 5, 5)
    for size in (4, 0, 3.0):
        with pytest.raises(ValueError, match=r"^kernel_size: got"):
            kind(6, 3, kernel_size=size)
    with pytest.raises(ValueError, match=r"^hidden_layers: got 2, expected 1 with a kernel_size"):
        kind(6, 3, kernel_size=3, hidden_layers=2)


# -- device, type, initial values ------------------------------------------------------------------

BUILD = {
    "sequential": lambda **o: SequentialNPS(6, 3, **o),
    "parallel": lambda **o: ParallelNPS(6, 3, query="mlp", **o),
    "convolutional": lambda **o: ParallelNPS(6, 3, kernel_size=3, **o),
    "routing": lambda **o: interactions.Routing(6, 3, num_slots=4, **o),
    "MLP rules": lambda **o: MLPRules(3, 6, **o),
    "convolutional rules": lambda **o: ConvRules(3, 6, **o),
}
EACH = pytest.mark.parametrize("build", BUILD.values(), ids=BUILD.keys())


@EACH
def test_device_and_dtype_hold_for_every_tensor(build):
    layer = build(device="meta", dtype=torch.float64)
    assert all(x.is_meta for x in [*layer.parameters(), *layer.buffers()])
    assert {x.dtype for x in layer.parameters()} == {torch.float64}
    assert {x.dtype for x in build(dtype=torch.bfloat16).parameters()} == {torch.bfloat16}


def test_given_rules_are_converted():
    layer = ParallelNPS(6, 3, rules=MLPRules(3, 6), dtype=torch.float64)
    assert {x.dtype for x in layer.parameters()} == {torch.float64}
    assert layer(torch.randn(2, 5, 6, dtype=torch.float64)).dtype == torch.float64


@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reset_parameters_draws_what_the_constructor_draws(build, dtype):
    torch.manual_seed(0)
    layer = build(dtype=dtype)
    before = {name: p.clone() for name, p in layer.named_parameters()}
    layer.reset_parameters()
    for name, p in layer.named_parameters():
        always_zero = name.split(".")[-1] in ("bias_in", "bias_out")
        assert torch.equal(p, before[name]) == always_zero, name
    torch.manual_seed(0)
    layer.reset_parameters()
    for name, p in layer.named_parameters():
        assert torch.equal(p, before[name]), name


@BOTH
def test_a_layer_on_the_meta_device_can_be_filled(kind):
    layer = kind(6, 3, device="meta").to_empty(device="cpu")
    torch.manual_seed(0)
    layer.reset_parameters()
    torch.manual_seed(0)
    expected = kind(6, 3).state_dict()
    assert all(torch.equal(x, expected[name]) for name, x in layer.state_dict().items())


def test_reset_parameters_forgets_removed_rules_and_keeps_frozen_ones_frozen():
    layer = ParallelNPS(6, 3)
    layer.rules.remove(0)
    layer.rules.freeze(1)
    before = layer.rules[1].embedding.clone()
    assert layer.rules.retired.any()
    layer.reset_parameters()
    assert not layer.rules.retired.any()
    assert layer.rules.frozen == [1]
    assert not torch.equal(layer.rules[1].embedding, before)
    assert torch.equal(layer.rules[1].embedding, layer.rules.embedding[1])
