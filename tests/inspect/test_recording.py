"""What is recorded is what `return_trace` says, and the layer is left as it was."""

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.inspect.edits import Edits, Forced
from nps.inspect.intervene import intervened
from nps.inspect.recording import joined, recorded, some_steps
from nps.interactions import Routing
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

LAYERS = [
    SequentialNPS,
    ParallelNPS,
    GatedNPS,
    GatedParallelNPS,
    AdaptiveNPS,
    OperandNPS,
    AuthorsNPS,
    Routing,
]
ONE_RESULT = (OperandNPS, AuthorsNPS)


def make(kind, seed=0, slot_dim=5, rules=3, stages=2, slots=4, **options):
    """An untrained layer in evaluation mode, and a scene for it."""
    torch.manual_seed(seed)
    if kind in ONE_RESULT:
        slots, stages = 2, 1
    if kind is Routing:
        options["num_slots"] = slots
    layer = kind(slot_dim, rules, stages=stages, **options).eval()
    if kind is AdaptiveNPS:  # untrained it fires everywhere
        weight, bias = layer.worth_network[-1].parameters()
        torch.nn.init.normal_(weight)
        torch.nn.init.zeros_(bias)
    return layer, torch.randn(1, slots, slot_dim)


def record_of(layer, slots, calls=1, **options):
    with torch.no_grad(), recorded(layer) as recorder:
        for _ in range(calls):
            layer(slots, **options)
    return recorder.record()


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_record_is_the_trace(kind, seed):
    layer, slots = make(kind, seed)
    with torch.no_grad():
        plain, trace = layer(slots, return_trace=True)
        with recorded(layer) as recorder:
            result = layer(slots)
            again, traced = layer(slots + 1.0, return_trace=True)
    record = recorder.record()
    assert torch.equal(result, plain)
    for t, expected in enumerate((trace, traced)):
        for name in ("rule", "rule_scores", "context_scores"):
            assert np.array_equal(getattr(record, name)[t], getattr(expected, name)[0]), name
        context = torch.where(expected.fired, expected.context, -1)
        assert np.array_equal(record.context[t], context[0])
    assert not np.array_equal(again, plain)
    assert (record.update[record.rule < 0] == 0).all()
    assert (record.rule >= 0).any()
    assert len(record.calls) == 2


@pytest.mark.parametrize("kind", LAYERS)
def test_updates_lead_from_the_slots_to_the_result(kind):
    layer, slots = make(kind)
    record = record_of(layer, slots)
    with torch.no_grad():
        result = layer(slots)[0].numpy()
    assert np.array_equal(record.before[0, 0], slots[0])
    after = record.before[0] + record.update[0]
    np.testing.assert_allclose(record.before[0, 1:], after[:-1], atol=1e-6)
    if kind in ONE_RESULT:
        (slot,) = np.flatnonzero(record.rule[0, 0] >= 0)
        np.testing.assert_allclose(after[-1, slot], result, atol=1e-6)
    else:
        np.testing.assert_allclose(after[-1], result, atol=1e-6)


def test_bids_decide_who_fires():
    for kind in (ParallelNPS, GatedParallelNPS, GatedNPS):
        for seed in range(8):
            layer, slots = make(kind, seed)
            if kind is GatedNPS:
                layer.null_score.data.fill_(2.0)
            record = record_of(layer, slots)
            won = record.bids[..., 0] >= record.bids[..., 1]
            fired = record.rule >= 0
            assert (
                (fired.any(-1) == won.any(-1)).all() if kind is GatedNPS else (fired == won).all()
            )
    for kind in (SequentialNPS, OperandNPS):
        assert record_of(*make(kind)).bids is None
    assert record_of(*make(ParallelNPS, null_handicap=1e6)).bids is None


def test_maps_are_recorded_flat():
    torch.manual_seed(0)
    layer = SequentialNPS(4, 3, rules=ConvRules(3, 4, hidden_dim=6)).eval()
    slots = torch.randn(1, 3, 4, 5, 5)
    record = record_of(layer, slots)
    assert record.before.shape == (1, 1, 3, 100)
    with torch.no_grad():
        after = layer(slots).flatten(2)[0]
    np.testing.assert_allclose((record.before + record.update)[0, 0], after, atol=1e-6)


def test_what_the_layer_was_given_is_kept():
    layer, slots = make(SequentialNPS, selection_dim=7)
    selection, mask = torch.randn(1, 4, 7), torch.tensor([[True, True, False, True]])
    record = record_of(layer, slots, selection=selection, slot_mask=mask)
    assert torch.equal(record.calls[0].selection, selection)
    assert record.calls[0].slot_mask.tolist() == mask[0].tolist()
    assert record.calls[0].rules is None
    with layer.rules.disabled(1):
        assert record_of(layer, slots, selection=selection).calls[0].rules.tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", LAYERS)
def test_the_layer_is_left_as_it_was(kind):
    layer, slots = make(kind)
    before, hooks = set(vars(layer)), len(layer._forward_pre_hooks)
    edits = Edits(disabled=(0,))
    with pytest.raises(RuntimeError), recorded(layer), intervened(layer, edits):
        raise RuntimeError
    assert set(vars(layer)) == before
    assert len(layer._forward_pre_hooks) == hooks
    with recorded(layer) as outer:
        with recorded(layer) as inner:
            layer(slots)
        layer(slots)
    assert (len(outer.record().rule), len(inner.record().rule)) == (2, 1)
    assert set(vars(layer)) == before


def test_other_layers_are_not_recorded():
    layer, slots = make(SequentialNPS)
    other, _ = make(SequentialNPS, seed=1)
    with recorded(layer) as recorder:
        other(slots)
    with pytest.raises(UserError, match="was not called"):
        recorder.record()


def test_records_join_and_part():
    layer, slots = make(ParallelNPS)
    whole = record_of(layer, slots, calls=5)
    again = joined(some_steps(whole, 0, 2), some_steps(whole, 2))
    assert again.sizes == whole.sizes == (5, 2, 4, 3)
    assert again.calls == whole.calls
    for name in ("rule", "context_scores", "bids", "update"):
        assert np.array_equal(getattr(again, name), getattr(whole, name))


def test_models_without_rules_have_no_record():
    with recorded(None) as recorder, intervened(None, Edits()):
        pass
    assert recorder.record() is None
    with (
        pytest.raises(UserError, match="no rules"),
        intervened(None, Edits(forced=(Forced(0, 0, rule=0),))),
    ):
        pass


def test_bad_calls():
    layer, slots = make(SequentialNPS)
    with pytest.raises(UserError, match="batch of 2 scenes"), recorded(layer):
        layer(slots.repeat(2, 1, 1))
    with pytest.raises(UserError, match="in training"), recorded(layer.train()):
        layer(slots)
