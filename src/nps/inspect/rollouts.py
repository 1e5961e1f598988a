"""Pictures of what a world model foresees, though it has no decoder.

A prediction is shown as the image whose encoding is nearest to it, out of a pool of images: states
of the training set, and the true states of the shown episodes, without which none could be right.
A frame is wrong where that image is another one than what came. For any model with `encode` and
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


class Foreseen(NamedTuple):
    """T steps of E episodes; the first state is given."""

    true: UInt8[Tensor, "E T+1 H W C"]
    found: UInt8[Tensor, "E T H W C"]
    """The nearest image to each prediction."""
    right: Bool[Tensor, "E T"]


@torch.no_grad()
def foresee(
    model: Any,
    images: UInt8[Tensor, "E T+1 H W C"],
    actions: Int[Tensor, "E T"] | Float[Tensor, "E T A"],
    pool: UInt8[Tensor, "P H W C"],
) -> Foreseen:
    """Act without looking from the first image of each episode, and find what that looks like."""
    pool = torch.cat([pool, images.flatten(0, 1)])
    rolled = model.rollout(model.encode(images[:, 0]), actions)
    index = nearest(rolled.flatten(0, 1), encoded(model, pool)).view(actions.shape[:2])
    found = pool[index]
    right = (found == images[:, 1:]).flatten(2).all(-1)
    return Foreseen(images, found, right)


def encoded(model: Any, images: UInt8[Tensor, "P H W C"]) -> Float[Tensor, "P M D"]:
    return torch.cat([model.encode(part) for part in images.split(IMAGES_AT_ONCE)])


def gallery(foreseen: Foreseen, names: Sequence[str]) -> bytes:
    """What came above what was foreseen, an episode after the other; wrong frames are framed red.

    Args:
        foreseen: what `foresee` found.
        names: of the episodes.
    """
    episodes, steps = foreseen.right.shape
    cell = (style.WIDTH - 1.0) / (steps + 1)
    with style.settings():
        figure = style.new_figure(2.1 * cell * episodes + 0.4)
        axes = figure.subplots(2 * episodes, steps + 1, squeeze=False)
        true, found = (rgb(x) for x in (foreseen.true, foreseen.found))
        for axis in axes.flat:
            style.image_axes(axis)
        for e, name in enumerate(names):
            above, below = axes[2 * e], axes[2 * e + 1]
            for t in range(steps + 1):
                above[t].imshow(true[e, t])
                if t:
                    below[t].imshow(found[e, t - 1])
                    mark(below[t], bool(foreseen.right[e, t - 1]))
                else:
                    below[t].set_frame_on(False)
            above[0].set_ylabel(f"{name}\ntrue", rotation=0, ha="right", va="center")
            below[0].set_ylabel("predicted", rotation=0, ha="right", va="center")
        for t, axis in enumerate(axes[0]):
            axis.set_title("given" if t == 0 else str(t))
        return style.png(figure)


def mark(axis: Any, right: bool) -> None:
    """A red frame where it is wrong."""
    for side in axis.spines.values():
        side.set(color="black" if right else "red", linewidth=0.5 if right else 3.0)


def rgb(images: UInt8[Tensor, "*batch H W C"]) -> Any:
    """The first three channels; of a stack of frames the newest one."""
    shown = (
        images[..., :3] if images.shape[-1] >= 3 else images[..., :1].expand(*images.shape[:-1], 3)
    )
    return shown.cpu().numpy()
