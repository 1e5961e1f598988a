"""A gate on the sequential form: against the algorithm without it, and a plain loop."""

import contextlib

import pytest
import torch

from nps.rules import GatedNPS, SequentialNPS

THRESHOLD = 2.0
"""About the median score of a stage's best pair, at first."""


def layer_of(null_score, **options):
    torch.manual_seed(0)
    layer = GatedNPS(6, 4, stages=3, rule_dim=5, key_dim=7, hidden_dim=8, **options)
    layer.null_score.data.fill_(null_score)
    return layer


def test_stages_that_beat_the_null_rule_are_those_of_algorithm_1():
    """Stage by stage: the pair of the plain layer, if its score is above that of the null rule."""
    layer = layer_of(THRESHOLD).eval()
    plain = SequentialNPS(6, 4, stages=1, rule_dim=5, key_dim=7, hidden_dim=8).eval()
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "null_score"})
    slots = torch.randn(20, 5, 6)
    ours, trace = layer(slots, return_trace=True)
    expected = slots
    for k in range(3):
        changed, one = plain(expected, return_trace=True)
        best = one.rule_scores.flatten(1).amax(-1)
        opened = (best > THRESHOLD)[:, None]
        expected = torch.where(opened[..., None], changed, expected)
        assert torch.equal(trace.rule[:, k], torch.where(opened, one.rule[:, 0], -1))
        assert torch.equal(trace.context[:, k], torch.where(opened, one.context[:, 0], -1))
    assert torch.equal(ours, expected)
    fired = trace.fired.any(-1)
    assert fired.any()
    assert not fired.all()


@pytest.mark.parametrize("train", [True, False])
def test_a_closed_gate_returns_the_slots_and_an_open_one_is_the_plain_layer(train):
    slots, generator = torch.randn(7, 5, 6), torch.Generator
    closed = layer_of(1e4).train(train)
    same, trace = closed(slots, return_trace=True)
    assert torch.equal(same, slots)
    assert not trace.fired.any()
    opened = layer_of(-1e4).train(train)
    new, trace = opened(
        slots, noise=generator().manual_seed(1) if train else None, return_trace=True
    )
    assert (trace.fired.sum(-1) == 1).all()
    if not train:  # with noise, the gate has a share of it
        plain = SequentialNPS(6, 4, stages=3, rule_dim=5, key_dim=7, hidden_dim=8).eval()
        plain.load_state_dict({k: v for k, v in opened.state_dict().items() if k != "null_score"})
        assert torch.equal(new, plain(slots))


@pytest.mark.parametrize("null_score", [-3.0, 3.0])
def test_the_gate_learns_open_and_closed(null_score):
    """Towards the better of the two: a change that raises the loss, or lowers it."""
    gradients = []
    for sign in (1.0, -1.0):
        layer = layer_of(null_score)
        with torch.no_grad():  # every change is the same push
            layer.rules.weight_out.zero_()
            layer.rules.bias_out.fill_(1.0)
        slots = layer(torch.zeros(64, 5, 6), noise=torch.Generator().manual_seed(0))
        (sign * slots.sum()).backward()
        gradients.append(layer.null_score.grad.item())
    assert gradients[0] < 0 < gradients[1]


def test_masked_slots_and_disabled_rules_stay_out():
    layer = layer_of(-1e4).eval()
    slots, mask = torch.randn(9, 5, 6), torch.ones(9, 5, dtype=torch.bool)
    mask[:, 2] = False
    _, trace = layer(slots, slot_mask=mask, return_trace=True)
    assert not trace.fired[..., 2].any()
    with contextlib.ExitStack() as stack:
        for i in range(4):
            stack.enter_context(layer.rules.disabled(i))
        same, trace = layer(slots, return_trace=True)
    assert torch.equal(same, slots)
    assert not trace.fired.any()
