"""Edits of a running layer, against the same computed by hand from the layer's own parts."""

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.inspect.edits import Added, Edits, Forced, Placed, Scaled
from nps.inspect.forcing import options
from nps.inspect.intervene import intervened, require_steps
from nps.inspect.recording import recorded
from nps.models.digits import OperandNPS
from nps.models.digits_authors import AuthorsNPS
from nps.rules import (
    AdaptiveNPS,
    ConvRules,
    GatedNPS,
    GatedParallelNPS,
    ParallelNPS,
    SequentialNPS,
)
from tests.inspect.test_recording import make

STOCK = [SequentialNPS, ParallelNPS, GatedNPS, GatedParallelNPS, AdaptiveNPS]
ALL = [*STOCK, OperandNPS, AuthorsNPS]
each = pytest.mark.parametrize("kind", ALL)


@torch.no_grad()
def run(layer, slots, edits=None, directions=None, calls=1, first=0, **options):
    edits = edits or Edits()
    results = []
    with intervened(layer, edits, directions, first=first), recorded(layer) as recorder:
        for _ in range(calls):
            results.append(layer(slots, **options))
    return results, recorder.record()


def update(layer, record, t, k, slot):
    """What the rule that fired would do by itself, from the recorded slots."""
    rule, context = int(record.rule[t, k, slot]), int(record.context[t, k, slot])
    before = torch.from_numpy(record.before[t, k])
    primary = before[slot]
    other = before[context] if context >= 0 else torch.zeros_like(primary)
    if isinstance(layer, OperandNPS):
        other = torch.zeros_like(primary)
    with torch.no_grad():
        out = layer.rules.outputs(primary[None], other[None])[rule, 0]
    return (out - primary if isinstance(layer, AuthorsNPS) else out).numpy()


@each
def test_without_edits_nothing_changes(kind):
    layer, slots = make(kind)
    with torch.no_grad():
        plain = layer(slots)
    assert torch.equal(run(layer, slots)[0][0], plain)


@each
def test_disabled_rules_do_not_fire(kind):
    layer, slots = make(kind)
    _, record = run(layer, slots)
    used = sorted(set(record.rule[record.rule >= 0].tolist()))
    results, edited = run(layer, slots, Edits(disabled=tuple(used[:1])))
    assert used[0] not in edited.rule
    with torch.no_grad(), layer.rules.disabled(used[0]):
        assert torch.equal(results[0], layer(slots))


@each
def test_scaled_and_added(kind):
    layer, slots = make(kind)
    _, plain = run(layer, slots)
    rule = int(plain.rule[plain.rule >= 0][0])
    edits = Edits(scaled=(Scaled(rule, 3.0), Scaled(rule, 0.5)), added=(Added(rule, "x", 2.0),))
    _, record = run(layer, slots, edits, {"x": np.array([0.0, 1.0])})
    found = 0
    for k, slot in np.argwhere(record.rule[0] >= 0):
        expected = update(layer, record, 0, k, slot)
        if record.rule[0, k, slot] == rule:
            found += 1
            if kind is AuthorsNPS:  # the output itself is scaled, and replaces the slot
                expected = 1.5 * (expected + record.before[0, k, slot]) - record.before[0, k, slot]
            else:
                expected = 1.5 * expected
            expected[1] += 2.0
        np.testing.assert_allclose(record.update[0, k, slot], expected, atol=1e-5)
    assert found


def test_maps_are_scaled_and_shifted():
    torch.manual_seed(0)
    layer = ParallelNPS(4, 2, rules=ConvRules(2, 4, hidden_dim=6), null_handicap=1e6).eval()
    slots = torch.randn(1, 3, 4, 5, 5)
    _, plain = run(layer, slots)
    rule = int(plain.rule[0, 0, 0])
    both = plain.rule[0, 0] == rule
    edits = Edits(scaled=(Scaled(rule, 2.0),), added=(Added(rule, "up", 0.5),))
    whole, channel = np.random.default_rng(0).normal(size=100), np.arange(4.0)
    for direction, shift in ((whole, whole), (channel, np.repeat(channel, 25))):
        _, record = run(layer, slots, edits, {"up": direction})
        expected = np.where(both[:, None], 2 * plain.update + 0.5 * shift, plain.update)
        np.testing.assert_allclose(record.update, expected, atol=1e-5)
    edits = Edits(forced=(Forced(0, 1, rule=1 - rule),))
    assert run(layer, slots, edits)[1].rule[0, 0, 1] == 1 - rule


@pytest.mark.parametrize("kind", [SequentialNPS, GatedNPS])
def test_a_forced_pair_is_the_one_of_its_stage(kind):
    layer, slots = make(kind)
    if kind is GatedNPS:
        layer.null_score.data.fill_(1e4)  # a gate that is always closed is opened by force
    edits = Edits(forced=(Forced(1, 2, stage=1, rule=0, context=3),))
    _, record = run(layer, slots, edits, calls=3)
    _, plain = run(layer, slots, calls=3)
    assert record.rule[1, 1].tolist() == [-1, -1, 0, -1]
    assert record.context[1, 1].tolist() == [-1, -1, 3, -1]
    np.testing.assert_allclose(record.update[1, 1, 2], update(layer, record, 1, 1, 2), atol=1e-6)
    for t in (0, 2):
        assert np.array_equal(record.rule[t], plain.rule[t])
        assert np.array_equal(record.update[t], plain.update[t])
    # The scores are those of the model, not of the hand.
    assert np.array_equal(record.rule_scores[1, 1], plain.rule_scores[1, 1])


@pytest.mark.parametrize("kind", [ParallelNPS, GatedParallelNPS])
def test_in_parallel_only_the_forced_slot_changes(kind):
    layer, slots = make(kind, stages=1, rules=4)
    _, plain = run(layer, slots)
    for slot in range(4):
        for rule in (-1, 0, 3):
            edits = Edits(forced=(Forced(0, slot, rule=rule, context=1),))
            _, record = run(layer, slots, edits)
            assert record.rule[0, 0, slot] == rule
            assert record.context[0, 0, slot] == (-1 if rule < 0 else 1)
            others = np.arange(4) != slot
            assert np.array_equal(record.rule[0, 0, others], plain.rule[0, 0, others])
            assert np.array_equal(record.update[0, 0, others], plain.update[0, 0, others])
            expected = 0.0 if rule < 0 else update(layer, record, 0, 0, slot)
            np.testing.assert_allclose(record.update[0, 0, slot], expected, atol=1e-6)


@each
def test_nothing_fires_in_a_stage_if_it_is_forced_not_to(kind):
    layer, slots = make(kind, stages=1)
    m = slots.shape[1]
    results, record = run(layer, slots, Edits(forced=(Forced(0, 0, rule=-1),)))
    if isinstance(layer, ParallelNPS):
        assert record.rule[0, 0, 0] == -1
        return
    assert record.rule.tolist() == [[[-1] * m]]
    assert (record.update == 0).all()
    if isinstance(layer, OperandNPS):
        assert any(torch.equal(results[0][0], slot) for slot in slots[0])
    else:
        assert torch.equal(results[0], slots)


def test_a_context_alone_is_forced_where_its_slot_fires():
    layer, slots = make(SequentialNPS, stages=1)
    _, plain = run(layer, slots)
    slot = int(plain.rule[0, 0].argmax())
    for other in range(4):
        for forced in range(4):
            edits = Edits(forced=(Forced(0, forced, context=other),))
            _, record = run(layer, slots, edits)
            assert np.array_equal(record.rule, plain.rule)
            expected = other if forced == slot else plain.context[0, 0, slot]
            assert record.context[0, 0, slot] == expected


@pytest.mark.parametrize("kind", [OperandNPS, AuthorsNPS])
@pytest.mark.parametrize("slot", [0, 1])
def test_operand_layers_apply_the_forced_rule_to_the_forced_slot(kind, slot):
    layer, slots = make(kind)
    for rule in range(3):
        results, record = run(layer, slots, Edits(forced=(Forced(0, slot, rule=rule),)))
        choice = torch.eye(3)[rule]
        with torch.no_grad():
            expected = layer.result(slots[:, slot], choice[None])
        assert torch.equal(results[0], expected)
        assert record.rule[0, 0, slot] == rule


def test_a_roll_out_may_begin_later():
    layer, slots = make(SequentialNPS)
    edits = Edits(forced=(Forced(5, 1, rule=2),))
    assert run(layer, slots, edits, calls=2, first=4)[1].rule[1, 0].tolist() == [-1, 2, -1, -1]
    plain = run(layer, slots)[1].rule[0]
    assert np.array_equal(run(layer, slots, edits)[1].rule[0], plain)


def test_two_edits_of_one_slot_are_one():
    layer, slots = make(SequentialNPS)
    edits = Edits(forced=(Forced(0, 1, rule=2), Forced(0, 1, context=3), Forced(0, 1, rule=0)))
    _, record = run(layer, slots, edits)
    assert (record.rule[0, 0, 1], record.context[0, 0, 1]) == (0, 3)


F = Forced
BAD = [
    (Edits(disabled=(3,)), "rule: got 3, expected 0 to 2"),
    (Edits(disabled=(-1,)), "rule: got -1"),
    (Edits(scaled=(Scaled(7, 1.0),)), "rule: got 7"),
    (Edits(added=(Added(0, "size", 1.0),)), "feature: got 'size', expected one of: x"),
    (Edits(forced=(F(0, 0, rule=3),)), "rule: got 3"),
    (Edits(forced=(F(0, 0, rule=-2),)), "rule: got -2"),
    (Edits(forced=(F(0, 4, rule=0),)), "slot: got 4, expected 0 to 3"),
    (Edits(forced=(F(0, -1, rule=0),)), "slot: got -1"),
    (Edits(forced=(F(0, 0, stage=2, rule=0),)), "stage: got 2, expected 0 to 1"),
    (Edits(forced=(F(0, 0, rule=0, context=9),)), "context: got 9"),
    (Edits(forced=(F(0, 2, rule=0),)), "slot 2 is masked"),
    (Edits(forced=(F(0, 0, rule=0, context=2),)), "context 2 is masked"),
    (Edits(forced=(F(0, 0, rule=1),), disabled=(1,)), "rule 1 is switched off"),
    (Edits(forced=(F(0, 0, rule=0), F(0, 1, rule=0))), "expected one"),
]


@pytest.mark.parametrize(("edits", "message"), BAD)
def test_bad_edits(edits, message):
    layer, slots = make(SequentialNPS)
    mask = torch.tensor([[True, True, False, True]])
    with pytest.raises(UserError, match=message):
        run(layer, slots, edits, {"x": np.ones(5)}, slot_mask=mask)
    assert "stage" not in vars(layer)


def test_a_slot_that_may_not_read_itself_is_not_forced_to():
    layer, slots = make(ParallelNPS, self_context=False)
    with pytest.raises(UserError, match="may not be its own context"):
        run(layer, slots, Edits(forced=(Forced(0, 1, rule=0, context=1),)))


def test_directions_that_are_too_long():
    layer, slots = make(ParallelNPS)
    with pytest.raises(UserError, match="got 6 numbers, expected 5"):
        run(layer, slots, Edits(added=(Added(0, "x", 1.0),)), {"x": np.ones(6)})


def test_steps_slots_and_actions_of_an_episode():
    require_steps(Edits(forced=(Forced(4, 2),)), steps=5, slots=3)
    for edits, message in [
        (Edits(forced=(Forced(5, 2),)), "step: got 5, expected 0 to 4"),
        (Edits(placed=(Placed(0, 3, "row", 0.5),)), "slot: got 3"),
        (Edits.from_json({"acted": [{"step": 0, "action": 0}]}), "no discrete actions"),
    ]:
        with pytest.raises(UserError, match=message):
            require_steps(edits, steps=5, slots=3)
    with pytest.raises(UserError, match="action: got 4, expected 0 to 3"):
        require_steps(Edits.from_json({"acted": [{"step": 0, "action": 4}]}), 5, 3, actions=4)


def test_what_may_be_forced_is_told():
    layer, _ = make(SequentialNPS, self_context=False)
    assert options(layer) == {"context": True, "itself": False, "off": []}
    layer.rules.switch_off(1)
    assert options(layer)["off"] == [1]
    assert options(make(OperandNPS)[0])["context"] is False
    assert options(None) is None
    assert options(torch.nn.Linear(1, 1)) is None
