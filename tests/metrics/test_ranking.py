"""Ranks against plain loops in exact arithmetic, and against a transcription of C-SWM's sort."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nps.metrics.ranking import (
    Ranks,
    hits_and_mrr,
    nearest,
    nearest_outcome,
    ranks,
    ranks_among,
    report,
    share_by_kind,
)


def distance(one, other):
    """Without any rounding."""
    pairs = zip(one.flatten().tolist(), other.flatten().tolist(), strict=True)
    return sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)


def ranks_by_loops(target, candidates, right):
    """1 + how many wrong candidates are nearer than the nearest right one; and with ties."""
    own = min(distance(target, candidates[j]) for j in right)
    wrong = [distance(target, c) for j, c in enumerate(candidates) if j not in right]
    return 1 + sum(d < own for d in wrong), 1 + sum(d <= own for d in wrong)


def by_loops(predicted, true, state=None):
    found = []
    for i in range(len(true)):
        right = {i} if state is None else {j for j, s in enumerate(state) if s.equal(state[i])}
        found.append(ranks_by_loops(true[i], predicted, right))
    return Ranks(*(torch.tensor(part) for part in zip(*found, strict=True)))


def as_cswm_sorts(predicted, true):
    """The diagonal in front of every row, a stable sort, the place of column 0."""
    flat, rows = predicted.flatten(1).numpy(), true.flatten(1).numpy()
    distances = ((rows[:, None] - flat[None]) ** 2).sum(-1)
    front = np.concatenate([np.diag(distances)[:, None], distances], 1)
    order = np.argsort(front, axis=1, kind="stable")
    return torch.from_numpy((order == 0).argmax(1) + 1)


def draw_states(seed, *shape, levels=3):
    """Few levels: many ties and many duplicates; small integers are exact in float32."""
    return torch.randint(levels, shape, generator=torch.Generator().manual_seed(seed)).float()


def assert_equal(found, expected):
    torch.testing.assert_close(found.lenient, expected.lenient)
    torch.testing.assert_close(found.strict, expected.strict)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 120), st.booleans())
def test_ranks_against_loops_for_every_chunk(seed, count, chunk, knows_states):
    predicted, true = draw_states(seed, count, 3, 4), draw_states(seed + 1, count, 3, 4)
    state = draw_states(seed + 2, count, 2, levels=2).long() if knows_states else None
    found = ranks(predicted, true, state=state, chunk=chunk)
    assert_equal(found, by_loops(predicted, true, state))
    if state is None:
        torch.testing.assert_close(found.lenient, as_cswm_sorts(predicted, true))


def test_ranks_of_real_numbers_as_cswm_sorts_them():
    predicted = torch.randn(97, 5, 2, generator=torch.Generator().manual_seed(0))
    true = predicted + torch.randn(97, 5, 2, generator=torch.Generator().manual_seed(1))
    found = ranks(predicted.clone().requires_grad_(), true, chunk=1000)
    torch.testing.assert_close(found.lenient, as_cswm_sorts(predicted, true))
    assert found.lenient.max() > 3
    assert found.strict.equal(found.lenient)


def test_rows_are_true_states_and_columns_predictions():
    true, predicted = torch.tensor([[0.0], [10.0]]), torch.tensor([[4.0], [3.0]])
    # each true state has the other's prediction nearer; prediction 0 has its own state nearer
    assert ranks(predicted, true).lenient.tolist() == [2, 2]
    assert ranks(true, predicted).lenient.tolist() == [1, 2]


def test_one_candidate():
    found = ranks(torch.zeros(1, 2, 2), torch.ones(1, 2, 2))
    assert (found.lenient.tolist(), found.strict.tolist()) == ([1], [1])


def test_a_constant_encoder_is_perfect_unless_ties_are_misses():
    same = torch.full((50, 3, 4), 0.1)
    found = ranks(same, same, chunk=64)
    assert hits_and_mrr(found.lenient) == (1.0, 1.0)
    assert found.strict.tolist() == [50] * 50
    assert hits_and_mrr(found.strict) == (0.0, pytest.approx(1 / 50))
    assert hits_and_mrr(ranks(same[:1], same[:1]).strict) == (1.0, 1.0)


@pytest.mark.parametrize("size", [1, 3, 10, 33, 320])
@pytest.mark.parametrize("chunk", [1, 500, 10**6])
def test_duplicates_tie_to_the_bit_wherever_they_stand(size, chunk):
    """Real numbers whose squares round: a sum in another order would break the ties."""
    generator = torch.Generator().manual_seed(size)
    true = torch.randn(1, size, generator=generator).expand(61, size)
    predicted = torch.randn(1, size, generator=generator).expand(61, size)
    found = ranks(predicted, true, chunk=chunk)
    assert found.lenient.tolist() == [1] * 61
    assert found.strict.tolist() == [61] * 61


def test_states_that_differ_in_the_last_bit_do_not_tie():
    near = torch.tensor([[1.0], [np.nextafter(np.float32(1), np.float32(2))]])
    found = ranks(near, near)
    assert found.strict.tolist() == [1, 1]
    half = near.bfloat16()  # equal there
    assert ranks(half, half).strict.tolist() == [2, 2]


def test_far_away_predictions_do_not_tie_at_infinity():
    predicted, true = torch.tensor([[1e30], [3e30]]), torch.tensor([[0.0], [1.0]])
    assert ranks(predicted, true).lenient.tolist() == [1, 2]


def test_equal_states_are_no_mistakes():
    true = torch.tensor([[0.0], [0.0], [5.0]])
    predicted = torch.tensor([[0.2], [0.1], [9.0]])
    assert ranks(predicted, true).lenient.tolist() == [2, 1, 1]
    state = torch.tensor([[7, 7], [7, 7], [7, 8]])
    assert ranks(predicted, true, state=state).lenient.tolist() == [1, 1, 1]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_ranks_among_own_candidates_against_loops(seed, count, choices, knows_states):
    predicted = draw_states(seed, count, 3, 4)
    candidates = draw_states(seed + 1, count, choices, 3, 4)
    right = torch.arange(count) % choices
    state = draw_states(seed + 2, count, choices, 2, levels=2) if knows_states else None
    expected = []
    for e in range(count):
        own = {int(right[e])}
        if state is not None:
            own = {c for c in range(choices) if state[e, c].equal(state[e, right[e]])}
        expected.append(ranks_by_loops(predicted[e], candidates[e], own))
    found = ranks_among(predicted, candidates, right, state=state)
    assert_equal(found, Ranks(*(torch.tensor(part) for part in zip(*expected, strict=True))))


def test_nearest_outcome_by_kind():
    # a point on a line of cells 0, 1, 2 with a wall at both ends; actions: left, stay, right
    cell = torch.tensor([0, 0, 1, 2])
    action = torch.tensor([0, 2, 2, 0])
    after = (cell[:, None] + torch.tensor([-1, 0, 1])).clamp(0, 2)
    kind = (after[torch.arange(4), action] != cell).long()
    outcomes = after[..., None].float()

    def shares(predicted, outcomes=outcomes):
        hit = nearest_outcome(predicted[:, None].float(), outcomes, action, state=after)
        return share_by_kind(hit, kind, ("no-op", "move", "push"))

    assert shares(cell) == {"no-op": 1.0, "move": 0.0}
    assert shares(after[torch.arange(4), action]) == {"no-op": 1.0, "move": 1.0}
    assert shares(torch.tensor([0, 1, 1, 0])) == {"no-op": 1.0, "move": pytest.approx(2 / 3)}
    # an encoder that sees nothing hits nothing where there is a choice
    assert shares(cell, torch.zeros_like(outcomes)) == {"no-op": 0.0, "move": 0.0}


def test_hits_and_mrr():
    assert hits_and_mrr(torch.tensor([1, 2, 4, 1])) == (
        0.5,
        pytest.approx((1 + 0.5 + 0.25 + 1) / 4),
    )


def test_report_tells_dynamics_from_appearance():
    """A colour for each episode, and a point that moves by one: colour wins unless asked better."""
    episodes, length = 40, 11
    colour = 100.0 * torch.arange(episodes).float()
    states = torch.zeros(episodes, length, 1, 2)
    states[..., 0, 0] = colour[:, None]
    states[..., 0, 1] = torch.arange(length)
    moving, still = states[:, 1:], states[:, :1].expand(-1, length - 1, -1, -1)
    truth = torch.arange(length).expand(episodes, -1)

    perfect = report(moving, states)
    assert list(perfect) == [1, 5, 10]
    assert perfect[10]["h1"] == perfect[10]["h1_strict"] == perfect[10]["h1_episode"] == 1.0
    assert perfect[10]["identity_h1"] == perfect[10]["identity_mrr_strict"] == 1.0
    assert perfect[10]["identity_h1_episode"] == 0.0
    assert perfect[5]["identity_mrr_episode"] == pytest.approx(1 / 6)  # states 0 to 4 are nearer

    lazy = report(still, states, (5,), state=truth)[5]
    for name in [name for name in lazy if not name.startswith("identity_")]:
        assert lazy[name] == lazy[f"identity_{name}"]
    # all states at step 5 are equal in truth: nothing can be wrong but within the episode
    assert lazy["h1_distinct"] == 1.0
    assert lazy["h1_episode"] == 0.0

    blind = report(torch.zeros_like(moving), torch.zeros_like(states), (10,))[10]
    assert (blind["h1"], blind["h1_strict"], blind["h1_episode_strict"]) == (1.0, 0.0, 0.0)


SLOTS = torch.zeros(2, 3, 4)
WRONG = {
    "true: got shape (2, 3), expected that of predicted, (2, 3, 4)": lambda: ranks(
        SLOTS, SLOTS[..., 0]
    ),
    "predicted: got nan at index (1, 0, 2), expected finite": lambda: ranks(
        SLOTS.index_put((torch.tensor(1), torch.tensor(0), torch.tensor(2)), torch.tensor(np.nan)),
        SLOTS,
    ),
    "true: got -inf at index (0, 0, 0), expected finite": lambda: ranks(SLOTS, SLOTS - np.inf),
    "predicted: got torch.int64 of shape (2, 3, 4), expected a floating": lambda: ranks(
        SLOTS.long(), SLOTS
    ),
    "predicted: got torch.float32 of shape (0, 3, 4), expected": lambda: ranks(
        SLOTS[:0], SLOTS[:0]
    ),
    "chunk: got 0, expected at least 1": lambda: ranks(SLOTS, SLOTS, chunk=0),
    "state: got shape (3,), expected (2, ...)": lambda: ranks(
        SLOTS, SLOTS, state=torch.zeros(3, dtype=torch.long)
    ),
    "candidates: got shape (2, 3, 4), expected (E, C, ...) for": lambda: ranks_among(
        SLOTS, SLOTS, 0
    ),
    "candidates: got inf at index (0, 0, 0, 0), expected finite": lambda: ranks_among(
        SLOTS, torch.full((2, 5, 3, 4), np.inf), 0
    ),
    "right: got 5, expected numbers from 0 to 4": lambda: ranks_among(
        SLOTS, torch.zeros(2, 5, 3, 4), 5
    ),
    "right: got shape (3,), expected (2,)": lambda: ranks_among(
        SLOTS, torch.zeros(2, 5, 3, 4), torch.zeros(3, dtype=torch.long)
    ),
    "state: got shape (2, 4), expected (2, 5, ...)": lambda: nearest_outcome(
        SLOTS, torch.zeros(2, 5, 3, 4), 0, state=torch.zeros(2, 4)
    ),
    "kind: got shape (3,), expected that of hit, (2,)": lambda: share_by_kind(
        torch.ones(2) > 0, torch.zeros(3, dtype=torch.long), ("move",)
    ),
    "steps: got (1, 5), expected numbers from 1 to 3": lambda: report(
        torch.zeros(2, 3, 4), torch.zeros(2, 4, 4), (1, 5)
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_bad_input_is_reported_in_one_line(message):
    with pytest.raises(ValueError) as error:
        WRONG[message]()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("chunk", [1, 10, 2**20])
def test_the_nearest_of_a_pool_is_that_of_a_loop(chunk):
    predicted, pool = torch.randn(7, 2, 3), torch.randn(9, 2, 3).repeat(2, 1, 1)
    expected = []
    for one in predicted:
        distances = [distance(one, other) for other in pool]
        expected.append(distances.index(min(distances)))  # the first of equals
    assert nearest(predicted, pool, chunk=chunk).tolist() == expected


def test_a_pool_of_another_shape():
    with pytest.raises(ValueError, match=r"pool: got shape \(9, 3\), expected \(P, ...\)"):
        nearest(torch.randn(7, 2, 3), torch.randn(9, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [10, 33, 320])
def test_a_gpu_gives_the_same_ranks_to_the_last_tie(size):
    generator = torch.Generator().manual_seed(size)
    true = torch.randn(300, size, generator=generator)[torch.arange(900) % 300]
    predicted = true + torch.randn(300, size, generator=generator)[torch.arange(900) % 300]
    here = ranks(predicted, true)
    there = ranks(predicted.cuda(), true.cuda())
    assert (here.strict - here.lenient >= 2).all()
    assert_equal(Ranks(*(part.cpu() for part in there)), here)
    among = ranks_among(predicted, true.view(300, 3, size).repeat_interleave(3, 0), 1)
    there = ranks_among(predicted.cuda(), true.cuda().view(300, 3, size).repeat_interleave(3, 0), 1)
    assert_equal(Ranks(*(part.cpu() for part in there)), among)


@pytest.mark.gpu
def test_ten_thousand_by_ten_thousand_slots_of_64_stay_small():
    states = torch.randn(10_000, 5, 64, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = ranks(states + 0.1, states, chunk=2**22)
    assert hits_and_mrr(found.strict).hits == 1.0
    assert torch.cuda.max_memory_allocated() - before < 2**28
