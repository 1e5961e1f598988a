"""The routing baseline: the same call as the layers, but an MLP over all slots decides."""

import pytest
import torch

from nps import RuleConfig, SequentialNPS
from nps.interactions import Routing


def make(stages=1, seed=0, noisy=True, **options):
    torch.manual_seed(seed)
    return Routing(6, 4, num_slots=3, stages=stages, noisy=noisy, **options)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("lead", [(), (1,), (5,), (2, 3)])
def test_shapes_of_slots_and_trace(lead, training):
    layer = make(stages=2).train(training)
    slots = torch.randn(*lead, 3, 6)
    new, trace = layer(slots, return_trace=True)
    assert new.shape == slots.shape
    assert trace.rule.shape == trace.context.shape == (*lead, 2, 3)
    assert trace.rule_scores.shape == (*lead, 2, 3, 4)
    assert trace.context_scores.shape == (*lead, 2, 3, 3)


@pytest.mark.parametrize("training", [True, False])
def test_a_stage_changes_exactly_one_slot(training):
    layer = make().train(training)
    slots = torch.randn(50, 3, 6)
    new, trace = layer(slots, return_trace=True)
    changed = (new != slots).any(-1)
    assert (changed.sum(-1) == 1).all()
    assert torch.equal(changed, trace.fired[:, 0])
    assert torch.equal(trace.rule >= 0, trace.context >= 0)


def test_one_slot_a_stage_fires():
    layer = make(stages=3)
    _, trace = layer(torch.randn(50, 3, 6), return_trace=True)
    assert (trace.fired.sum(-1) == 1).all()
    assert (trace.context_scores[~trace.fired] == 0).all()


def test_the_heads_decide_and_the_chosen_rule_acts():
    layer = make().eval()
    slots = torch.randn(50, 3, 6)
    new, trace = layer(slots, return_trace=True)
    thought = layer.router(slots.flatten(-2))
    p, c, r = (
        head(thought).argmax(-1)
        for head in (layer.primary_head, layer.context_head, layer.rule_head)
    )
    rows, rules = torch.arange(50), layer.rules
    x = torch.cat([slots[rows, p], slots[rows, c]], -1).unsqueeze(1)
    hidden = (x @ rules.weight_in[r] + rules.bias_in[r].unsqueeze(1)).relu()
    update = (hidden @ rules.weight_out[r]).squeeze(1) + rules.bias_out[r]
    expected = slots.clone()
    expected[rows, p] += update
    torch.testing.assert_close(new, expected)
    assert torch.equal(trace.rule[rows, 0, p], r)
    assert torch.equal(trace.context[rows, 0, p], c)


def test_the_router_is_the_papers():
    # Four layers of width 32, three heads.
    layer = make()
    linear = [x for x in layer.router if isinstance(x, torch.nn.Linear)]
    assert [x.out_features for x in linear] == [32] * 4
    assert linear[0].in_features == 3 * 6


def test_gradients_reach_router_heads_and_rules():
    layer = make(stages=2)
    slots = torch.randn(50, 3, 6, requires_grad=True)
    new, trace = layer(slots, return_trace=True)
    new.square().sum().backward()
    assert trace.rule[trace.fired].unique().numel() == 4
    assert (slots.grad != 0).any()
    for name, p in layer.named_parameters():
        if p.requires_grad:
            assert p.grad is not None, name
            assert (p.grad != 0).any(), name
    # The straight-through gradient reaches every row of the rule head, chosen or not.
    assert (layer.rule_head.weight.grad != 0).any(-1).all()


def test_every_trained_parameter_is_used():
    # Else a run in which unused parameters are an error (DDP) would stop.
    layer = make()
    layer(torch.randn(4, 3, 6)).sum().backward()
    assert all(p.grad is not None for p in layer.parameters() if p.requires_grad)


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_another_number_of_slots_is_refused(slots):
    with pytest.raises(ValueError, match=rf"slots: got {slots} slots, expected .*3") as caught:
        make()(torch.zeros(2, slots, 6))
    assert "\n" not in str(caught.value)


def test_a_slot_mask_is_refused():
    with pytest.raises(ValueError, match="slot_mask"):
        make()(torch.zeros(2, 3, 6), slot_mask=torch.ones(2, 3, dtype=torch.bool))


@pytest.mark.parametrize("name", ["num_slots", "width", "depth", "slot_dim", "num_rules", "stages"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True], ids=repr)
def test_wrong_constructor_argument(name, value):
    options = {"slot_dim": 6, "num_rules": 4, "num_slots": 3, name: value}
    with pytest.raises(ValueError, match=name):
        Routing(**options)


def test_from_config_takes_what_a_router_has():
    """Sizes and temperature; keys, queries and dropout have no meaning for it."""
    config = RuleConfig(
        4, stages=2, hidden_dim=9, hidden_layers=2, temperature=0.5, rule_dim=7, dropout=0.35
    )
    torch.manual_seed(0)
    made = Routing.from_config(config, 6, selection_dim=5, num_slots=3, width=8, noisy=True)
    expected = make(
        stages=2, hidden_dim=9, hidden_layers=2, temperature=0.5, selection_dim=5, width=8
    )
    slots, features = torch.randn(5, 3, 6), torch.randn(5, 3, 5)
    noise = torch.rand(expected.noise_shape(5, slots=3))
    call = {"selection": features, "noise": noise}
    assert torch.equal(made(slots, **call), expected(slots, **call))
    assert made.config == config


def test_the_call_is_that_of_the_layers():
    slots, selection = torch.randn(5, 3, 6), torch.randn(5, 3, 2)
    for layer in (make(selection_dim=2), SequentialNPS(6, 4, selection_dim=2)):
        noise = torch.rand(layer.noise_shape(5, slots=3))
        for features in (selection, lambda v: v[..., :2]):
            new, trace = layer(slots, selection=features, noise=noise, return_trace=True)
            assert new.shape == slots.shape
            assert trace.fired.shape == (5, 1, 3)


def test_selection_features_decide_alone():
    layer = make(selection_dim=2).eval()
    slots, selection = torch.randn(50, 3, 6), torch.randn(50, 3, 2)
    _, a = layer(slots, selection=selection, return_trace=True)
    _, b = layer(-slots, selection=selection, return_trace=True)
    assert torch.equal(a.rule, b.rule)
    assert torch.equal(a.context, b.context)


def test_evaluation_is_deterministic_and_training_follows_its_noise():
    layer = make(stages=2)
    slots = torch.randn(50, 3, 6)
    noise = torch.rand(layer.noise_shape(50, slots=3))
    assert torch.equal(layer(slots, noise=noise), layer(slots, noise=noise))
    assert not torch.equal(layer(slots, noise=noise), layer(slots, noise=1 - noise))
    layer.eval()
    assert torch.equal(layer(slots, noise=noise), layer(slots, noise=1 - noise))
    before = torch.get_rng_state()
    assert torch.equal(layer(slots), layer(slots))
    assert torch.equal(torch.get_rng_state(), before)


def test_without_noise_training_chooses_as_evaluation_does():
    layer = make(stages=2, noisy=False)
    slots = torch.randn(50, 3, 6)
    new, trace = layer(slots, return_trace=True)
    expected, its_trace = layer.eval()(slots, return_trace=True)
    # not bit for bit: evaluation pads the rules to be independent of their place in memory
    torch.testing.assert_close(new, expected)
    assert torch.equal(trace.rule, its_trace.rule)
    new.square().sum().backward()
    assert (layer.primary_head.weight.grad != 0).any(-1).all()


def test_a_disabled_rule_does_not_fire():
    layer = make(stages=2)
    slots = torch.randn(50, 3, 6)
    with layer.rules.disabled(0), layer.rules.disabled(2):
        _, trace = layer(slots, return_trace=True)
    assert sorted(trace.rule[trace.fired].unique().tolist()) == [1, 3]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_in_its_own_type(dtype):
    layer = make(stages=2).to(dtype)
    new = layer(torch.randn(20, 3, 6).to(dtype))
    assert new.dtype == dtype
    assert torch.isfinite(new).all()


def test_state_dict_round_trip():
    layer = make(stages=2).eval()
    other = make(stages=2, seed=1).eval()
    slots = torch.randn(20, 3, 6)
    assert not torch.equal(other(slots), layer(slots))
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(slots), layer(slots))
