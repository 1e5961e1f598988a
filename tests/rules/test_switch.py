"""Disabled rules are disabled here: not in other threads, tasks or copies, and by identity."""

import asyncio
import copy
import pickle
import threading
from contextlib import nullcontext

import pytest
import torch
from torch.func import vmap
from torch.utils.checkpoint import checkpoint

from nps import MLPRules, ParallelNPS, SequentialNPS

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])


def make(kind, num_rules=4, seed=0):
    torch.manual_seed(seed)
    return kind(6, num_rules, key_dim=8, hidden_dim=16).eval()


def fired(layer, slots):
    """The rules that fire somewhere."""
    _, trace = layer(slots, return_trace=True)
    return set(trace.rule[trace.fired].tolist())


def marks(rules):
    allowed = rules.allowed()
    return [True] * len(rules) if allowed is None else allowed.tolist()


def in_a_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


# -- identity --------------------------------------------------------------------------------------


def test_removing_a_rule_keeps_which_ones_are_disabled():
    rules = MLPRules(4, 3)
    rules.names = list("abcd")
    with rules.disabled(2):
        with rules.disabled(0):
            rules.remove(1)
            assert rules.names == list("acd")
            assert marks(rules) == [False, False, True]
        assert marks(rules) == [True, False, True]  # c, which is now at 1
    assert rules.allowed() is None


def test_added_rules_are_enabled():
    rules = MLPRules(2, 3)
    with rules.disabled(1):
        rules.add(2)
        assert marks(rules) == [True, False, True, True]
    assert rules.allowed() is None


def test_a_removed_rule_takes_its_switch_along():
    rules = MLPRules(3, 3)
    with rules.disabled(1):
        rules.remove(1)
        assert rules.allowed() is None
        rules.add()
        assert rules.allowed() is None


def test_contexts_may_be_left_in_any_order():
    rules = MLPRules(3, 3)
    first, second = rules.disabled(0), rules.disabled(0, 1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert marks(rules) == [False, False, True]
    second.__exit__(None, None, None)
    assert rules.allowed() is None


def test_several_rules_at_once_by_name():
    rules = MLPRules(4, 3)
    rules.names = ["push", "turn", "stay", "pull"]
    with rules.disabled("push", "turn", -1):
        assert marks(rules) == [False, False, True, False]
        assert [rule.enabled for rule in rules] == [False, False, True, False]
    with rules.disabled():
        assert rules.allowed() is None


def test_another_rule_set_is_not_affected():
    rules, other = MLPRules(3, 3), MLPRules(3, 3)
    with rules.disabled(1):
        assert other.allowed() is None
        with other.disabled(2):
            assert marks(rules) == [True, False, True]
            assert marks(other) == [True, True, False]


# -- threads and tasks -----------------------------------------------------------------------------


@BOTH
def test_another_thread_is_not_affected(kind):
    layer, slots = make(kind), torch.randn(200, 4, 6)
    everything = fired(layer, slots)
    with layer.rules.disabled(1, 2):
        assert fired(layer, slots) == everything - {1, 2}
        assert in_a_thread(lambda: fired(layer, slots)) == everything
        assert in_a_thread(layer.rules.allowed) is None


def test_threads_disable_side_by_side():
    layer, slots = make(SequentialNPS), torch.randn(200, 4, 6)
    both_open, found = threading.Barrier(2, timeout=30), {}

    def without(i):
        with layer.rules.disabled(i):
            both_open.wait()
            found[i] = fired(layer, slots)
            both_open.wait()

    threads = [threading.Thread(target=without, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: {1, 2, 3}, 1: {0, 2, 3}}
    assert layer.rules.allowed() is None


def test_tasks_disable_side_by_side():
    rules = MLPRules(2, 3)

    async def without(i):
        with rules.disabled(i):
            await asyncio.sleep(0)
            return marks(rules)

    async def both():
        return await asyncio.gather(without(0), without(1))

    assert asyncio.run(both()) == [[False, True], [True, False]]


def test_a_generator_that_opens_it_for_each_item_leaves_its_caller_alone():
    """Across a yield it would hold for the caller too: Python's contexts do not end there."""
    rules = MLPRules(2, 3)

    def across():
        with rules.disabled(0):
            yield marks(rules)

    def each():
        for i in range(2):
            with rules.disabled(i):
                found = marks(rules)
            yield found

    for found, expected in zip(each(), [[False, True], [True, False]], strict=True):
        assert found == expected
        assert rules.allowed() is None
    items = across()
    next(items)
    assert marks(rules) == [False, True]
    items.close()
    assert rules.allowed() is None


# -- copies ----------------------------------------------------------------------------------------


@BOTH
def test_copies_made_inside_are_enabled(kind):
    layer, slots = make(kind), torch.randn(200, 4, 6)
    everything = fired(layer, slots)
    with layer.rules.disabled(0):
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), make(kind, seed=1)]
        copies[2].load_state_dict(layer.state_dict())
        for other in copies:
            assert fired(other, slots) == everything
    for other in copies:
        assert fired(other, slots) == everything
        with other.rules.disabled(0):
            assert fired(other, slots) == everything - {0}
            assert fired(layer, slots) == everything


# -- torch's machinery -----------------------------------------------------------------------------


@BOTH
def test_compiled_code_asks_its_own_thread(kind):
    torch._dynamo.reset()
    layer, slots = make(kind), torch.randn(50, 4, 6)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    expected, off = layer(slots), []
    torch.testing.assert_close(compiled(slots), expected)
    for i in range(4):
        with layer.rules.disabled(i):
            off.append(compiled(slots))
            torch.testing.assert_close(off[i], layer(slots))
            torch.testing.assert_close(in_a_thread(lambda: compiled(slots)), expected)
    assert not torch.allclose(off[0], off[1])
    torch.testing.assert_close(compiled(slots), expected)


def test_compiled_code_is_not_compiled_again_for_every_rule():
    torch._dynamo.reset()
    layer, slots = make(SequentialNPS, 12), torch.randn(50, 4, 6)  # more than torch's limit of 8
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for i in range(12):
        with layer.rules.disabled(i):
            torch.testing.assert_close(compiled(slots), layer(slots))


@BOTH
def test_an_export_has_the_rules_that_were_enabled(kind):
    layer, slots = make(kind), torch.randn(50, 4, 6)
    with layer.rules.disabled(0):
        off = layer(slots)
        without = torch.export.export(layer, (slots,)).module()
    program = torch.export.export(layer, (slots,)).module()
    torch.testing.assert_close(without(slots), off)
    torch.testing.assert_close(program(slots), layer(slots))
    assert not torch.allclose(off, layer(slots))


def test_a_strict_export_inside_is_refused():
    layer, slots = make(SequentialNPS), torch.randn(50, 4, 6)
    with layer.rules.disabled(0), pytest.raises(RuntimeError, match=r"needs strict=False"):
        torch.export.export(layer, (slots,), strict=True)
    program = torch.export.export(layer, (slots,), strict=True).module()
    torch.testing.assert_close(program(slots), layer(slots))


@BOTH
def test_a_checkpointed_call_is_told_how_to_recompute(kind):
    layer = make(kind).train()
    slots = torch.randn(20, 4, 6)
    noise = torch.rand(layer.noise_shape(20, slots=4))

    def without_rule(x):
        with layer.rules.disabled(1):
            return layer(x, noise=noise)

    def recomputed(x):
        contexts = nullcontext(), layer.rules.disabled(1)
        with layer.rules.disabled(1):
            call = {"use_reentrant": False, "context_fn": lambda: contexts}
            return checkpoint(lambda x: layer(x, noise=noise), x, **call)

    found = []
    for call in (without_rule, recomputed):
        layer.zero_grad()
        call(slots.requires_grad_()).square().sum().backward()
        found.append([p.grad for p in layer.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@BOTH
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_vmapped_calls_leave_out_disabled_rules(kind, training):
    layer = make(kind).train(training)
    slots = torch.randn(3, 20, 4, 6)
    noise = torch.rand(3, *layer.noise_shape(20, slots=4))
    with layer.rules.disabled(1, 3):
        new = vmap(lambda slots, noise: layer(slots, noise=noise))(slots, noise)
        expected = [layer(*x, noise=n) for *x, n in zip(slots, noise, strict=True)]
    torch.testing.assert_close(new, torch.stack(expected))
