"""Moving pictures as GIF files. Pillow comes with matplotlib, so the extra `plots` is enough."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

SCALE = 3
"""Screen pixels for each pixel of a world."""
GAP = 8
BAR = 24
"""Height of the line of text below the images."""
RIGHT, WRONG = (255, 255, 255), (255, 60, 60)


class Arrow(NamedTuple):
    """From one place of an image to another, as (row, column) in pixels of the world."""

    begin: tuple[float, float]
    end: tuple[float, float]
    right: bool = True


class Scene(NamedTuple):
    """What is shown at one moment: some images side by side, and a line of text."""

    images: Sequence[UInt8[ndarray, "H W 3"]]
    arrows: Sequence[Arrow | None]
    text: str
    milliseconds: int


def gif(scenes: Sequence[Scene]) -> bytes:
    """An endless animation of the scenes."""
    frames = [_frame(scene) for scene in scenes]
    buffer = io.BytesIO()
    frames[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=[scene.milliseconds for scene in scenes],
        loop=0,
        disposal=1,
    )
    return buffer.getvalue()


def _frame(scene: Scene) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    height, width = (SCALE * size for size in scene.images[0].shape[:2])
    count = len(scene.images)
    frame = Image.new("RGB", (count * width + (count - 1) * GAP, height + BAR), "white")
    draw = ImageDraw.Draw(frame)
    for n, (image, arrow) in enumerate(zip(scene.images, scene.arrows, strict=True)):
        left = n * (width + GAP)
        shown = Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST)
        frame.paste(shown, (left, 0))
        if arrow is not None:
            _draw_arrow(draw, arrow, left)
    draw.text((0, height + 5), scene.text, fill="black", font=ImageFont.load_default(14))
    return frame


def _draw_arrow(draw: Any, arrow: Arrow, left: int) -> None:
    """Draw an arrow between the centres of two pixels."""
    (y, x), (down, across) = (
        (SCALE * (row + 0.5), left + SCALE * (column + 0.5))
        for row, column in (arrow.begin, arrow.end)
    )
    length = max(1e-9, ((across - x) ** 2 + (down - y) ** 2) ** 0.5)
    along = ((across - x) / length, (down - y) / length)
    colour = RIGHT if arrow.right else WRONG
    neck = (across - 8 * along[0], down - 8 * along[1])
    draw.line((x, y, *neck), fill=colour, width=4)
    side = (-6 * along[1], 6 * along[0])
    wings = [(neck[0] + side[0], neck[1] + side[1]), (neck[0] - side[0], neck[1] - side[1])]
    draw.polygon([(across, down), *wings], fill=colour)
