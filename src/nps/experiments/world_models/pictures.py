"""Roll-outs as images: of the test set for `nps inspect`, of the validation set while training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from nps.experiments.world_models.episodes import Episodes, transitions
from nps.inspect.grids import WHITE, grid, to_bytes
from nps.inspect.rollouts import PredictedImages, rgb

if TYPE_CHECKING:
    from jaxtyping import Shaped, UInt8
    from numpy import ndarray

SPACE = 6
"""Pixels between two episodes."""


def first_images(
    data: Episodes, episodes: int, length: int
) -> Shaped[Tensor, "episodes length+1 H W C"]:
    """The images of the first steps of the first episodes."""
    times = torch.arange(length + 1, device=data.lengths.device)
    episode = torch.arange(episodes, device=times.device).repeat_interleave(len(times))
    images: Tensor = data.images(episode, times.repeat(episodes))
    return images.view(episodes, len(times), *images.shape[1:])


def image_pool(train: Episodes, most: int) -> Shaped[Tensor, "P H W C"]:
    """Evenly spaced training images, at most so many, that can stand for a prediction."""
    starts = transitions(train)
    some = slice(None, None, -(-len(starts.time) // most))
    return train.images(starts.episode[some], starts.time[some])


def rollout_picture(rollouts: PredictedImages) -> UInt8[ndarray, "height width 3"]:
    """Each episode's true images above the predicted ones, wrong ones framed in red.

    `nps.inspect.rollouts.gallery` draws the same with labels, and needs matplotlib.
    """
    true, predicted = (to_bytes(rgb(x)) for x in (rollouts.true, rollouts.predicted))
    wrong = ~rollouts.right.cpu().numpy()
    given = np.full_like(true[:, :1], WHITE)  # the first image is given, not predicted
    below = np.concatenate([given, predicted], 1)
    framed = np.pad(wrong, ((0, 0), (1, 0)))
    pairs = [
        grid(np.stack([true[e], below[e]]), np.stack([np.zeros_like(framed[e]), framed[e]]))
        for e in range(len(true))
    ]
    space = ((0, SPACE), (0, 0), (0, 0))
    return np.concatenate([np.pad(pair, space, constant_values=WHITE) for pair in pairs])
