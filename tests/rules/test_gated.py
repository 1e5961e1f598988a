"""A gate on either form: against the algorithm without it, and a plain loop."""

import contextlib

import pytest
import torch

from nps.rules import GatedNPS, GatedParallelNPS, SequentialNPS

THRESHOLD = 2.0
"""About the median score of a stage's best pair, at first."""


def layer_of(null_score, **options):
    torch.manual_seed(0)
    layer = GatedNPS(6, 4, stages=3, rule_dim=5, key_dim=7, hidden_dim=8, **options)
    layer.null_score.data.fill_(null_score)
    return layer


def parallel_of(null_score, **options):
    torch.manual_seed(0)
    sizes = {"rule_dim": 5, "key_dim": 7, "hidden_dim": 8}
    layer = GatedParallelNPS(6, 4, **(sizes | options))
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


@pytest.mark.parametrize("make", [layer_of, parallel_of])
@pytest.mark.parametrize("null_score", [-3.0, 3.0])
def test_the_gate_learns_open_and_closed(make, null_score):
    """Towards the better of the two: a change that raises the loss, or lowers it."""
    gradients = []
    for sign in (1.0, -1.0):
        layer = make(null_score)
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


# -- the parallel form -------------------------------------------------------------------------


def test_a_slot_fires_if_its_rule_and_its_context_beat_the_null_rule():
    """Written out, slot by slot."""
    layer = parallel_of(1.0, self_context=False).eval()
    slots = torch.randn(20, 5, 6)
    new, trace = layer(slots, return_trace=True)
    queries, keys = layer.select.query(slots), layer.select.key(layer.rules.embedding)
    asks, answers = layer.bind.query(slots), layer.bind.key(slots)
    fired = 0
    for b in range(20):
        for p in range(5):
            of_rules = [(queries[b, p] @ key).item() for key in keys]
            of_slots = [(asks[b, p] @ answers[b, j]).item() if j != p else -1e9 for j in range(5)]
            rule, context = (max(range(len(x)), key=x.__getitem__) for x in (of_rules, of_slots))
            won = of_rules[rule] + of_slots[context] - 1.0
            assert trace.rule_scores[b, 0, p, rule].item() == pytest.approx(won, abs=1e-5)
            expected = slots[b, p]
            if won > 0:
                fired += 1
                assert (trace.rule[b, 0, p], trace.context[b, 0, p]) == (rule, context)
                both = slots[b, p][None], slots[b, context][None]
                expected = expected + layer.rules(*both, torch.eye(4)[rule][None])[0]
            else:
                assert trace.rule[b, 0, p] == -1
            torch.testing.assert_close(new[b, p], expected)
    assert 0 < fired < 100


@pytest.mark.parametrize("train", [True, False])
def test_the_parallel_gate_closed_and_open(train):
    slots = torch.randn(7, 5, 6)
    same, trace = parallel_of(1e4, stages=2).train(train)(slots, return_trace=True)
    assert torch.equal(same, slots)
    assert not trace.fired.any()
    _, trace = parallel_of(-1e4).train(train)(slots, return_trace=True)
    assert trace.fired.all()


def test_the_parallel_gate_knows_masks_disabled_rules_and_seeds():
    layer = parallel_of(-1e4).eval()
    slots, mask = torch.randn(9, 5, 6), torch.ones(9, 5, dtype=torch.bool)
    mask[:, 2] = False
    _, trace = layer(slots, slot_mask=mask, return_trace=True)
    assert not trace.fired[..., 2].any()
    assert (trace.context != 2).all()
    with contextlib.ExitStack() as stack:
        for i in range(4):
            stack.enter_context(layer.rules.disabled(i))
        assert torch.equal(layer(slots), slots)
    other = GatedParallelNPS.from_config(layer.config, 6).eval()
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(slots), layer(slots))
    torch.manual_seed(0)
    layer.reset_parameters()
    first = {k: v.clone() for k, v in layer.state_dict().items()}
    torch.manual_seed(0)
    layer.reset_parameters()
    assert all(torch.equal(first[k], v) for k, v in layer.state_dict().items())


def test_a_slot_fires_only_next_to_another():
    """What Algorithm 2 cannot learn from a slot's own place: a rule that depends on a distance."""
    torch.manual_seed(0)
    ways = {"query": "mlp", "self_context": False, "context_gradient": "update", "zero_start": True}
    layer = GatedParallelNPS(3, 1, hidden_dim=32, **ways)
    adam = torch.optim.Adam(layer.parameters(), lr=3e-3)

    def scenes(count):
        slots = torch.cat([4 * torch.rand(count, 3, 2), torch.zeros(count, 3, 1)], -1)
        away = torch.cdist(slots[..., :2], slots[..., :2]) + 9 * torch.eye(3)
        return slots, away.amin(-1) < 1.2

    for step in range(600):
        layer.train(step < 300)
        slots, near = scenes(256)
        new, trace = layer(slots, return_trace=True)
        price = 0.05 * (step > 300) * trace.rule_scores.amax(-1).sigmoid().mean()
        loss = (new[..., 2] - near.float()).square().mean() + price
        adam.zero_grad()
        loss.backward()
        adam.step()
    slots, near = scenes(500)
    fired = layer.eval()(slots, return_trace=True)[1].fired[:, 0]
    assert fired[near].float().mean() > 0.9
    assert fired[~near].float().mean() < 0.3
