"""Surgery on rules: count, name, add, remove, freeze, copy, switch off.

The claim under test: a rule can be added, changed or deleted and every other rule stays as it was,
bit for bit, wherever the rule in question was not the winner.
"""

import copy
from contextlib import ExitStack

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nps import ConvRules, MLPRules, ParallelNPS, SequentialNPS

KINDS = [SequentialNPS, ParallelNPS]
BOTH = pytest.mark.parametrize("kind", KINDS)
OPTIMISERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "Adam with decay": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
}


def make(kind, num_rules=4, seed=0, convolutional=False, slot_dim=6, hidden_dim=16, **options):
    torch.manual_seed(seed)
    if convolutional:
        rules = ConvRules(num_rules, slot_dim, hidden_dim=hidden_dim)
        return kind(slot_dim, num_rules, rules=rules, **options)
    return kind(slot_dim, num_rules, hidden_dim=hidden_dim, **options)


def never_used(trace, i):
    """Batch elements in which rule i fired nowhere."""
    return (trace.rule != i).flatten(1).all(1)


def snapshot(rules, i):
    """Rule i as it acts and as it is saved."""
    acts = {name: rules.tensor(name)[i].detach().clone() for name, _ in rules.named_parameters()}
    saved = {name: value[i].clone() for name, value in rules.state_dict().items() if name in acts}
    return acts, saved


def assert_same_rule(a, b):
    for mine, other in zip(a, b, strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            assert torch.equal(mine[name], other[name]), name


def steps(layer, optimiser, count=3):
    for _ in range(count):
        optimiser.zero_grad()
        layer(torch.randn(32, 4, 6)).square().sum().backward()
        optimiser.step()


# -- counting and names ----------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [MLPRules, ConvRules])
def test_len_and_names(rules):
    assert len(rules(3, 4)) == 3
    assert rules(3, 4).names == ["rule 0", "rule 1", "rule 2"]


@BOTH
def test_add_returns_the_new_indices_and_keeps_the_old_rules(kind):
    layer = make(kind)
    before = [snapshot(layer.rules, i) for i in range(4)]
    assert layer.rules.add(2) == range(4, 6)
    assert layer.rules.add() == range(6, 7)
    assert len(layer.rules) == len(layer.rules.names) == 7
    for i in range(4):
        assert_same_rule(snapshot(layer.rules, i), before[i])
    new, trace = layer(torch.randn(200, 4, 6), return_trace=True)
    assert trace.rule_scores.shape[-1] == 7
    assert trace.rule.max() == 6
    assert torch.isfinite(new).all()


@BOTH
@pytest.mark.parametrize("i", [0, 2, 3, -1, -4])
def test_remove_moves_the_later_rules_up(kind, i):
    layer = make(kind)
    layer.rules.names = list("abcd")
    before = [snapshot(layer.rules, j) for j in range(4)]
    layer.rules.remove(i)
    kept = [j for j in range(4) if j != i % 4]
    assert layer.rules.names == ["abcd"[j] for j in kept]
    for place, j in enumerate(kept):
        assert_same_rule(snapshot(layer.rules, place), before[j])
    _, trace = layer(torch.randn(50, 4, 6), return_trace=True)
    assert trace.rule.max() == 2


def test_names_stay_unique_after_remove_and_add():
    rules = MLPRules(4, 3)
    rules.remove(1)
    rules.add(2)
    rules.remove(0)
    rules.add(3)
    assert len(rules) == len(rules.names) == len(set(rules.names)) == 7
    assert rules.names[:2] == ["rule 2", "rule 3"]


def test_names_given_by_hand_are_kept():
    rules = MLPRules(2, 3)
    rules.names[0] = "add"
    rules.names[1] = "rule 0"
    rules.add(2)
    assert rules.names[:2] == ["add", "rule 0"]
    assert len(set(rules.names)) == 4


@BOTH
def test_new_rules_learn(kind):
    layer = make(kind)
    layer.rules.add(2)
    before = [snapshot(layer.rules, i)[0]["embedding"] for i in range(6)]
    steps(layer, torch.optim.Adam(layer.parameters(), lr=0.05))
    for i in range(6):
        assert not torch.equal(layer.rules.embedding[i], before[i])


# -- bit for bit -----------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(2, 6),
    m=st.integers(1, 5),
    batch=st.integers(1, 40),
    slot_dim=st.sampled_from([3, 6, 16, 17, 64]),
    hidden_dim=st.sampled_from([5, 16, 33, 128]),
    stages=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_removing_a_rule_keeps_the_others_bit_for_bit(
    kind, n, m, batch, slot_dim, hidden_dim, stages, seed
):
    layer = make(kind, n, seed, slot_dim=slot_dim, hidden_dim=hidden_dim, stages=stages).eval()
    slots = torch.randn(batch, m, slot_dim)
    new, trace = layer(slots, return_trace=True)
    for i in range(n):
        other = copy.deepcopy(layer)
        other.rules.remove(i)
        kept = never_used(trace, i)
        again, again_trace = other(slots, return_trace=True)
        rule = trace.rule[kept]
        assert torch.equal(again_trace.rule[kept], rule - (rule > i).long())
        assert torch.equal(again_trace.context[kept], trace.context[kept])
        assert torch.equal(again[kept], new[kept])


@BOTH
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_removing_a_rule_of_the_papers_size_keeps_the_others_bit_for_bit(kind, n):
    layer = make(kind, n, slot_dim=64, hidden_dim=128, stages=2).eval()
    slots = torch.randn(100, 5, 64)
    new, trace = layer(slots, return_trace=True)
    for i in range(n):
        other = copy.deepcopy(layer)
        other.rules.remove(i)
        kept = never_used(trace, i)
        assert torch.equal(other(slots)[kept], new[kept])


@BOTH
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("channels", [3, 8])
def test_removing_a_convolutional_rule_keeps_the_others_bit_for_bit(kind, channels, n):
    layer = make(kind, n, convolutional=True, slot_dim=channels, stages=2).eval()
    slots = torch.randn(20, 3, channels, 4, 4)
    new, trace = layer(slots, return_trace=True)
    for i in range(n):
        other = copy.deepcopy(layer)
        other.rules.remove(i)
        kept = never_used(trace, i)
        assert torch.equal(other(slots)[kept], new[kept])


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    convolutional=st.booleans(),
    training=st.booleans(),
    n=st.integers(2, 6),
    slot_dim=st.sampled_from([3, 8, 17]),
    stages=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_disabling_a_rule_keeps_the_others_bit_for_bit(
    kind, convolutional, training, n, slot_dim, stages, seed
):
    layer = make(kind, n, seed, convolutional, slot_dim, 5, stages=stages).train(training)
    slots = torch.randn(20, 3, slot_dim, *((4, 4) if convolutional else ()))
    noise = torch.rand(layer.noise_shape(20, slots=3))
    new, trace = layer(slots, noise=noise, return_trace=True)
    for i in range(n):
        with layer.rules.disabled(i):
            other, other_trace = layer(slots, noise=noise, return_trace=True)
        kept = never_used(trace, i)
        assert torch.equal(other[kept], new[kept])
        assert torch.equal(other_trace.rule[kept], trace.rule[kept])
        assert (other_trace.rule != i).all()
    assert torch.equal(layer(slots, noise=noise), new)


@BOTH
def test_adding_rules_keeps_the_others_bit_for_bit(kind):
    layer = make(kind, stages=2).eval()
    slots = torch.randn(200, 4, 6)
    new, trace = layer(slots, return_trace=True)
    layer.rules.add(2)
    again, again_trace = layer(slots, return_trace=True)
    kept = never_used(again_trace, 4) & never_used(again_trace, 5)
    assert kept.any()
    assert not kept.all()
    assert torch.equal(again[kept], new[kept])
    assert torch.equal(again_trace.rule[kept], trace.rule[kept])


def test_removing_a_rule_keeps_which_slots_fire():
    layer = make(ParallelNPS, num_rules=5).eval()
    slots = torch.randn(500, 4, 6)
    _, before = layer(slots, return_trace=True)
    for _ in range(4):
        layer.rules.remove(0)
        _, after = layer(slots, return_trace=True)
        assert torch.equal(after.fired, before.fired)
    assert before.fired.any()
    assert not before.fired.all()


def test_adding_rules_keeps_which_slots_fire():
    layer = make(ParallelNPS).eval()
    slots = torch.randn(500, 4, 6)
    _, before = layer(slots, return_trace=True)
    layer.rules.add(3)
    _, after = layer(slots, return_trace=True)
    assert torch.equal(after.fired, before.fired)
    assert (after.rule >= 4).any()


# -- switching off ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_the_next_best_rule_takes_the_place_of_a_disabled_one(kind, training):
    layer = make(kind).train(training)
    slots = torch.randn(50, 4, 6)
    with layer.rules.disabled(0), layer.rules.disabled(-2):
        _, trace = layer(slots, return_trace=True)
    assert set(trace.rule[trace.fired].tolist()) == {1, 3}
    _, trace = layer(slots, return_trace=True)
    assert set(trace.rule[trace.fired].tolist()) == {0, 1, 2, 3}


@BOTH
def test_disabling_equals_removing_where_the_rule_did_win(kind):
    layer = make(kind, stages=2).eval()
    slots = torch.randn(100, 4, 6)
    with layer.rules.disabled(1):
        off = layer(slots)
    layer.rules.remove(1)
    torch.testing.assert_close(layer(slots), off)


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_all_rules_disabled_leaves_the_slots(kind, training):
    layer = make(kind, stages=2).train(training)
    slots = torch.randn(20, 4, 6)
    with ExitStack() as stack:
        for i in range(4):
            stack.enter_context(layer.rules.disabled(i))
        new, trace = layer(slots, return_trace=True)
    assert torch.equal(new, slots)
    assert (trace.rule == -1).all()
    assert (trace.context == -1).all()
    assert not torch.equal(layer(slots), slots)


def test_a_rule_comes_back_after_an_error():
    layer = make(SequentialNPS)
    with pytest.raises(RuntimeError, match="stop"), layer.rules.disabled(0):
        raise RuntimeError("stop")
    assert layer.rules.allowed() is None


def test_disabling_twice_is_disabling_once():
    rules = MLPRules(3, 4)
    with rules.disabled(1):
        with rules.disabled(1):
            pass
        assert rules.allowed().tolist() == [True, False, True]
    assert rules.allowed() is None


# -- freezing --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_frozen_rule_stays_bit_for_bit_under_a_warm_optimiser(kind, name):
    layer = make(kind)
    optimiser = OPTIMISERS[name](layer.parameters())
    steps(layer, optimiser)  # momentum that would carry the rule on
    layer.rules.freeze(1)
    before = [snapshot(layer.rules, i) for i in range(4)]
    steps(layer, optimiser)
    assert layer.rules.frozen == [1]
    assert_same_rule(snapshot(layer.rules, 1), before[1])
    for i in (0, 2, 3):
        acts, saved = snapshot(layer.rules, i)
        for part in acts:
            assert not torch.equal(acts[part], before[i][0][part]), part
            assert not torch.equal(saved[part], before[i][1][part]), part


@BOTH
def test_a_frozen_rule_acts_as_it_did(kind):
    layer = make(kind)
    optimiser = OPTIMISERS["AdamW"](layer.parameters())
    steps(layer, optimiser)
    layer.rules.freeze(2)
    a, b, choice = torch.randn(10, 6), torch.randn(10, 6), torch.eye(4)[2].expand(10, 4)
    before = layer.rules(a, b, choice)
    steps(layer, optimiser)
    assert torch.equal(layer.rules(a, b, choice), before)
    for i in (0, 1, 3):
        choice = torch.eye(4)[i].expand(10, 4)
        assert not torch.equal(layer.rules(a, b, choice), before)


def test_a_frozen_rule_has_no_gradient():
    layer = make(ParallelNPS)
    layer.rules.freeze(0)
    layer(torch.randn(50, 4, 6)).square().sum().backward()
    for name, p in layer.rules.named_parameters():
        assert (p.grad[0] == 0).all(), name
        assert (p.grad[1:] != 0).flatten(1).any(-1).all(), name


def test_freezing_a_second_rule_keeps_the_first():
    layer = make(SequentialNPS)
    optimiser = OPTIMISERS["AdamW"](layer.parameters())
    layer.rules.freeze(0)
    first = snapshot(layer.rules, 0)
    steps(layer, optimiser)
    layer.rules.freeze(3)
    second = snapshot(layer.rules, 3)
    steps(layer, optimiser)
    assert layer.rules.frozen == [0, 3]
    assert_same_rule(snapshot(layer.rules, 0), first)
    assert_same_rule(snapshot(layer.rules, 3), second)


def test_disabling_a_rule_keeps_a_frozen_one():
    layer = make(SequentialNPS)
    optimiser = OPTIMISERS["AdamW"](layer.parameters())
    layer.rules.freeze(0)
    before = snapshot(layer.rules, 0)[0]
    steps(layer, optimiser)
    with layer.rules.disabled(1):
        during = {name: layer.rules.tensor(name)[0] for name in before}
    after = {name: layer.rules.tensor(name)[0] for name in before}
    assert_same_rule((during, after), (before, before))


@pytest.mark.parametrize("operation", ["add", "remove a later", "remove an earlier", "copy_from"])
def test_surgery_elsewhere_keeps_a_frozen_rule(operation):
    layer = make(ParallelNPS)
    layer.rules.freeze(2)
    before = snapshot(layer.rules, 2)
    steps(layer, OPTIMISERS["AdamW"](layer.parameters()))
    place = 2
    if operation == "add":
        layer.rules.add(2)
    elif operation == "remove a later":
        layer.rules.remove(3)
    elif operation == "remove an earlier":
        layer.rules.remove(0)
        place = 1
    else:
        layer.rules.copy_from(make(ParallelNPS, seed=1).rules, 0)
    assert layer.rules.frozen == [place]
    steps(layer, OPTIMISERS["AdamW"](layer.parameters()))
    assert_same_rule(snapshot(layer.rules, place), before)


def test_removing_a_frozen_rule_forgets_it():
    layer = make(SequentialNPS)
    layer.rules.freeze(1)
    layer.rules.remove(1)
    assert layer.rules.frozen == []


@pytest.mark.parametrize("name", OPTIMISERS)
def test_unfreeze_continues_from_the_frozen_values(name):
    layer = make(SequentialNPS)
    optimiser = OPTIMISERS[name](layer.parameters())
    steps(layer, optimiser)
    layer.rules.freeze(1)
    before = snapshot(layer.rules, 1)
    steps(layer, optimiser)
    layer.rules.unfreeze(1)
    assert layer.rules.frozen == []
    assert_same_rule(snapshot(layer.rules, 1), before)
    assert torch.equal(layer.rules.embedding[1], before[0]["embedding"])
    steps(layer, optimiser, count=1)
    assert not torch.equal(layer.rules.embedding[1], before[0]["embedding"])


def test_freezing_keeps_the_output():
    layer = make(ParallelNPS, stages=2).eval()
    slots = torch.randn(50, 4, 6)
    before = layer(slots)
    layer.rules.freeze(1)
    assert torch.equal(layer(slots), before)
    layer.rules.unfreeze(1)
    assert torch.equal(layer(slots), before)


# -- copying ---------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("to", [None, 0, -1])
def test_copy_from_takes_condition_action_and_name(kind, to):
    mine, other = make(kind).rules, make(kind, seed=1).rules
    other.names[1] = "jump"
    before = [snapshot(mine, i) for i in range(4)]
    mine.copy_from(other, 1, to=to)
    target = 1 if to is None else to % 4
    assert mine.names[target] == "jump"
    assert_same_rule(snapshot(mine, target), snapshot(other, 1))
    for i in range(4):
        if i != target:
            assert_same_rule(snapshot(mine, i), before[i])


def test_a_copy_is_independent():
    mine, other = make(SequentialNPS).rules, make(SequentialNPS, seed=1).rules
    mine.copy_from(other, 1)
    before = snapshot(mine, 1)
    with torch.no_grad():
        other.weight_in.zero_()
        other.embedding.zero_()
    assert_same_rule(snapshot(mine, 1), before)


def test_copy_from_a_frozen_rule_takes_the_frozen_values():
    layer = make(SequentialNPS)
    layer.rules.freeze(1)
    before = snapshot(layer.rules, 1)
    steps(layer, OPTIMISERS["AdamW"](layer.parameters()))
    other = make(SequentialNPS, seed=1).rules
    other.copy_from(layer.rules, 1, to=3)
    assert_same_rule(snapshot(other, 3), before)


def test_copy_from_the_same_set():
    rules = make(SequentialNPS).rules
    rules.copy_from(rules, 0, to=3)
    assert_same_rule(snapshot(rules, 3), snapshot(rules, 0))


# -- saving ----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("convolutional", [False, True])
def test_state_dict_round_trip_after_surgery(kind, convolutional):
    layer = make(kind, convolutional=convolutional, stages=2).eval()
    layer.rules.names[2] = "größer"
    layer.rules.remove(0)
    layer.rules.add(3)
    layer.rules.freeze(1)
    slots = torch.randn(50, 4, 6, *((4, 4) if convolutional else ()))
    fresh = make(kind, seed=1, convolutional=convolutional, stages=2).eval()
    fresh.rules.resize(6)
    fresh.load_state_dict(copy.deepcopy(layer.state_dict()))
    assert len(fresh.rules) == 6
    assert fresh.rules.names == layer.rules.names
    assert fresh.rules.names[1] == "größer"
    assert fresh.rules.frozen == [1]
    assert torch.equal(fresh(slots), layer(slots))


@BOTH
def test_a_loaded_frozen_rule_stays_frozen(kind):
    layer = make(kind)
    layer.rules.freeze(1)
    steps(layer, OPTIMISERS["AdamW"](layer.parameters()))
    fresh = make(kind, seed=1)
    fresh.load_state_dict(layer.state_dict())
    before = snapshot(layer.rules, 1)
    steps(fresh, OPTIMISERS["AdamW"](fresh.parameters()))
    assert_same_rule(snapshot(fresh.rules, 1), before)


@BOTH
def test_loading_an_earlier_state_takes_surgery_back(kind):
    layer = make(kind, stages=2).eval()
    slots = torch.randn(200, 4, 6)
    before = layer(slots)
    saved = layer.state_dict()
    layer.rules.remove(0)
    layer.rules.freeze(0)
    assert not torch.equal(layer(slots), before)
    layer.rules.resize(4)
    layer.load_state_dict(saved)
    assert len(layer.rules) == 4
    assert layer.rules.frozen == []
    assert torch.equal(layer(slots), before)


@BOTH
def test_state_dict_holds_tensors_alone(kind):
    # So that safetensors can take it.
    layer = make(kind)
    layer.rules.freeze(0)
    assert all(isinstance(value, torch.Tensor) for value in layer.state_dict().values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"names": ["a", "b"]}',
        '{"names": ["a"], "frozen": []}',
        '{"names": ["a", 2], "frozen": []}',
        '{"names": ["a", "b"], "frozen": [2]}',
        '{"names": ["a", "b"], "frozen": ["a"]}',
        '{"names": 3, "frozen": []}',
    ],
)
def test_damaged_names_are_refused_whole(text):
    rules, saved = MLPRules(2, 3), MLPRules(2, 3).state_dict()
    before = rules.embedding.clone()
    saved["_extra_state"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="_extra_state: "):
        rules.load_state_dict(saved)
    assert rules.names == ["rule 0", "rule 1"]
    assert torch.equal(rules.embedding, before)
