"""Switching rules off for good: as if they had been removed, and saved with the rest."""

import copy
import json
import pickle
import threading

import pytest
import torch
from torch.func import functional_call

from nps import ConvRules, MLPRules, ParallelNPS, SequentialNPS
from nps.rules import AdaptiveNPS, GatedNPS, GatedParallelNPS

KINDS = [SequentialNPS, ParallelNPS, GatedNPS, GatedParallelNPS, AdaptiveNPS]
each = pytest.mark.parametrize("kind", KINDS)


def make(kind, rules=4, seed=0, convolutional=False, **options):
    torch.manual_seed(seed)
    if convolutional:
        options["rules"] = ConvRules(rules, 6, hidden_dim=8)
    return kind(6, rules, **options).eval()


def scenes(convolutional=False):
    return torch.randn(64, 5, 6, 3, 3) if convolutional else torch.randn(64, 5, 6)


@pytest.mark.parametrize(
    ("kind", "convolutional"),
    [
        (kind, maps)
        for kind in KINDS
        for maps in (False, True)
        if not maps or kind is not AdaptiveNPS
    ],
)
def test_it_is_as_if_the_rule_had_been_removed(kind, convolutional):
    layer, slots = make(kind, convolutional=convolutional), scenes(convolutional)
    removed = copy.deepcopy(layer)
    with torch.no_grad():
        before, old = layer(slots, return_trace=True)
        layer.rules.switch_off(1)
        after, trace = layer(slots, return_trace=True)
        removed.rules.remove(1)
        expected, other = removed(slots, return_trace=True)
    assert (old.rule == 1).any()
    assert torch.equal(after, expected)
    assert torch.equal(trace.rule, torch.where(other.rule >= 1, other.rule + 1, other.rule))
    assert torch.equal(trace.context, other.context)
    untouched = (old.rule != 1).flatten(1).all(1)  # where it was not the winner
    assert untouched.any()
    assert torch.equal(after[untouched], before[untouched])


@each
def test_it_is_what_disabled_does_while_it_is_open(kind):
    layer, slots = make(kind), scenes()
    with torch.no_grad(), layer.rules.disabled(0, 3):
        expected = layer(slots)
    layer.rules.switch_off(0, 3)
    assert torch.equal(layer(slots), expected)
    with layer.rules.disabled(1):
        assert layer.rules.allowed().tolist() == [False, False, True, False]
    layer.rules.switch_on(3)
    assert layer.rules.off == [0]
    layer.rules.switch_on(0, 2)
    assert layer.rules.allowed() is None


@each
def test_training_respects_it(kind):
    layer, slots = make(kind).train(), scenes()
    layer.rules.switch_off(2)
    _, trace = layer(slots, return_trace=True)
    assert not (trace.rule == 2).any()
    assert trace.fired.any()


@each
def test_with_all_rules_off_nothing_changes(kind):
    layer, slots = make(kind), scenes()
    layer.rules.switch_off(*range(4))
    assert torch.equal(layer(slots), slots)


def test_it_follows_names_views_and_other_operations():
    rules = MLPRules(4, 3)
    rules.names = list("abcd")
    rules.switch_off("b", rules["d"])
    assert rules.off == [1, 3]
    assert repr(rules["b"]) == "Rule(1, 'b', off)"
    assert not rules["b"].enabled
    rules.remove("a")
    assert rules.off == [0, 2]
    rules.remove("b")
    assert rules.off == [1]
    assert rules.names == ["c", "d"]
    rules.add(2)
    assert rules.off == [1]
    assert rules.allowed().tolist() == [True, False, True, True]
    rules.freeze(0)
    rules.reset_parameters()
    assert (rules.off, rules.frozen) == ([1], [0])
    with pytest.raises(ValueError, match="did you mean"):
        rules.switch_off("cc")
    with pytest.raises(ValueError, match="expected a name or 0 to 3"):
        rules.switch_on(4)
    assert rules.off == [1]


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_keep_it(how):
    rules = MLPRules(3, 4)
    rules.switch_off(1)
    other = how(rules)
    assert other.off == [1]
    assert other.allowed().tolist() == [True, False, True]
    other.switch_on(1)
    assert rules.off == [1]


def test_it_is_saved():
    layer = make(SequentialNPS)
    layer.rules.switch_off(0, 2)
    fresh = make(SequentialNPS, seed=1)
    fresh.load_state_dict(layer.state_dict())
    assert fresh.rules.off == [0, 2]
    slots = scenes()
    assert torch.equal(fresh(slots), layer(slots))
    layer.rules.switch_on(0, 2)
    fresh.load_state_dict(layer.state_dict())
    assert fresh.rules.off == []
    assert fresh.rules.allowed() is None


def test_states_from_before_load_and_are_the_same_bytes():
    rules = MLPRules(3, 4)
    state = rules.state_dict()
    saved = json.loads(bytes(state["_extra_state"].tolist()))
    assert saved == {"names": ["rule 0", "rule 1", "rule 2"], "frozen": []}
    rules.switch_off(1)
    rules.load_state_dict(state)
    assert rules.off == []


@pytest.mark.parametrize("off", [[3], "x", [None], 5])
def test_damaged_states(off):
    rules = MLPRules(3, 4)
    state = rules.state_dict()
    text = json.dumps({"names": list("abc"), "frozen": [], "off": off})
    state["_extra_state"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="cannot be read"):
        rules.load_state_dict(state)
    assert rules.names == ["rule 0", "rule 1", "rule 2"]


def test_all_threads_see_it():
    rules, found = MLPRules(3, 4), []
    rules.switch_off(1)
    thread = threading.Thread(target=lambda: found.append(rules.allowed().tolist()))
    thread.start()
    thread.join()
    assert found == [[True, False, True]]


def test_it_moves_with_the_module():
    rules = MLPRules(3, 4)
    rules.switch_off(1)
    assert rules.to("meta").allowed().device.type == "meta"


def test_functional_calls_see_it():
    layer, slots = make(ParallelNPS), scenes()
    layer.rules.switch_off(1)
    new = functional_call(layer, dict(layer.named_parameters()), (slots,))
    assert torch.equal(new, layer(slots))
