"""Whether a step was predicted: is the true state the nearest of all distinct states?

Equal observations are one candidate, so a state that occurs twice does not compete with itself; and
the candidates include the input and the states just before and after, so appearance alone does not
help. If k distinct states are equally near, a right prediction counts 1/k, which is what drawing
one of them gives: an encoder that maps all observations to one point is at chance level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.metrics.ranking import coordinates, distances

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@torch.no_grad()
def predicted_among(
    predicted: Float[Tensor, "n ..."],
    states: Float[Tensor, "C ..."],
    right: Int[Tensor, "n"],
    *,
    chunk: int = 2**18,
) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"]]:
    """For each prediction 1, 1/k or 0 (see above), and the index of the nearest state.

    The nearest is the right one where that is among several; otherwise the first of them.

    Args:
        predicted: slots (n, M, D), or any other shape after n.
        states: encodings of the C distinct states, in the same shape.
        right: index of the true state of each prediction.
        chunk: number of distances held at a time.
    """
    if predicted.shape[1:] != states.shape[1:]:
        raise ValueError(
            f"states: got shape {tuple(states.shape)}, expected (C, ...) as predicted, "
            f"{tuple(predicted.shape)}"
        )
    if right.shape != predicted.shape[:1] or not 0 <= int(right.min()) <= right.max() < len(states):
        raise ValueError(
            f"right: got {tuple(right.shape)} numbers, expected {len(predicted)} from 0 to "
            f"{len(states) - 1}"
        )
    rows, columns = coordinates("predicted", predicted), coordinates("states", states)
    step = max(1, chunk // len(states))
    credit, nearest = [], []
    for some, own in zip(rows.split(step, 1), right.split(step), strict=True):
        apart = distances(some[..., None], columns[:, None])
        least, first = apart.min(-1)
        tied = (apart == least[:, None]).sum(-1)
        hit = apart.gather(1, own[:, None]).squeeze(1) == least
        credit.append(hit / tied)
        nearest.append(torch.where(hit, own, first))
    return torch.cat(credit), torch.cat(nearest)
