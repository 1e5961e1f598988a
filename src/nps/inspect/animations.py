"""Moving pictures as GIF files. Pillow comes with matplotlib, so the extra `plots` is enough."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

SCALE = 3
"""Screen pixels for each pixel of a world, by default."""
GAP = 8
BAR = 24
"""Height of a line of text above or below the images."""
FONT_SIZE = 14
RING = 3
"""Width of the line of a ring."""
RIGHT, WRONG, FAINT = (255, 255, 255), (255, 60, 60), (140, 140, 140)


class Arrow(NamedTuple):
    """From one place of an image to another, as (row, column) in pixels of the world."""

    begin: tuple[float, float]
    end: tuple[float, float]
    right: bool = True
    faint: bool = False
    """Thin and grey: of little weight."""


class Ring(NamedTuple):
    """A circle around a place, in pixels of the world."""

    centre: tuple[float, float]
    """(row, column)"""
    radius: float


class Scene(NamedTuple):
    """What is shown at one moment: some images side by side, and a line of text below them."""

    images: Sequence[UInt8[ndarray, "H W 3"]]
    arrows: Sequence[Arrow | None]
    text: str
    milliseconds: int
    titles: Sequence[str] = ()
    """A word above each image; none: no line above them."""
    labels: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Text to write into the last image, and where: (row, column) in pixels of the world."""
    rings: Sequence[Ring] = ()
    """Drawn into the first image."""


def gif(scenes: Sequence[Scene], scale: int = SCALE) -> bytes:
    """An endless animation of the scenes.

    Args:
        scenes: what is shown, one after another; all of the same size.
        scale: screen pixels for each pixel of an image.
    """
    frames = [_frame(scene, scale) for scene in scenes]
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


def _frame(scene: Scene, scale: int) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    height, width = (scale * size for size in scene.images[0].shape[:2])
    count, top = len(scene.images), BAR if scene.titles else 0
    frame = Image.new("RGB", (count * width + (count - 1) * GAP, top + height + BAR), "white")
    draw, font = ImageDraw.Draw(frame), ImageFont.load_default(FONT_SIZE)
    for n, (image, arrow) in enumerate(zip(scene.images, scene.arrows, strict=True)):
        corner = (n * (width + GAP), top)
        shown = Image.fromarray(image).resize((width, height), Image.Resampling.NEAREST)
        frame.paste(shown, corner)
        if scene.titles:
            draw.text((corner[0], 3), scene.titles[n], fill="black", font=font)
        if arrow is not None:
            _draw_arrow(draw, arrow, corner, scale)
    for ring in scene.rings:
        (x, y), far = _on_screen(ring.centre, (0, top), scale), scale * ring.radius
        draw.ellipse((x - far, y - far, x + far, y + far), outline=RIGHT, width=RING)
    for text, place in scene.labels.items():
        at = _on_screen(place, corner, scale)
        draw.text(at, text, "white", font, "mm", stroke_width=2, stroke_fill="black")
    draw.text((0, top + height + 5), scene.text, fill="black", font=font)
    return frame


def _on_screen(
    place: tuple[float, float], corner: tuple[int, int], scale: int
) -> tuple[float, float]:
    """x and y of the centre of a pixel, given as (row, column), of the image at a corner."""
    row, column = place
    return corner[0] + scale * (column + 0.5), corner[1] + scale * (row + 0.5)


def _draw_arrow(draw: Any, arrow: Arrow, corner: tuple[int, int], scale: int) -> None:
    """Draw an arrow between the centres of two pixels."""
    (x, y), (across, down) = (
        _on_screen(place, corner, scale) for place in (arrow.begin, arrow.end)
    )
    length = max(1e-9, ((across - x) ** 2 + (down - y) ** 2) ** 0.5)
    along = ((across - x) / length, (down - y) / length)
    colour = FAINT if arrow.faint else RIGHT if arrow.right else WRONG
    neck = (across - 8 * along[0], down - 8 * along[1])
    draw.line((x, y, *neck), fill=colour, width=1 if arrow.faint else 4)
    side = (-6 * along[1], 6 * along[0])
    wings = [(neck[0] + side[0], neck[1] + side[1]), (neck[0] - side[0], neck[1] - side[1])]
    draw.polygon([(across, down), *wings], fill=colour)
