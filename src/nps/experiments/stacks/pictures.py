"""Falls as pictures: where shapes went, and where they were predicted to go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from nps.inspect import style
from nps.inspect.animations import Arrow, Scene, gif
from nps.models.rpin import Prediction
from nps.worlds.stacks import BOX, PALETTE, Episodes, centres, render

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from numpy import ndarray

PIXELS = 96
"""Side of the pictures of a film."""
MILLISECONDS = 250
EDGE = 1
"""Width of a box's edge in pixels."""


def tracks_figure(
    images: UInt8[ndarray, "B H W 3"],
    episodes: Episodes,
    predicted: Float[Tensor, "B T M 2"],
) -> bytes:
    """The first pictures, with the ways of the shapes: true ones in white, predicted ones in the
    colours of the shapes."""
    frames, side = predicted.shape[1], images.shape[1]
    true = side * centres(episodes.position[:, : frames + 1]).cpu().numpy()
    ours = side * predicted.cpu().numpy()
    with style.settings():
        figure = style.new_figure(2.2, 2.1 * len(images))
        axes = np.atleast_1d(figure.subplots(1, len(images)))
        for b, axis in enumerate(axes):
            axis.imshow(images[b])
            for m in range(true.shape[2]):
                colour = np.array(PALETTE[int(episodes.colour[b, m])]) / 255
                axis.plot(*true[b, :, m].T, color="white", linewidth=2.5)
                way = np.concatenate([true[b, :1, m], ours[b, :, m]])
                axis.plot(*way.T, color=colour, linewidth=1.2, marker=".", markersize=3)
            axis.set_xlim(0, side)
            axis.set_ylim(side, 0)
            style.image_axes(axis)
        return style.png(figure)


def fall_gif(episodes: Episodes, predicted: Prediction, near: int) -> bytes:
    """The first tower as a moving picture: what happened, and the predicted boxes; with an arrow
    from the context to the shape that moves most, if rules say so.

    Args:
        episodes: towers, of which the first is shown.
        predicted: of the same towers.
        near: frames that training predicts.
    """
    one = episodes.at(slice(1))
    boxes = predicted.boxes[0, :, :, :2].cpu()
    start = centres(one.position[0, 0]).cpu()
    scenes = []
    for t in range(len(boxes)):
        picture = render(one.shapes(t + 1), one.colour, pixels=PIXELS)[0].cpu().numpy()
        marked = picture.copy()
        for m, middle in enumerate(boxes[t].tolist()):
            frame_box(marked, middle, PALETTE[int(one.colour[0, m])])
        before = start if t == 0 else boxes[t - 1]
        arrow, says = rule_arrow(predicted, t, before, boxes[t])
        text = f"frame {t + 1}{', further than in training' if t >= near else ''}{says}"
        titles = ("true", "predicted boxes")
        scenes.append(Scene([picture, marked], [None, arrow], text, MILLISECONDS, titles))
    return gif(scenes)


def rule_arrow(
    predicted: Prediction, t: int, before: Float[Tensor, "M 2"], now: Float[Tensor, "M 2"]
) -> tuple[Arrow | None, str]:
    """From the context to the shape that moves most, and a word about the rule."""
    if predicted.trace is None:
        return None, ""
    shape = int((now - before).norm(dim=-1).argmax())
    rules, contexts = (x[0, t, :, shape].tolist() for x in predicted.trace[:2])
    fired = [(rule, context) for rule, context in zip(rules, contexts, strict=True) if rule >= 0]
    if not fired:
        return None, ": no rule fires on it"
    rule, context = fired[-1]
    if context in (-1, shape):
        return None, f": rule {rule}"
    begin, end = (tuple((PIXELS * before[m].flip(0)).tolist()) for m in (context, shape))
    return Arrow(begin, end), f": rule {rule}"


def frame_box(
    picture: UInt8[ndarray, "H W 3"], middle: list[float], colour: tuple[int, int, int]
) -> None:
    """Draw the edges of a box into a picture; what lies outside of it is cut off."""
    side = len(picture)
    (left, top), (right, bottom) = (
        [int(np.clip(side * (x + sign * BOX / 2), 0, side - EDGE)) for x in middle]
        for sign in (-1, 1)
    )
    for row in (top, bottom):
        picture[row : row + EDGE, left : right + EDGE] = colour
    for column in (left, right):
        picture[top : bottom + EDGE, column : column + EDGE] = colour
