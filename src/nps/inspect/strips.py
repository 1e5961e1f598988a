"""Roll-outs as strips of images with what happened below each step, and what each slot looks at.

All images share one axis in inches: matplotlib takes ten seconds to lay out a hundred axes, but
one second to draw a hundred images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nps.inspect import style

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Shaped, UInt8
    from numpy import ndarray

MARGIN, GAP = 0.85, 0.04
"""Inches for the names of the rows, and between images."""
TEXT, SMALL = 8.0, 6.5
"""Font size of names, and of the notes below an image."""
LINE = 0.115
"""Height of a line of notes in inches."""
LARGEST, LEAST_COLUMNS = 1.1, 6
"""Largest width of an image in inches; few images stay small."""


@dataclass(frozen=True)
class Strip:
    """One roll-out of T steps."""

    name: str
    true: UInt8[ndarray, "T+1 H W 3"]
    predicted: UInt8[ndarray, "T H W 3"]
    """The nearest known observation."""
    decoded: UInt8[ndarray, "T+1 H W 3"]
    """A read-out of the slots."""
    right: Bool[ndarray, "T"]
    notes: Sequence[str]
    """Text below each step, of one or several lines."""


class Page:
    """A figure with images and text at given positions, in inches from the top left."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = style.new_figure(height, width)
        self.figure.set_layout_engine("none")
        self.axis: Any = self.figure.add_axes((0, 0, 1, 1))
        self.axis.set_axis_off()
        self.width, self.height = width, height

    def image(
        self,
        picture: Shaped[ndarray, "H W *C"],
        x: float,
        y: float,
        width: float,
        height: float,
        **how: Any,
    ) -> None:
        """An image with a thin frame."""
        place = (x, x + width, y + height, y)
        self.axis.imshow(picture, extent=place, aspect="auto", interpolation="nearest", **how)
        self.frame(x, y, width, height)

    def frame(
        self, x: float, y: float, width: float, height: float, *, wrong: bool = False
    ) -> None:
        from matplotlib.patches import Rectangle

        how = {"edgecolor": "red", "linewidth": 2.5} if wrong else {"edgecolor": "black"}
        self.axis.add_patch(
            Rectangle((x, y), width, height, fill=False, **{"linewidth": 0.5} | how)
        )

    def text(self, words: str, x: float, y: float, size: float = TEXT, **how: Any) -> None:
        self.axis.text(x, y, words, fontsize=size, **{"ha": "center", "va": "top"} | how)

    def png(self) -> bytes:
        self.axis.set(xlim=(0, self.width), ylim=(self.height, 0))
        return style.png(self.figure)


def strips(rollouts: Sequence[Strip]) -> bytes:
    """A PNG: for each roll-out its true images, the predictions (wrong ones framed in red) with
    the notes of each step, and the read-outs."""
    columns = max(len(strip.true) for strip in rollouts)
    height, width = rollouts[0].true.shape[1:3]
    cell = (style.WIDTH - MARGIN) / max(columns, LEAST_COLUMNS)
    side = cell - GAP
    tall = side * height / width
    lines = max(note.count("\n") + 1 for strip in rollouts for note in strip.notes)
    notes = lines * LINE + 2 * GAP
    block = 3 * tall + 2 * GAP + notes
    top, space = 0.2, 0.15
    with style.settings():
        page = Page(MARGIN + cell * columns, top + len(rollouts) * (block + space))
        for t in range(columns):
            page.text("given" if t == 0 else str(t), MARGIN + t * cell + side / 2, 0.03)
        for n, strip in enumerate(rollouts):
            true = top + n * (block + space)
            predicted, decoded = true + tall + GAP, true + 2 * tall + GAP + notes
            names = {f"{strip.name}\ntrue": true, "predicted": predicted, "read-out": decoded}
            for name, y in names.items():
                page.text(name, MARGIN - 2 * GAP, y + tall / 2, ha="right", va="center")
            for t, image in enumerate(strip.true):
                x = MARGIN + t * cell
                page.image(image, x, true, side, tall)
                page.image(strip.decoded[t], x, decoded, side, tall)
                if t:
                    page.image(strip.predicted[t - 1], x, predicted, side, tall)
                    page.text(strip.notes[t - 1], x + side / 2, predicted + tall + GAP, SMALL)
                    if not strip.right[t - 1]:
                        page.frame(x, predicted, side, tall, wrong=True)
        return page.png()


def slot_maps(images: UInt8[ndarray, "E H W 3"], maps: Float[ndarray, "E M h w"]) -> bytes:
    """A PNG: a row for each image, and beside it the map of each slot.

    A map is black at the slot's least and white at its largest value over all these images; both
    are written above it.
    """
    count, slots = maps.shape[:2]
    height, width = images.shape[1:3]
    cell = min(LARGEST, style.WIDTH / (slots + 1))
    side, top = cell - GAP, 0.35
    tall = side * height / width
    lows, highs = maps.min((0, 2, 3)), maps.max((0, 2, 3))
    with style.settings():
        page = Page(cell * (slots + 1) + GAP, top + count * (tall + GAP))
        page.text("image", GAP + side / 2, top - GAP, va="bottom")
        for m in range(slots):
            title = f"slot {m}\n{lows[m]:.2f} to {highs[m]:.2f}"
            page.text(title, GAP + (m + 1) * cell + side / 2, top - GAP, SMALL, va="bottom")
        for e in range(count):
            y = top + e * (tall + GAP)
            page.image(images[e], GAP, y, side, tall)
            for m in range(slots):
                limits = {"vmin": lows[m], "vmax": max(highs[m], lows[m] + 1e-6)}
                x = GAP + (m + 1) * cell
                page.image(maps[e, m], x, y, side, tall, cmap="gray", **limits)
        return page.png()
