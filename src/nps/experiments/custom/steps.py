"""How many held-out steps a model predicts, next to copying the input and chance.

Every held-out step is predicted from the first observation of its roll-out. A prediction is right
if the true observation is the nearest of all distinct observations of these roll-outs (see
nps.metrics.distinct). Copying the input is right where the observation is the first one again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from nps.experiments.world_models.config import HORIZONS
from nps.experiments.world_models.episodes import Episodes
from nps.metrics.bootstrap import mean_interval
from nps.metrics.distinct import predicted_among
from nps.models.contrastive import Moments
from nps.models.world_model import WorldModel

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped

IMAGES_AT_ONCE = 1_000


@dataclass(frozen=True)
class Observations:
    """All observations of E roll-outs of at most T steps, equal ones counted once."""

    number: Int[Tensor, "E T+1"]
    """Which of the distinct observations it is; 0 after the end of a roll-out."""
    inside: Bool[Tensor, "E T+1"]
    """False after the end of a roll-out."""
    first: Moments
    """Where each of the C distinct observations occurs first."""

    @property
    def distinct(self) -> int:
        return len(self.first.time)


@dataclass(frozen=True)
class PredictedSteps:
    observations: Observations
    slots: Float[Tensor, "C M D"]
    """The encodings of the distinct observations."""
    rolled: Float[Tensor, "E T M D"]
    """The predicted slots."""
    credit: Float[Tensor, "E T"]
    """1 for a right prediction, 0 for a wrong one, 1/k if k distinct observations tie."""
    nearest: Int[Tensor, "E T"]
    """The distinct observation that is nearest to the prediction."""

    @property
    def inside(self) -> Bool[Tensor, "E T"]:
        return self.observations.inside[:, 1:]

    @property
    def copied(self) -> Bool[Tensor, "E T"]:
        """Where the observation is the first one of its roll-out again."""
        number = self.observations.number
        return number[:, 1:] == number[:, :1]


@torch.no_grad()
def predict_steps(model: WorldModel, data: Episodes) -> PredictedSteps:
    """Roll out every roll-out of `data` from its first observation."""
    seen = observations(data)
    parts = zip(*(x.split(IMAGES_AT_ONCE) for x in seen.first), strict=True)
    slots = torch.cat([model.encode(data.images(*part)) for part in parts])
    rolled = model.rollout(slots[seen.number[:, 0]], padded_actions(data))
    inside = seen.inside[:, 1:]
    right = seen.number[:, 1:][inside]
    found, states = predicted_among(rolled[inside], slots, right)
    credit = found.new_zeros(inside.shape).masked_scatter(inside, found)
    nearest = right.new_zeros(inside.shape).masked_scatter(inside, states)
    return PredictedSteps(seen, slots, rolled, credit, nearest)


def encode(model: WorldModel, images: Shaped[Tensor, "n H W C"]) -> Float[Tensor, "n M D"]:
    return torch.cat([model.encode(part) for part in images.split(IMAGES_AT_ONCE)])


def observations(data: Episodes) -> Observations:
    """Number the observations; equal images get the same number."""
    times = torch.arange(int(data.lengths.max()), device=data.lengths.device)
    inside = times < data.lengths[:, None]
    where = Moments(*inside.nonzero(as_tuple=True))
    known: dict[bytes, int] = {}
    numbers: list[int] = []
    firsts: list[int] = []
    for part in zip(*(x.split(IMAGES_AT_ONCE) for x in where), strict=True):
        for row in data.images(*part).flatten(1).cpu().numpy():
            key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
            if key not in known:
                firsts.append(len(numbers))
            numbers.append(known.setdefault(key, len(known)))
    flat = torch.tensor(numbers, device=times.device)
    number = torch.zeros_like(inside, dtype=torch.long).masked_scatter(inside, flat)
    return Observations(number, inside, Moments(*(x[firsts] for x in where)))


def padded_actions(data: Episodes) -> Shaped[Tensor, "E T ..."]:
    """The actions of each roll-out, padded with its last one."""
    count, most = len(data.lengths), int(data.lengths.max()) - 1
    times = torch.arange(most, device=data.lengths.device)
    time = times.expand(count, -1).minimum(data.lengths[:, None] - 2)
    episode = torch.arange(count, device=times.device).repeat_interleave(most)
    actions: Tensor = data.actions(episode, time.flatten())
    return actions.view(count, most, *actions.shape[1:])


def horizons(longest: int) -> list[int]:
    """Numbers of steps that are reported: those of C-SWM, and the longest there is."""
    return sorted({longest, *(step for step in HORIZONS if step <= longest)})


def summary(steps: PredictedSteps) -> dict[str, Any]:
    """The shares of right predictions by number of steps, as test metrics.

    For each number of steps h, and for all steps as `all`: `predicted_<h>` with the ends of its
    interval `_low_`, `_high_`; `copied_<h>`, the share of the copy-input baseline; `gain_low_<h>`
    and `gain_high_<h>`, the interval of the difference to it; and `predicted_rollouts_<h>`.
    """
    inside = steps.inside
    rows = {str(h): [h - 1] for h in horizons(inside.shape[1])}
    metrics: dict[str, Any] = {}
    for name, columns in {**rows, "all": list(range(inside.shape[1]))}.items():
        metrics |= {f"{key}_{name}": value for key, value in _shares(steps, columns).items()}
    seen = steps.observations
    return {
        **metrics,
        "chance": 1 / seen.distinct,
        "distinct_observations": seen.distinct,
        "predicted_steps": int(inside.sum()),
    }


def _shares(steps: PredictedSteps, columns: Sequence[int]) -> dict[str, Any]:
    """The shares at some numbers of steps, and their intervals over roll-outs."""
    inside, credit, copied = (
        x[:, list(columns)].double().cpu().numpy()
        for x in (steps.inside, steps.credit, steps.copied)
    )
    count = inside.sum(1)
    hits, copies = ((x * inside).sum(1)[count > 0] for x in (credit, copied))
    count = count[count > 0]
    share = mean_interval(hits, count)
    gain = mean_interval(hits - copies, count, limits=(-1.0, 1.0))
    return {
        "predicted": float(hits.sum() / count.sum()),
        "predicted_low": share.low,
        "predicted_high": share.high,
        "copied": float(copies.sum() / count.sum()),
        "gain_low": gain.low,
        "gain_high": gain.high,
        "predicted_rollouts": len(np.atleast_1d(count)),
    }
