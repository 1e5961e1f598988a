"""Does the trace tell the push? Against hand-made traces and models that know the rules."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from nps.experiments.blocks import pushes as module
from nps.experiments.blocks.pushes import (
    firing_metrics,
    last_fired,
    push_metrics,
    pusher_is_context,
    pushes_from,
    slot_changes,
    slots_of_blocks,
)
from nps.models.transitions import RuleTransition
from nps.rules import SequentialNPS, Trace
from nps.worlds.blocks import Outcome, State, episodes, start, step


def some_states(count: int = 200) -> State:
    return start(count, "fixed-palette", torch.Generator().manual_seed(0))


def trace_of(rule: list, context: list) -> Trace:
    """One example, K stages of M slots."""
    rule, context = torch.tensor([rule]), torch.tensor([context])
    return Trace(rule, context, torch.zeros(*rule.shape, 2), torch.zeros(*rule.shape, 3))


def test_pushes_are_those_that_a_loop_finds():
    state = some_states(60)
    found = []
    for world in range(60):
        for action in range(25):
            one = State(*(part[world : world + 1] for part in state))
            after, outcome = step(one, torch.tensor([action]))
            if outcome.item() == Outcome.PUSH:
                moved = (after.positions != one.positions).any(-1)[0].nonzero().flatten().tolist()
                (pushed,) = set(moved) - {action // 5}
                found.append((action, action // 5, pushed, after.positions[0].tolist()))
    pushes = pushes_from(state, stay=True)
    after = pushes.after.positions.tolist()
    columns = (pushes.action.tolist(), pushes.pusher.tolist(), pushes.pushed.tolist(), after)
    assert found == list(zip(*columns, strict=True))
    assert len(found) > 20


def test_the_last_stage_in_which_the_slot_fired_counts():
    twice = trace_of([[0, -1, 1], [-1, -1, 0]], [[2, -1, 1], [-1, -1, 0]])
    for slot, (rule, context) in {0: (0, 2), 1: (-1, -1), 2: (0, 0)}.items():
        fired = last_fired(twice, torch.tensor([slot]))
        assert (fired.rule.item(), fired.context.item()) == (rule, context)


def test_the_context_must_be_the_pushers_slot():
    """Blocks 0 and 1 are in slots 2 and 0; block 0 pushes block 1."""
    state = some_states(1)
    slot = torch.tensor([2, 0, 1])
    pushes = module.Pushes(state, state, *(torch.tensor([x]) for x in (1, 0, 1)))
    assert pusher_is_context(trace_of([[0, -1, -1]], [[2, -1, -1]]), pushes, slot).item()
    assert not pusher_is_context(trace_of([[0, -1, -1]], [[1, -1, -1]]), pushes, slot).item()
    assert not pusher_is_context(trace_of([[-1, -1, 0]], [[-1, -1, 2]]), pushes, slot).item()
    assert not pusher_is_context(
        trace_of([[0, 0, 0], [0, -1, -1]], [[2, 2, 2], [1, -1, -1]]), pushes, slot
    )


def test_slots_of_blocks():
    clear = slots_of_blocks(torch.tensor([[0, 9, 1], [8, 0, 0], [0, 0, 7]]))
    assert clear.slot.tolist() == [1, 0, 2]
    assert clear.one_to_one
    shared = slots_of_blocks(torch.tensor([[0, 9, 1], [0, 8, 0], [5, 0, 0]]))
    assert shared.slot.tolist() == [1, 2, 0] or shared.slot.tolist() == [2, 1, 0]
    assert not shared.one_to_one


class Traces(nn.Module):
    """Sees positions, its slots in another order; its trace tells the first half of pushes."""

    order = (3, 1, 4, 0, 2)
    """The block that each slot shows."""

    def __init__(self) -> None:
        super().__init__()
        self.transition = RuleTransition(SequentialNPS(2, 1), 2)

    def encode(self, shown: Tensor) -> Tensor:
        return shown[:, list(self.order)].float()

    def traced(self, slots: Tensor, action: Tensor) -> tuple[Tensor, Trace]:
        pushes = pushes_from(some_states(), stay=True)
        count = len(action)
        rule = torch.full((count, 1, 5), -1)
        context = rule.clone()
        for p in range(count - 1):  # on the last one, no rule fires
            pushed = self.order.index(pushes.pushed[p])
            pusher = self.order.index(pushes.pusher[p])
            rule[p, 0, pushed] = 0
            context[p, 0, pushed] = pusher if p < count // 2 else pushed
        trace = Trace(rule, context, torch.zeros(count, 1, 5, 1), torch.zeros(count, 1, 5, 5))
        return self.predict(slots, action), trace

    def predict(self, slots: Tensor, action: Tensor) -> Tensor:
        """The pusher always moves, the pushed block in a third of the pushes."""
        pushes = pushes_from(some_states(), stay=True)
        before, after = (x.positions.clone() for x in (pushes.before, pushes.after))
        row, some = torch.arange(len(action)), torch.arange(len(action)) % 3 == 0
        block = torch.where(some, pushes.pusher, pushes.pushed)
        after[row, block] = torch.where(some, after[row, block].T, before[row, block].T).T
        return self.encode(after)


def test_the_share_of_pushes_that_the_trace_tells(monkeypatch):
    monkeypatch.setattr(module, "render", lambda state: state.positions)
    data = episodes(30, 20, 1, "fixed-palette")
    model, state = Traces(), some_states()
    table = slot_changes(model, data, 5)
    assert table.sum() == (data.outcome == Outcome.FREE).sum()
    assert all(table[block].argmax() == model.order.index(block) for block in range(5))
    metrics = push_metrics(model, data, state, stay=True)
    count = len(pushes_from(state, stay=True).action)
    assert metrics["push_context"] == (count // 2) / count
    assert metrics["push_fired"] == (count - 1) / count
    assert metrics["push_moved"] == -(-count // 3) / count
    assert metrics["slot_of_block"] == [model.order.index(block) for block in range(5)]
    assert metrics["slots_one_to_one"]


def test_how_many_slots_fire(monkeypatch):
    """A model that fires on the block that acts, whether or not it moves."""
    monkeypatch.setattr(module, "render", lambda state: state.positions)
    data, model = episodes(300, 20, 1, "fixed-palette"), Traces()

    def traced(slots: Tensor, action: Tensor) -> tuple[Tensor, Trace]:
        rule = torch.full((len(action), 1, 5), -1)
        for row, act in enumerate(action.tolist()):
            rule[row, 0, model.order.index(act // 5)] = 0
        scores = torch.zeros(len(action), 1, 5, 5)
        return slots, Trace(rule, rule, scores[..., :1], scores)

    monkeypatch.setattr(model, "traced", traced)
    monkeypatch.setattr(module, "TOGETHER", 70)
    fired = {True: [], False: []}
    for e, m in itertools.product(range(300), range(5)):
        moved = bool((data.positions[e, 0, m] != data.positions[e, 1, m]).any())
        fired[moved].append(data.action[e, 0].item() // 5 == m)
    expected = {
        name: sum(x) / len(x) for name, x in (("changed", fired[True]), ("still", fired[False]))
    }
    assert firing_metrics(model, data, data) == pytest.approx(
        {f"fires_{name}": share for name, share in expected.items()}
    )
    assert expected["still"] < 0.2 < 0.9 < expected["changed"] < 1
    model.transition = nn.Identity()
    assert firing_metrics(model, data, data) == {}


def test_what_has_no_rules_tells_nothing(monkeypatch):
    monkeypatch.setattr(module, "render", lambda state: state.positions)
    model = Traces()
    model.transition = nn.Identity()
    data = episodes(30, 20, 1, "fixed-palette")
    metrics = push_metrics(model, data, some_states(), stay=True)
    assert set(metrics) == {"push_moved", "slot_of_block", "slots_one_to_one"}
    assert 0.3 < metrics["push_moved"] < 0.4
    light = start(50, "shapes", torch.Generator().manual_seed(0))
    assert push_metrics(Traces(), data, light, stay=False) == {}
