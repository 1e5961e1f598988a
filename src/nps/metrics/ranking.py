"""H@1 and MRR as in C-SWM (paper, section 4.3): the rank of a prediction among others.

Each true state i is compared with all predictions j of the set, `dist[i, j] = |true_i -
predicted_j|^2` over the slots in order; the rank of prediction i is 1 if no other is nearer. That
metric has weaknesses, so `report` adds:

- ties count as hits: an encoder that maps everything to one point has H@1 = 100 %. Hence `strict`;
- episodes differ in what never changes (colours, shapes), so a model in which nothing moves wins.
  Hence the identity transition on the same slots, and ranks within the episode;
- equal states count as mistakes, or as ties. Hence ranks that know which states are equal;
- rare events hardly count, and the number of candidates matters. Hence `nearest_outcome`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped

LARGE = 1e15
"""Squares of larger values may overflow float32, and infinite distances would all tie."""


class Ranks(NamedTuple):
    """The rank of each prediction, 1 is best."""

    lenient: Int[Tensor, "E"]
    """A tie is a hit, as in C-SWM."""
    strict: Int[Tensor, "E"]
    """A tie is a miss."""


class Score(NamedTuple):
    hits: float
    """H@1, the fraction with rank 1."""
    mrr: float
    """The mean of 1/rank."""


@torch.no_grad()
def ranks(
    predicted: Float[Tensor, "E ..."],
    true: Float[Tensor, "E ..."],
    *,
    state: Shaped[Tensor, "E ..."] | None = None,
    chunk: int | None = None,
) -> Ranks:
    """Rank each prediction among all predictions of the set, by the distance to its true state.

    Distances are summed one coordinate after the other, so that equal states tie exactly, on every
    device and for every `chunk`.

    Args:
        predicted: slots (E, M, D), or any other shape after E.
        true: the encodings of the true states, in the same shape.
        state: the true states themselves (positions, or observations), if known: then predictions
            of an equal state are right too (the de-duplicated ranks of Biza et al.).
        chunk: number of distances held at a time, about 12 bytes each. Default: 2^15 on a CPU,
            which fits a core's cache, else 2^22, which keeps a GPU busy.
    """
    _require_same_shape(predicted, true)
    if chunk is None:
        chunk = 2**15 if true.device.type == "cpu" else 2**22
    if chunk < 1:
        raise ValueError(f"chunk: got {chunk}, expected at least 1")
    columns, rows = coordinates("predicted", predicted), coordinates("true", true)
    count = len(true)
    kind = torch.arange(count) if state is None else _kinds(state, count)
    kind = kind.to(true.device)
    step = max(1, chunk // count)
    parts = [
        _rank(distances(some[..., None], columns[:, None]), own[:, None] == kind)
        for some, own in zip(rows.split(step, 1), kind.split(step), strict=True)
    ]
    lenient, strict = zip(*parts, strict=True)
    return Ranks(torch.cat(lenient), torch.cat(strict))


@torch.no_grad()
def ranks_among(
    predicted: Float[Tensor, "E ..."],
    candidates: Float[Tensor, "E C ..."],
    right: Int[Tensor, "E"] | int,
    *,
    state: Shaped[Tensor, "E C ..."] | None = None,
) -> Ranks:
    """Rank the right candidate of each prediction among its own candidates.

    If the candidates are the states of the same episode, including the first one, this is ranking
    within the episode: colours do not help, and "nothing moves" is a miss.

    Args:
        predicted: as for `ranks`.
        candidates: C states for each prediction.
        right: index of the true one.
        state: the true state of each candidate; those equal to the right one are right too.
    """
    if candidates.shape[:1] + candidates.shape[2:] != predicted.shape or candidates.dim() < 2:
        raise ValueError(
            f"candidates: got shape {tuple(candidates.shape)}, expected (E, C, ...) for "
            f"predicted of shape {tuple(predicted.shape)}"
        )
    points = coordinates("predicted", predicted)
    others = coordinates("candidates", candidates, leading=2)
    index = _index(right, candidates)
    if state is None:
        same = torch.arange(candidates.shape[1], device=index.device) == index[:, None]
    else:
        same = _equal_to(state, index, candidates)
    return _rank(distances(points[..., None], others), same)


def nearest_outcome(
    predicted: Float[Tensor, "E ..."],
    outcomes: Float[Tensor, "E A ..."],
    right: Int[Tensor, "E"] | int,
    *,
    state: Shaped[Tensor, "E A ..."],
) -> Bool[Tensor, "E"]:
    """The all-actions test: True if the prediction is nearest to the outcome of its own action.

    Actions with equal results have the same outcome; a tie between different outcomes is a miss.
    """
    return ranks_among(predicted, outcomes, right, state=state).strict == 1


@torch.no_grad()
def nearest(
    predicted: Float[Tensor, "E ..."], pool: Float[Tensor, "P ..."], *, chunk: int = 2**22
) -> Int[Tensor, "E"]:
    """The index of the nearest state of the pool to each prediction; the first if several tie.

    Args:
        predicted: slots (E, M, D), or any other shape after E.
        pool: P states in the same shape.
        chunk: number of distances held at a time.
    """
    if predicted.shape[1:] != pool.shape[1:]:
        raise ValueError(
            f"pool: got shape {tuple(pool.shape)}, expected (P, ...) as predicted, "
            f"{tuple(predicted.shape)}"
        )
    rows, columns = coordinates("predicted", predicted), coordinates("pool", pool)
    step = max(1, chunk // len(pool))
    parts = rows.split(step, 1)
    found = [distances(some[..., None], columns[:, None]).argmin(-1) for some in parts]
    return torch.cat(found)


def share_by_kind(
    hit: Bool[Tensor, "E"], kind: Int[Tensor, "E"], names: Sequence[str]
) -> dict[str, float]:
    """The fraction of hits of each kind (free move, push, no-op), for the kinds that occur."""
    if hit.shape != kind.shape:
        raise ValueError(
            f"kind: got shape {tuple(kind.shape)}, expected that of hit, {tuple(hit.shape)}"
        )
    groups = {name: hit[kind == number] for number, name in enumerate(names)}
    return {name: float(group.double().mean()) for name, group in groups.items() if len(group)}


def hits_and_mrr(ranks: Int[Tensor, "E"]) -> Score:
    exact = ranks.double()
    return Score(float((ranks == 1).double().mean()), float(exact.reciprocal().mean()))


def report(
    rollout: Float[Tensor, "E T ..."],
    states: Float[Tensor, "E S ..."],
    steps: Sequence[int] = (1, 5, 10),
    *,
    state: Shaped[Tensor, "E S ..."] | None = None,
    chunk: int | None = None,
) -> dict[int, dict[str, float]]:
    """The ranking metrics and their baseline, by number of steps.

    `h1` and `mrr` are C-SWM's; `_strict` counts ties as misses; `_episode` ranks among the S states
    of the episode; `_distinct` (if `state` is given) accepts equal states. With the prefix
    `identity_` they are those of a baseline that always predicts the first state.

    Args:
        rollout: predictions after 1, ..., T steps from the first state.
        states: the encodings of the observations 0, ..., T (or more) of the episode.
        steps: numbers of steps after which to rank.
        state: the true states, as for `ranks`.
        chunk: as for `ranks`.
    """
    last = min(rollout.shape[1], states.shape[1] - 1)
    if not all(1 <= step <= last for step in steps):
        raise ValueError(f"steps: got {tuple(steps)}, expected numbers from 1 to {last}")
    metrics: dict[int, dict[str, float]] = {}
    for step in steps:
        true, equal = states[:, step], None if state is None else state[:, step]
        metrics[step] = {}
        for baseline, predicted in {"": rollout[:, step - 1], "identity_": states[:, 0]}.items():
            found = {
                "": ranks(predicted, true, chunk=chunk),
                "_episode": ranks_among(predicted, states, step, state=state),
            }
            if equal is not None:
                found["_distinct"] = ranks(predicted, true, state=equal, chunk=chunk)
            for candidates, both in found.items():
                for ties, each in {"": both.lenient, "_strict": both.strict}.items():
                    score = hits_and_mrr(each)
                    metrics[step][f"{baseline}h1{candidates}{ties}"] = score.hits
                    metrics[step][f"{baseline}mrr{candidates}{ties}"] = score.mrr
    return metrics


def _rank(distances: Float[Tensor, "E C"], same: Bool[Tensor, "E C"]) -> Ranks:
    """The rank of the nearest candidate that is right, among it and those that are not."""
    own = distances.masked_fill(~same, torch.inf).amin(-1, keepdim=True)
    nearer = (distances < own).sum(-1)
    tied = ((distances == own) & ~same).sum(-1)
    return Ranks(1 + nearer, 1 + nearer + tied)


def distances(left: Float[Tensor, "D ..."], right: Float[Tensor, "D ..."]) -> Float[Tensor, "..."]:
    """Squared distances, summed over the first dimension one by one.

    `sum` may add in different orders, and x^2 + y^2 - 2xy rounds: both would break ties.
    """
    total = (left[0] - right[0]).square_()
    for one, other in zip(left[1:], right[1:], strict=True):
        total += (one - other).square_()
    return total


def coordinates(
    name: str, states: Float[Tensor, "E ..."], leading: int = 1
) -> Float[Tensor, "D ..."]:
    """Move the coordinates to the front, each contiguous; refuses NaN and infinity."""
    if not states.is_floating_point() or states.numel() == 0:
        got = f"{states.dtype} of shape {tuple(states.shape)}"
        raise ValueError(f"{name}: got {got}, expected a floating point tensor that is not empty")
    largest = float(states.abs().max())  # NaN if there is one
    if not largest < torch.inf:
        where = tuple(torch.nonzero(~states.isfinite())[0].tolist())
        value = float(states[where])
        raise ValueError(f"{name}: got {value} at index {where}, expected finite numbers")
    enough = torch.promote_types(states.dtype, torch.float32)
    exact = states.to(torch.float64 if largest > LARGE else enough)
    return exact.reshape(*states.shape[:leading], -1).movedim(-1, 0).contiguous()


def _require_same_shape(predicted: Tensor, true: Tensor) -> None:
    if predicted.shape != true.shape:
        raise ValueError(
            f"true: got shape {tuple(true.shape)}, expected that of predicted, "
            f"{tuple(predicted.shape)}"
        )


def _kinds(state: Shaped[Tensor, "E ..."], count: int) -> Int[Tensor, "E"]:
    """A number for each state, equal exactly for equal states."""
    if len(state) != count:
        raise ValueError(f"state: got shape {tuple(state.shape)}, expected ({count}, ...)")
    kinds: Tensor
    _, kinds = torch.unique(state.reshape(count, -1), dim=0, return_inverse=True)
    return kinds


def _equal_to(
    state: Shaped[Tensor, "E C ..."], index: Int[Tensor, "E"], candidates: Tensor
) -> Bool[Tensor, "E C"]:
    if state.shape[:2] != candidates.shape[:2]:
        expected = ", ".join(str(size) for size in candidates.shape[:2])
        raise ValueError(f"state: got shape {tuple(state.shape)}, expected ({expected}, ...)")
    flat = state.reshape(*state.shape[:2], -1)
    chosen = flat[torch.arange(len(flat), device=flat.device), index.to(flat.device)]
    return (flat == chosen[:, None]).all(-1).to(candidates.device)


def _index(right: Int[Tensor, "E"] | int, candidates: Tensor) -> Int[Tensor, "E"]:
    index = torch.as_tensor(right, device=candidates.device)
    count, choices = candidates.shape[:2]
    if index.shape not in ((), (count,)):
        raise ValueError(f"right: got shape {tuple(index.shape)}, expected ({count},)")
    outside = (index < 0) | (index >= choices)
    if bool(outside.any()):
        got = int(index[outside][0])
        raise ValueError(f"right: got {got}, expected numbers from 0 to {choices - 1}")
    return index.expand(count)
