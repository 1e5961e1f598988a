"""Pictures of a world model's roll-outs, though it has no decoder.

A prediction is drawn as the image whose encoding is nearest to it, out of a pool of images: some of
the training set, and the true images of the episodes shown, without which no prediction could be
right. It is wrong if that image differs from the true one. For any model with `encode` and
`rollout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nps.inspect import style
from nps.metrics.ranking import nearest

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, UInt8

IMAGES_AT_ONCE = 1_000


class PredictedImages(NamedTuple):
    """T steps of E episodes; the first image is given."""

    true: UInt8[Tensor, "E T+1 H W C"]
    predicted: UInt8[Tensor, "E T H W C"]
    """The image with the nearest encoding to each prediction."""
    right: Bool[Tensor, "E T"]


@torch.no_grad()
def predict_images(
    model: Any,
    images: UInt8[Tensor, "E T+1 H W C"],
    actions: Int[Tensor, "E T"] | Float[Tensor, "E T A"],
    pool: UInt8[Tensor, "P H W C"],
) -> PredictedImages:
    """Roll out from the first image of each episode, and find the image of each prediction."""
    pool = torch.cat([pool, images.flatten(0, 1)])
    rolled = model.rollout(model.encode(images[:, 0]), actions)
    index = nearest(rolled.flatten(0, 1), encoded(model, pool)).view(actions.shape[:2])
    predicted = pool[index]
    right = (predicted == images[:, 1:]).flatten(2).all(-1)
    return PredictedImages(images, predicted, right)


def encoded(model: Any, images: UInt8[Tensor, "P H W C"]) -> Float[Tensor, "P M D"]:
    return torch.cat([model.encode(part) for part in images.split(IMAGES_AT_ONCE)])


def gallery(rollouts: PredictedImages, names: Sequence[str]) -> bytes:
    """A PNG: for each episode its true images above the predicted ones, wrong ones framed in red.

    Args:
        rollouts: what `predict_images` returned.
        names: of the episodes.
    """
    episodes, steps = rollouts.right.shape
    cell = (style.WIDTH - 1.0) / (steps + 1)
    with style.settings():
        figure = style.new_figure(2.1 * cell * episodes + 0.4)
        axes = figure.subplots(2 * episodes, steps + 1, squeeze=False)
        true, predicted = (rgb(x) for x in (rollouts.true, rollouts.predicted))
        for axis in axes.flat:
            style.image_axes(axis)
        for e, name in enumerate(names):
            above, below = axes[2 * e], axes[2 * e + 1]
            for t in range(steps + 1):
                above[t].imshow(true[e, t])
                if t:
                    below[t].imshow(predicted[e, t - 1])
                    draw_frame(below[t], bool(rollouts.right[e, t - 1]))
                else:
                    below[t].set_frame_on(False)
            above[0].set_ylabel(f"{name}\ntrue", rotation=0, ha="right", va="center")
            below[0].set_ylabel("predicted", rotation=0, ha="right", va="center")
        for t, axis in enumerate(axes[0]):
            axis.set_title("given" if t == 0 else str(t))
        return style.png(figure)


def draw_frame(axis: Any, right: bool) -> None:
    """Thin and black around a right image, thick and red around a wrong one."""
    for side in axis.spines.values():
        side.set(color="black" if right else "red", linewidth=0.5 if right else 3.0)


def rgb(images: UInt8[Tensor, "*batch H W C"]) -> Any:
    """The first three channels; of a stack of frames that is the newest one."""
    shown = (
        images[..., :3] if images.shape[-1] >= 3 else images[..., :1].expand(*images.shape[:-1], 3)
    )
    return shown.cpu().numpy()
