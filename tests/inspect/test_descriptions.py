"""Descriptions of rules whose weights are set by hand, so that what they do is known."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from nps import inspect
from nps.errors import UserError
from nps.inspect.descriptions import (
    describe,
    describe_all,
    event_kind,
    what_it_does,
    when_it_fires,
)
from nps.inspect.edits import Edits
from nps.inspect.observations import OTHERS, _empty, observe
from tests.viewer.fake import SIDE, FakeWorkbench

EPISODES = 12


@pytest.fixture(scope="module")
def bench():
    return FakeWorkbench(slots=3, rules=6, steps=12, episodes=EPISODES)


@pytest.fixture(scope="module")
def described(bench):
    return describe_all(bench, EPISODES)


def test_uses_are_counted(bench, described):
    rules = np.concatenate([bench.play(n).record.rule.ravel() for n in range(EPISODES)])
    counts = np.bincount(rules[rules >= 0], minlength=6)
    assert [each.uses for each in described] == counts.tolist()
    assert [each.share for each in described] == pytest.approx(counts / counts.sum())
    assert sum(each.share for each in described) == pytest.approx(1.0)


def test_what_they_do_is_said(described):
    """Rule i moves by a cell in direction i % 4: up, right, down, left."""
    known = ["row of the slot −= ", "column of the slot += "]
    known += ["row of the slot += ", "column of the slot −= "]
    for each in described:
        if each.uses < 20:
            continue
        assert each.does.sentence.startswith(known[each.rule % 4])
        assert float(each.does.sentence.split()[-1]) == pytest.approx(1 / SIDE, abs=0.01)
        assert each.does.linear
        assert each.does.r2 > 0.99


def test_when_they_fire_is_said(bench, described):
    directions = ["up", "right", "down", "left"]
    for each in described[:4]:
        if each.when is None:
            assert each.uses < 60
            continue
        said = "\n".join(each.when.tree)
        assert f"action is {directions[each.rule]}" in said
        assert each.when.accuracy > 0.85
        assert 0.5 <= each.when.chance < 0.85
    assert sum(each.when is not None for each in described) >= 3


def test_shares_within_the_uses(bench, described):
    for each in described:
        for kind, shares in each.by.items():
            assert kind in ("object", "action", "event")
            assert sum(shares.values()) == pytest.approx(1.0)
    assert max(described[4].by["object"], key=described[4].by["object"].get) == "block 0"
    assert set(described[0].by["action"]) == {"up"}  # and never that of another block


def test_relatives_do_the_same(bench, described):
    """Rules i and i + 4 move in the same direction, i and i + 2 in opposite ones."""
    similar = {each.rule: {r.rule: r.similarity for r in each.relatives} for each in described}
    assert similar[0][4] > 0.95
    assert similar[1][5] > 0.95
    assert similar[0][2] < -0.95
    assert abs(similar[0][1]) < 0.2
    for each in described:
        sizes = [abs(r.similarity) for r in each.relatives]
        assert sizes == sorted(sizes, reverse=True)
        assert len(each.relatives) == 5
    embedding = bench.layer.rules.embedding.detach()
    cosine = torch.cosine_similarity(embedding[0], embedding[4], dim=0)
    (found,) = [r.embedding for r in described[0].relatives if r.rule == 4]
    assert found == pytest.approx(float(cosine), abs=1e-5)


def test_one_rule_by_name(bench, described):
    assert describe(bench, "rule 2", EPISODES) == described[2]
    assert inspect.describe(bench, 2, 2).episodes == 2
    with pytest.raises(UserError, match="rule: got 6"):
        describe(bench, 6)
    with pytest.raises(UserError, match="did you mean 'rule 3'"):
        describe(bench, "rle 3")
    with pytest.raises(UserError, match="expected at least 1"):
        describe(bench, 0, episodes=0)
    with pytest.raises(UserError, match="expected a run or its workbench"):
        describe("blocks", 0)
    with pytest.raises(UserError, match="no rules"):
        describe(FakeWorkbench(with_rules=False), 0)


def test_rules_that_never_fire():
    bench = FakeWorkbench(slots=3, rules=6, steps=4, episodes=3)
    bench.layer.rules.switch_off(0)
    never = describe(bench, 0, 3)
    assert (never.uses, never.share, never.when, never.does) == (0, 0.0, None, None)
    assert never.by == {}
    assert str(never) == "rule 0: 0 uses, 0% of all firings" or "like rule 4" in str(never)


def test_a_rule_that_is_no_law():
    """A direction that depends on whether the block is in the upper half."""
    bench = FakeWorkbench(slots=3, rules=4, steps=12, episodes=EPISODES)
    with torch.no_grad():
        rules = bench.layer.rules
        rules.weight_in[1], rules.weight_out[1], rules.bias_out[1] = 0.0, 0.0, 0.0
        rules.weight_in[1, 0, :2] = torch.tensor([60.0, -60.0])  # |row − 1/2|, folded again
        rules.bias_in[1, :2] = torch.tensor([-30.0, 30.0])
        rules.weight_in[1, 1, 2:4] = torch.tensor([80.0, -80.0])
        rules.bias_in[1, 2:4] = torch.tensor([-40.0, 40.0])
        rules.weight_out[1, :4, 1] = torch.tensor([0.004, 0.004, -0.004, -0.004])
    found = describe(bench, 1, EPISODES)
    assert found.uses > 20
    assert not found.does.linear
    assert re.fullmatch(
        r"changes column by about 0\.\d+; not linear in what can be read", found.does.sentence
    )


def test_empty_slots_say_nothing_of_when_a_rule_fires(bench):
    """What can be read of them is noise, which a tree would tell apart."""
    seen = observe(bench, EPISODES)
    rule, empty = np.where(seen.slot == 2, -1, 0), seen.slot == 2
    told = dataclasses.replace(seen, rule=rule, empty=empty)
    assert when_it_fires(told, 0).tree == ("on every slot that is not empty",)
    assert when_it_fires(told, 0).accuracy == 1.0
    some = dataclasses.replace(told, rule=np.where(seen.primary[:, 0] > 0.5, rule, -1))
    split = when_it_fires(some, 0).tree
    assert [line.split(" 0.")[0] for line in split] == ["row >", "row ≤"]
    always = dataclasses.replace(seen, rule=np.zeros_like(rule))
    assert when_it_fires(always, 0).tree == ("on every slot, at every step",)


def test_empty_slots_are_those_that_the_layer_is_told_to_leave_out(bench):
    play = bench.play(0)
    mask = torch.tensor([True, False, True])
    calls = tuple(dataclasses.replace(call, slot_mask=mask) for call in play.record.calls)
    record = dataclasses.replace(play.record, calls=calls)
    assert not observe(bench, 1).empty.any()
    found = _empty(record)
    assert found[:, :, 1].all()
    assert not found[:, :, [0, 2]].any()


def test_events_are_counted_without_whom_they_concern(described):
    assert event_kind("push 2→1") == "push"
    assert event_kind("blocked by 2") == "blocked"
    assert event_kind("collision of 1 and ?, bounce of 3, bounce of 4") == "bounce and collision"
    assert event_kind("red ball meets blue box", ["red ball", "blue box"]) == "meets"
    assert event_kind("y addition") == "y addition"
    assert event_kind("7") == "7"
    kinds = {kind for each in described for kind in each.by.get("event", {})}
    assert kinds == {"free", "wall", "blocked"}


def test_of_many_features_those_that_change_most_are_told(bench):
    seen, random = observe(bench, 4), np.random.default_rng(0)
    size, rows = np.arange(20.0) % 7, len(seen.rule)
    read = random.normal(size=(2, rows, 20))
    wide = dataclasses.replace(
        seen,
        feature_names=tuple(f"z{i}" for i in range(20)),
        primary=read[0],
        context=read[1],
        added=size * (np.sign(random.normal(size=(rows, 1))) + 0.1),
    )
    told = what_it_does(wide, 0).sentence
    # 6 and 13, and the first of 5, 12 and 19.
    assert re.findall(r"(z\d+) by", told) == [f"z{i}" for i in (5, 6, 13)]


def test_observations_are_the_records(bench):
    seen = observe(bench, 2)
    records = [bench.play(n).record for n in range(2)]
    assert np.array_equal(seen.rule, np.concatenate([r.rule.ravel() for r in records]))
    context = np.concatenate([r.context.ravel() for r in records])
    before = np.concatenate([r.before[..., :2].reshape(-1, 3, 2) for r in records]).repeat(3, 0)
    fired = seen.rule >= 0
    expected = before[np.arange(len(before)), np.maximum(context, 0)]
    assert np.array_equal(seen.context[fired], expected[fired])
    assert np.isfinite(seen.context).all()  # the context that the others would have had
    assert set(seen.action) == {"up", "right", "down", "left", OTHERS}
    play = bench.play(0)
    for t, act in enumerate(play.actions):
        slot, direction = divmod(int(act), 4)
        for m in range(3):
            own = ["up", "right", "down", "left"][direction] if m == slot else OTHERS
            assert seen.action[3 * t + m] == own


def test_contexts_that_would_have_been_bound_are_those_of_the_layer():
    """Force each slot to fire: the context it then takes is the one that was told."""
    from nps.inspect.edits import Forced

    bench = FakeWorkbench(slots=3, rules=6, steps=3, episodes=2)
    seen = observe(bench, 1)
    for m in range(3):
        edits = Edits(forced=(Forced(step=0, slot=m, rule=0),))
        record = bench.play(0, edits).record
        context = record.context[0, 0, m]
        assert np.array_equal(seen.context[m], record.before[0, 0, context, :2])


def test_actions_on_different_slots_have_one_name():
    from nps.inspect.observations import _common_end

    assert _common_end(["block 0 north", "block 1 north"]) == "north"
    assert _common_end(["push block 0", "push block 1"]) == "push block"
    assert _common_end(["A.x -= B.x", "B.x -= A.x"]) == ".x -= .x"
    assert _common_end(["a", "b"]) == "a"
