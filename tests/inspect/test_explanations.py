"""Explanations against the layer itself, and the smallest flip against brute force in 2-D."""

import json
import math

import numpy as np
import pytest
import torch

from nps import inspect
from nps.errors import UserError
from nps.inspect.edits import Edits, Forced
from nps.inspect.explanations import explain
from nps.inspect.intervene import intervened
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

KINDS = [SequentialNPS, ParallelNPS, GatedNPS, GatedParallelNPS, AdaptiveNPS]
ALL = [*KINDS, OperandNPS, AuthorsNPS]


def record_of(layer, slots, edits=None, **options):
    with torch.no_grad(), intervened(layer, edits or Edits()), recorded(layer) as recorder:
        layer(slots, **options)
    return recorder.record()


def outcome(layer, slots, slot, **options):
    """What the layer itself decides about a slot at its first stage."""
    record = record_of(layer, slots, **options)
    if isinstance(layer, ParallelNPS):
        return int(record.rule[0, 0, slot])
    fired = np.flatnonzero(record.rule[0, 0] >= 0)
    return tuple((int(s), int(record.rule[0, 0, s])) for s in fired)


def after(slots, slot, change):
    new = slots.clone()
    new[0, slot] += torch.as_tensor(change, dtype=new.dtype)
    return new


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("seed", range(4))
def test_an_explanation_says_what_happened(kind, seed):
    layer, slots = make(kind, seed)
    record = record_of(layer, slots)
    for stage in range(record.sizes[1]):
        for slot in range(record.sizes[2]):
            found = explain(layer, record, 0, slot, stage)
            rule = int(record.rule[0, stage, slot])
            assert (found.fired, found.rule) == (rule >= 0, rule)
            assert found.context == record.context[0, stage, slot]
            assert not found.forced
            assert found.margin is None or found.margin >= 0
            if found.fired:
                assert found.winner.rule == rule
                changed = dict(zip(found.added, record.update[0, stage, slot], strict=True))
                assert found.added == pytest.approx(changed, abs=1e-6)
            assert found.added_norm == pytest.approx(np.linalg.norm(record.update[0, stage, slot]))
            np.testing.assert_allclose(
                found.scores, record.rule_scores[0, stage], rtol=1e-4, atol=1e-5
            )
            assert json.loads(json.dumps(found.to_json(), allow_nan=False))["slot"] == slot
            assert ("fired on" in str(found)) == found.fired or "nothing fired" in str(found)


def test_of_slots_that_may_fire_masked_ones_do_not_count():
    """With at most one, the winner is the best of those that are there."""
    from nps.inspect.decisions import Decision

    fired = 0
    for seed in range(8):
        layer, slots = make(AdaptiveNPS, seed, slots=6, stages=1, most=1)
        mask = torch.tensor([[False, True, True, False, True, True]])
        record = record_of(layer, slots, slot_mask=mask)
        shown = torch.where(mask.unsqueeze(-1), slots, 0.0)[0]
        for slot in (1, 2, 4, 5):
            decision = Decision(layer, record.calls[0], shown, slot)
            scored = decision.scored(decision.seen)
            assert decision.winner(scored).rule == record.rule[0, 0, slot]
            ours, theirs = scored.bids[slot].tolist(), record.bids[0, 0, slot]
            assert ours == pytest.approx(theirs, abs=1e-5)
            fired += record.rule[0, 0, slot] >= 0
    assert 4 <= fired <= 8


def test_winner_rival_and_margin_by_hand():
    layer, slots = make(SequentialNPS, stages=1)
    record = record_of(layer, slots)
    scores = record.rule_scores[0, 0]
    first, second = np.argsort(-scores.flatten())[:2]
    slot, rule = divmod(int(first), 3)
    found = explain(layer, record, 0, slot)
    assert found.winner == (slot, rule, pytest.approx(scores.max()))
    assert (found.rival.slot, found.rival.rule) == divmod(int(second), 3)
    assert found.margin == pytest.approx(scores.flatten()[first] - scores.flatten()[second])
    other = (slot + 1) % 4  # a slot that lost: its own best
    found = explain(layer, record, 0, other)
    assert found.rival == (other, int(scores[other].argmax()), pytest.approx(scores[other].max()))
    assert found.contexts is None


@pytest.mark.parametrize("query", ["linear", "mlp"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_flips_the_layer_and_less_does_not(kind, query):
    flips = 0
    for seed in range(3):
        layer, slots = make(kind, seed, slot_dim=6, rules=4, stages=1, query=query)
        record = record_of(layer, slots)
        for slot in range(4):
            flip = explain(layer, record, 0, slot).flip
            if flip is None:
                continue
            flips += 1
            assert flip.size == pytest.approx(np.linalg.norm(flip.change))
            assert flip.relative == pytest.approx(flip.size / float(slots[0, slot].norm()))
            new = outcome(layer, after(slots, slot, 1.001 * flip.change), slot)
            old = outcome(layer, slots, slot)
            assert new != old
            if isinstance(layer, ParallelNPS):
                assert new == flip.rule
            else:
                assert new == (() if flip.rule == -1 else ((flip.slot, flip.rule),))
            shorter = after(slots, slot, 0.98 * flip.change)
            assert outcome(layer, shorter, slot) == old
    assert flips >= 8


@pytest.mark.parametrize("query", ["linear", "mlp"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_shorter_flip_in_two_dimensions(kind, query):
    """Brute force: in all directions, the first length at which the layer decides otherwise."""
    angles = torch.arange(0.0, 360.0, 6.0).deg2rad()
    lengths = torch.logspace(-3, math.log10(4.0), 140)
    ways = torch.stack([angles.cos(), angles.sin()], -1)
    steps = (ways[:, None] * lengths[:, None]).flatten(0, 1)
    ratios, missed = [], 0
    for seed in range(2):
        layer, slots = make(kind, seed, slot_dim=2, rules=4, stages=1, query=query)
        record = record_of(layer, slots)
        for slot in range(4):
            changed = slots.repeat(len(steps), 1, 1)
            changed[:, slot] += steps
            with torch.no_grad():
                rule = layer(changed, return_trace=True)[1].rule[:, 0]
            differs = rule != torch.from_numpy(record.rule[0])
            differs = differs[:, slot] if isinstance(layer, ParallelNPS) else differs.any(-1)
            other = steps.norm(dim=-1)[differs]
            flip = explain(layer, record, 0, slot).flip
            if len(other) and flip is None:
                missed += 1
            elif len(other):
                ratios.append(flip.size / float(other.min()))
            else:  # nothing within reach
                assert flip is None or flip.size > 3.9
    ratios = np.array(ratios)
    assert len(ratios) >= 4
    assert ratios.min() > 0.93  # lengths grow by 6 per cent
    if kind is AdaptiveNPS:  # what updates are worth is a network: its boundary has corners
        assert missed <= 1
        assert np.median(ratios) < 1.005
        assert np.quantile(ratios, 0.8) < 1.2
        return
    assert missed == 0
    if query == "linear" and kind is not GatedParallelNPS:  # closed form
        assert ratios.max() < 1.005
    else:  # iterated linearisation may end at a boundary that is not the nearest of all
        assert np.median(ratios) < 1.005
        assert ratios.max() < 1.7


def test_only_the_slot_itself_may_change():
    """Of [slot, action], the action is given."""
    from nps.inspect.decisions import Decision
    from nps.inspect.flips import smallest_change

    layer, slots = make(ParallelNPS, 0, slot_dim=6, rules=4, stages=1)
    record = record_of(layer, slots)
    for slot in range(4):
        decision = Decision(layer, record.calls[0], slots[0], slot)
        winner = decision.winner(decision.scored(decision.seen))
        found = smallest_change(decision, winner, free=2)
        free = smallest_change(decision, winner)
        if found is not None:
            assert (found.change[2:] == 0).all()
            assert found.change.norm() >= free.change.norm() * 0.999
            assert outcome(layer, after(slots, slot, found.change.detach()), slot) != winner.rule


def test_disabled_rules_and_masked_slots_are_no_rivals():
    layer, slots = make(SequentialNPS, stages=1)
    mask = torch.tensor([[True, False, True, True]])
    with torch.no_grad(), layer.rules.disabled(0), recorded(layer) as recorder:
        layer(slots, slot_mask=mask)
    for slot in range(4):
        found = explain(layer, recorder.record(), 0, slot)
        assert np.isnan(found.scores[:, 0]).all()
        assert np.isnan(found.scores[1]).all()
        assert found.to_json()["scores"][1] == [None] * 3
        assert found.winner.rule != 0
        assert found.winner.slot != 1
        assert found.rival is None or (found.rival.rule != 0 and found.rival.slot != 1)
        assert found.flip is None or (found.flip.rule != 0 and found.flip.slot != 1)
        assert found.context_allowed.tolist() == [True, False, True, True]


def test_contexts_that_are_allowed():
    layer, slots = make(ParallelNPS, self_context=False)
    found = explain(layer, record_of(layer, slots), 0, 2)
    assert found.context_allowed.tolist() == [True, True, False, True]


@pytest.mark.parametrize("kind", ALL)
def test_forced_choices_are_said_to_be(kind):
    layer, slots = make(kind, stages=1)
    plain = record_of(layer, slots)
    for rule in range(3):
        record = record_of(layer, slots, Edits(forced=(Forced(0, 1, rule=rule),)))
        found = explain(layer, record, 0, 1)
        if isinstance(layer, OperandNPS):
            chosen = rule == plain.rule[0, 0].max()
        else:
            chosen = rule == plain.rule[0, 0, 1]
        assert found.forced == (not chosen)
        assert ("by hand" in str(found)) == found.forced
        assert found.winner.rule == rule
        assert found.flip is None or not found.forced
    none = record_of(layer, slots, Edits(forced=(Forced(0, 1, rule=-1),)))
    if plain.rule[0, 0, 1] >= 0 or not isinstance(layer, ParallelNPS):
        assert explain(layer, none, 0, 1).forced


def test_selection_that_does_not_depend_on_the_slots():
    layer, slots = make(SequentialNPS, stages=2, selection_dim=7)
    selection = torch.randn(1, 4, 7)
    record = record_of(layer, slots, selection=selection)
    for stage in range(2):
        slot = int(record.rule[0, stage].argmax())
        flip = explain(layer, record, 0, slot, stage).flip
        assert flip.change.shape == (7,)
        assert flip.features == {}
        changed = selection.clone()
        changed[0, slot] += torch.from_numpy(flip.change)
        new = record_of(layer, slots, selection=changed)
        assert not np.array_equal(new.rule[0, stage], record.rule[0, stage])


def test_selection_by_a_function_of_the_slots():
    layer, slots = make(ParallelNPS, stages=1, selection_dim=3)
    matrix = torch.randn(5, 3)
    record = record_of(layer, slots, selection=lambda x: (x @ matrix).tanh())
    flip = explain(layer, record, 0, 0).flip
    new = record_of(layer, after(slots, 0, flip.change), selection=lambda x: (x @ matrix).tanh())
    assert new.rule[0, 0, 0] != record.rule[0, 0, 0]


def test_maps():
    torch.manual_seed(0)
    layer = SequentialNPS(4, 3, rules=ConvRules(3, 4, hidden_dim=6)).eval()
    slots = torch.randn(1, 3, 4, 5, 5)
    record = record_of(layer, slots)
    slot = int(record.rule[0, 0].argmax())
    flip = explain(layer, record, 0, slot).flip
    changed = slots.clone()
    changed[0, slot] += torch.from_numpy(flip.change).view(4, 5, 5)
    assert not np.array_equal(record_of(layer, changed).rule, record.rule)


def test_a_tie_is_broken():
    layer, slots = make(SequentialNPS, stages=1)
    with torch.no_grad():
        layer.rules.embedding[1] = layer.rules.embedding[0]
    record = record_of(layer, slots)
    slot = int(record.rule[0, 0].argmax())
    found = explain(layer, record, 0, slot)
    if found.rule == 0:
        assert found.margin == 0.0
    assert found.flip is None or found.flip.size >= 0


def test_bad_questions():
    layer, slots = make(SequentialNPS)
    record = record_of(layer, slots)
    for where, message in [
        ((1, 0, 0), "step: got 1, expected 0 to 0"),
        ((0, 4, 0), "slot: got 4"),
        ((0, 0, 2), "stage: got 2"),
    ]:
        with pytest.raises(UserError, match=message):
            explain(layer, record, *where)
    with pytest.raises(UserError, match="expected a run or a workbench"):
        explain("run", record, 0, 0)
    with pytest.raises(UserError, match="no rules"):
        explain(layer, None, 0, 0)
    _, trace = layer(slots, return_trace=True)
    with pytest.raises(UserError, match=r"got a Trace, expected .* recorder\.record\(\)") as raised:
        explain(layer, trace, 0, 0)
    assert "\n" not in str(raised.value)


def test_slots_are_called_as_in_the_playback():
    from tests.viewer.fake import FakeWorkbench

    bench = FakeWorkbench()
    play = bench.play(0)
    slot = int(play.record.rule[0, 0].argmax())
    said = str(explain(bench, play, 0, slot))
    assert f"fired on block {slot} with block" in said
    assert "slot " not in said.replace("the slot", "")
    assert f"fired on slot {slot} with slot" in str(explain(bench, play.record, 0, slot))


@pytest.mark.parametrize("kind", [OperandNPS, AuthorsNPS])
def test_of_operand_layers_the_slot_that_chooses_is_named(kind):
    layer, slots = make(kind)
    record = record_of(layer, slots)
    slot = int(record.rule[0, 0].argmax())
    found = explain(layer, record, 0, slot)
    assert found.chooser == record.context[0, 0, slot]
    assert f"fired on slot {slot}, chosen by slot {found.chooser}" in str(found)
    assert found.other is None  # the rule reads the slot that it changes, and no other
    assert found.context_allowed[slot]  # as the chooser could pick it
    assert found.to_json()["chooser"] == found.chooser
    for sequential in (SequentialNPS, ParallelNPS):
        layer, slots = make(sequential)
        assert explain(layer, record_of(layer, slots), 0, 0).chooser is None


def test_names_are_imported_on_first_use():
    assert inspect.explain is explain
    assert set(inspect.__all__) <= set(dir(inspect))
    for name in inspect.__all__:
        assert getattr(inspect, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'explainer'"):
        _ = inspect.explainer
