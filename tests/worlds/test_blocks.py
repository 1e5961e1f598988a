"""The rules of the blocks against a scalar transcription of them, and how often each applies."""

import random

import pytest
import torch

from nps.worlds.blocks import (
    MODES,
    Outcome,
    State,
    action_count,
    episodes,
    every_action,
    render,
    start,
    step,
)

NAMES = ("nothing", "north", "east", "south", "west")
AWAY = {"nothing": (0, 0), "north": (-1, 0), "east": (0, 1), "south": (1, 0), "west": (0, -1)}


class Blocked(Exception):
    pass


class TwoInTheWay(Exception):
    pass


def scalar_step(cells: list[tuple[int, int]], weights: list[int], mover: int, name: str):
    """One world, one block after the other: cells are changed only if all of the move succeeds."""
    board = {cell: block for block, cell in enumerate(cells)}
    moved = []

    def shove(block: int, pushed: bool) -> None:
        row, column = cells[block]
        to = (row + AWAY[name][0], column + AWAY[name][1])
        if to in board:
            if pushed:
                raise TwoInTheWay
            if weights[block] <= weights[board[to]]:
                raise Blocked
            shove(board[to], pushed=True)
        if not (0 <= to[0] <= 4 and 0 <= to[1] <= 4):
            raise Blocked
        moved.append((block, to))

    if name == "nothing":
        return cells, "nothing"
    try:
        shove(mover, pushed=False)
    except Blocked:
        return cells, "nothing"
    except TwoInTheWay:
        return cells, "invalid"
    after = list(cells)
    for block, to in moved:
        after[block] = to
    return after, {1: "free", 2: "push"}[len(moved)]


def worlds(count: int, objects: int, draw: random.Random) -> State:
    """Half of them crowded into a corner of 3 x 3, and weights that are sometimes equal."""
    everywhere = [(row, column) for row in range(5) for column in range(5)]
    corner = [(row, column) for row, column in everywhere if row > 1 and column < 3]
    positions = [
        draw.sample(corner if draw.random() < 0.5 else everywhere, objects) for _ in range(count)
    ]
    weights = [[draw.randrange(objects) for _ in range(objects)] for _ in range(count)]
    constant = torch.zeros(count, objects, dtype=torch.int8)
    return State(
        torch.tensor(positions, dtype=torch.int8),
        torch.tensor(weights, dtype=torch.int8),
        constant,
        torch.zeros(count, objects, 3, dtype=torch.uint8),
    )


@pytest.mark.parametrize("stay", [True, False])
@pytest.mark.parametrize("objects", [2, 3, 5, 8])
def test_each_step_is_the_scalar_one(objects, stay):
    draw = random.Random(objects)
    state = worlds(2500, objects, draw)
    action = torch.tensor([draw.randrange(action_count(objects, stay)) for _ in range(2500)])
    before = state.positions.clone()
    after, outcome = step(state, action, stay)
    assert torch.equal(state.positions, before)
    seen = set()
    names = NAMES if stay else NAMES[1:]
    for i in range(2500):
        block, direction = divmod(int(action[i]), len(names))
        cells, name = scalar_step(
            [tuple(cell) for cell in before[i].tolist()],
            state.weights[i].tolist(),
            block,
            names[direction],
        )
        assert [tuple(cell) for cell in after.positions[i].tolist()] == cells
        assert Outcome(int(outcome[i])).name.lower() == name
        seen.add(name)
    assert seen == {"nothing", "free", "push"} | ({"invalid"} if objects > 2 else set())
    assert all(after[part] is state[part] for part in (1, 2, 3))


@pytest.mark.parametrize("stay", [True, False])
def test_every_action_is_each_action(stay):
    state = worlds(64, 5, random.Random(1))
    after, outcome = every_action(state, stay)
    assert outcome.shape == (64, action_count(5, stay))
    assert after.colours.shape == (64, action_count(5, stay), 5, 3)
    for action in range(action_count(5, stay)):
        one, result = step(state, torch.full((64,), action), stay)
        assert torch.equal(after.positions[:, action], one.positions)
        assert torch.equal(after.weights[:, action], one.weights)
        assert torch.equal(outcome[:, action], result)


def test_any_leading_dimensions():
    state = worlds(24, 5, random.Random(2))
    action = torch.randint(25, (24,))
    flat, outcome = step(state, action)
    folded = State(*(part.unflatten(0, (2, 3, 4)) for part in state))
    deep, result = step(folded, action.view(2, 3, 4))
    assert torch.equal(deep.positions.flatten(0, 2), flat.positions)
    assert torch.equal(result.flatten(), outcome)
    stacked, result = torch.func.vmap(step)(folded, action.view(2, 3, 4))
    assert torch.equal(stacked.positions, deep.positions)
    with pytest.raises(ValueError, match=r"action: got shape \(23,\), expected \(24,\)"):
        step(state, action[1:])


@pytest.mark.parametrize(
    ("stay", "free", "push", "nothing"), [(True, 53.6, 3.1, 43.3), (False, 66.9, 3.9, 29.2)]
)
def test_how_often_each_outcome_is_recorded(stay, free, push, nothing):
    """Shares of 100,000 steps of the original program's rules, in percent."""
    outcome = episodes(1000, 100, seed=3, stay=stay).outcome
    shares = torch.bincount(outcome.flatten().long(), minlength=4) / outcome.numel() * 100
    assert shares.tolist() == pytest.approx([nothing, free, push, 0.0], abs=0.5)
    assert shares[Outcome.PUSH].item() == pytest.approx(push, abs=0.25)


def test_how_often_a_push_is_invalid():
    recorded = episodes(1000, 100, seed=4)
    state = recorded.state(slice(None), 50)
    _, outcome = every_action(state)
    assert (outcome == Outcome.INVALID).float().mean().item() * 100 == pytest.approx(0.5, abs=0.15)


def test_blocks_of_equal_weight_never_push():
    recorded = episodes(200, 50, seed=0, mode="shapes", stay=False)
    assert set(recorded.outcome.unique().tolist()) == {Outcome.NOTHING, Outcome.FREE}
    moved = (recorded.positions[:, 1:] != recorded.positions[:, :-1]).any(-1).sum(-1)
    assert moved.max() == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_recording_is_its_own_steps(mode):
    recorded = episodes(40, 12, seed=5, mode=mode)
    assert recorded.positions.shape == (40, 13, 5, 2)
    assert (recorded.positions >= 0).all()
    assert (recorded.positions < 5).all()
    cell = recorded.positions[..., 0] * 5 + recorded.positions[..., 1]
    assert (cell.sort(-1).values.diff(dim=-1) > 0).all()  # one block a cell
    assert not (recorded.outcome == Outcome.INVALID).any()
    for t in range(12):
        after, outcome = step(recorded.state(slice(None), t), recorded.action[:, t])
        assert torch.equal(after.positions, recorded.positions[:, t + 1])
        assert torch.equal(outcome, recorded.outcome[:, t])


def test_states_of_a_training_batch():
    recorded = episodes(30, 7, seed=6)
    episode, t = torch.tensor([3, 29, 3]), torch.tensor([0, 7, 5])
    state = recorded.state(episode, t)
    for i in range(3):
        assert torch.equal(state.positions[i], recorded.positions[episode[i], t[i]])
        assert torch.equal(state.colours[i], recorded.colours[episode[i]])
    assert torch.equal(state.at(1).weights, recorded.weights[29])


def test_every_valid_action_is_equally_likely():
    """Also where some are invalid: a redraw does not favour the first actions."""
    state = worlds(1, 5, random.Random(0))
    row = torch.tensor([[[2, 0], [2, 1], [2, 2], [0, 0], [0, 1]]], dtype=torch.int8)
    state = state._replace(positions=row, weights=torch.arange(5, 0, -1, dtype=torch.int8)[None])
    _, outcome = every_action(state, stay=False)
    assert (outcome == Outcome.INVALID).sum() == 1

    from nps.worlds.blocks.recording import _random_step

    many = State(*(part.expand(20000, *part.shape[1:]) for part in state))
    _, action, _ = _random_step(many, torch.Generator().manual_seed(0), stay=False)
    counts = torch.bincount(action, minlength=20)
    assert (counts == 0).tolist() == (outcome[0] == Outcome.INVALID).tolist()
    valid = counts[counts > 0].double()
    assert ((valid - valid.mean()) ** 2 / valid.mean()).sum() < 42  # chi-squared, 18 degrees, 0.1 %


def test_equal_seeds_give_equal_episodes():
    one, same, other = (episodes(20, 30, seed=seed) for seed in (7, 7, 8))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not torch.equal(one.positions, other.positions)
    assert not torch.equal(one.action, other.action)


def test_a_hundred_thousand_steps_are_small():
    recorded = episodes(100, 100, seed=0)
    assert sum(part.numel() * part.element_size() for part in recorded) < 210_000


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: start(0), "count: got 0, expected at least 1"),
        (lambda: start(1, "observd"), "mode: got 'observd', expected one of observed, .*, shapes"),
        (lambda: start(1, objects=1), "objects: got 1, expected 2 to 6"),
        (lambda: start(1, objects=7), "objects: got 7, expected 2 to 6"),
        (lambda: episodes(3, 0, seed=0), "steps: got 0, expected at least 1"),
        (lambda: episodes(0, 3, seed=0), "count: got 0, expected at least 1"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_nothing_reads_the_host():
    """A meta tensor has no values to read, as a captured CUDA tensor has none yet."""
    state = start(4, "observed", torch.Generator().manual_seed(0)).to("meta")
    after, outcome = every_action(state)
    assert outcome.shape == (4, 25)
    assert render(after).shape == (4, 25, 50, 50, 3)


@pytest.mark.gpu
def test_the_rules_on_a_gpu():
    recorded = episodes(500, 20, seed=9)
    for t in (0, 10):
        here, there = recorded.state(slice(None), t), recorded.to("cuda").state(slice(None), t)
        for ours, theirs in zip(every_action(there), every_action(here), strict=True):
            for part, other in zip(ours, theirs, strict=True):
                assert torch.equal(part.cpu(), other)
    state = start(8, "observed", torch.Generator("cuda").manual_seed(0))
    assert {part.device.type for part in state} == {"cuda"}
