"""A film of a playback: true and predicted frames, where slots are, what fired, and the error.

Below the frames is the raster of all firings with a cursor. GIF, WebP and APNG are written by
Pillow; MP4 by ffmpeg, from the system or from the package imageio-ffmpeg; HTML has a slider.
"""

from __future__ import annotations

import base64
import importlib
import io
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from nps.errors import RunFailed, UserError, extra
from nps.files import os_errors_in_one_line, replace_file
from nps.inspect.film_pages import film_page, framed
from nps.inspect.playback import Playback
from nps.inspect.raster import NOTHING, colour

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

Format = Literal["gif", "webp", "apng", "mp4", "html"]
SIDE = 224
"""Pixels of the longer side of a frame, about; frames are enlarged by whole factors."""
GAP, LINE, FONT_SIZE = 8, 18, 12
ROW = 8
"""Pixels of a slot's row in the raster."""
NARROWEST = 320
MOST_FRAMES = 2_000
MEDIA = {
    "gif": "image/gif",
    "webp": "image/webp",
    "apng": "image/png",
    "mp4": "video/mp4",
    "html": "text/html",
}
SECONDS = 120
"""That ffmpeg may take."""


@dataclass(frozen=True, eq=False)
class Animation:
    """A film, which a notebook shows."""

    data: bytes
    format: Format

    def save(self, path: Path | str) -> Path:
        """Write it into a file."""
        path = Path(path)
        with os_errors_in_one_line(f"cannot write {path}"):
            replace_file(path, self.data)
        return path

    def __repr__(self) -> str:
        return f"<{self.format} of {len(self.data):,} bytes>"

    def _repr_html_(self) -> str:
        if self.format == "html":
            return framed(self.data)
        source = f"data:{MEDIA[self.format]};base64,{base64.b64encode(self.data).decode()}"
        if self.format == "mp4":
            return f'<video controls loop src="{source}"></video>'
        return f'<img alt="true and predicted frames" src="{source}">'


def animate(
    playback: Playback,
    path: Path | str | None = None,
    format: Format | None = None,
    *,
    fps: float = 4.0,
    rule_names: Sequence[str] = (),
) -> Animation:
    """A film of a playback.

    ::

        nps.inspect.animate(run.workbench.play(0), "episode.gif")

    Args:
        playback: of an episode.
        path: file to write; its ending gives the format.
        format: "gif", "webp", "apng", "mp4", or "html" for a page with a slider; default: the
            file's ending, or "gif".
        fps: frames a second.
        rule_names: for the line below the frames.
    """
    chosen = _format(path, format)
    if not 0.1 <= fps <= 60:
        raise UserError(f"fps: got {fps}, expected 0.1 to 60")
    if len(playback.true) > MOST_FRAMES:
        raise UserError(f"animate: got {len(playback.true)} frames, expected at most {MOST_FRAMES}")
    if why := missing(chosen):
        raise UserError(why)
    frames = _Painter(playback, rule_names).frames()
    animation = Animation(_encoded(frames, chosen, fps), chosen)
    if path is not None:
        animation.save(path)
    return animation


def missing(format: Format) -> str | None:
    """What has to be installed before films of a format can be made; None if all is there."""
    if find_spec("PIL") is None:
        return f"films need Pillow: {extra('viewer')}"
    if format == "mp4" and _ffmpeg() is None:
        return "mp4 needs ffmpeg: install it, or pip install imageio-ffmpeg"
    return None


def _format(path: Path | str | None, given: str | None) -> Format:
    ending = "gif" if path is None else Path(path).suffix.removeprefix(".").lower()
    found = given or {"png": "apng"}.get(ending, ending)
    for known in get_args(Format):
        if found == known:
            return known  # type: ignore[no-any-return]
    raise UserError(f"format: got {found!r}, expected one of {', '.join(get_args(Format))}")


# -- painting ---------------------------------------------------------------------------------


class _Painter:
    """Draws the frames of a film, one after another."""

    def __init__(self, playback: Playback, rule_names: Sequence[str]) -> None:
        from PIL import ImageFont

        self.playback = playback
        height, width = playback.true.shape[1:3]
        self.scale = max(1, round(SIDE / max(height, width)))
        self.height, self.width = height * self.scale, width * self.scale
        self.sides = 1 if playback.predicted is None else 2
        self.total = self.sides * self.width + (self.sides - 1) * GAP
        self.font = ImageFont.load_default(FONT_SIZE)
        rules = 0 if playback.record is None else playback.record.sizes[3]
        self.names = list(rule_names) or [f"rule {i}" for i in range(rules)]
        self.raster = None if playback.record is None else self._raster()

    def frames(self) -> Iterator[Any]:
        for t in range(len(self.playback.true)):
            yield self._frame(t)

    def _frame(self, t: int) -> Any:
        from PIL import Image, ImageDraw

        play = self.playback
        strip = 0 if self.raster is None else self.raster.height + 4
        size = (_even(max(self.total, NARROWEST)), _even(LINE + self.height + 2 * LINE + strip))
        frame = Image.new("RGB", size, "white")
        draw = ImageDraw.Draw(frame)
        panels = [("true", self._enlarged(play.true[t]))]
        if play.predicted is not None:
            panels.append(("predicted" if t else "given", self._enlarged(play.predicted[t])))
        if play.places is not None:
            self._mark(ImageDraw.Draw(panels[-1][1]), t)
        if play.right is not None and not play.right[t]:
            box = (0, 0, self.width - 1, self.height - 1)
            ImageDraw.Draw(panels[-1][1]).rectangle(box, outline=(200, 30, 30), width=2)
        for n, (title, panel) in enumerate(panels):
            left = n * (self.width + GAP)
            draw.text((left, 2), title, "black", self.font)
            frame.paste(panel, (left, LINE))
        below = LINE + self.height + 2
        for line in self._told(t):
            draw.text((0, below), line, "black", self.font)
            below += LINE - 1
        if self.raster is not None:
            at = (0, size[1] - self.raster.height - 2)
            frame.paste(self.raster, at)
            self._cursor(draw, t, at[1])
        return frame

    def _enlarged(self, image: UInt8[ndarray, "H W 3"]) -> Any:
        from PIL import Image

        nearest = Image.Resampling.NEAREST
        return Image.fromarray(image).resize((self.width, self.height), nearest)

    def _mark(self, draw: Any, t: int) -> None:
        """A dot for each slot, in the colour of the rule that brought it here, and its context."""
        play = self.playback
        assert play.places is not None
        places = [(c * self.width, r * self.height) for r, c in play.places[t]]
        seen = [slot for slot, place in enumerate(places) if np.isfinite(place).all()]
        fired = {slot: self._fired(t, slot) for slot in seen}
        for slot, (rule, context) in fired.items():
            if context != slot and context in fired:
                line = (*places[context], *places[slot])
                draw.line(line, fill="white", width=3)
                draw.line(line, fill=colour(rule), width=1)
        for slot, (rule, _) in fired.items():
            x, y = places[slot]
            draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=colour(rule), outline="white", width=1)

    def _fired(self, t: int, slot: int) -> tuple[int, int]:
        """Rule and context of the last stage that changed a slot on its way to a frame."""
        record = self.playback.record
        if record is None or t == 0:
            return -1, -1
        stages = np.flatnonzero(record.rule[t - 1, :, slot] >= 0)
        if not len(stages):
            return -1, -1
        at = t - 1, stages[-1], slot
        return int(record.rule[at]), int(record.context[at])

    def _told(self, t: int) -> list[str]:
        """Two lines: frame, error and event; what fired."""
        play = self.playback
        parts = [f"frame {t} of {play.steps}"]
        if np.isfinite(play.error[t]):
            parts.append(f"{play.error_name} {play.error[t]:.3g}")
        if t and play.events and play.events[t - 1]:
            parts.append(play.events[t - 1])
        if t == 0 or play.record is None:
            return [" · ".join(parts)]
        fired = [
            f"{self.names[rule]} on {play.slot_names[slot]}"
            for stage in play.record.rule[t - 1]
            for slot, rule in enumerate(stage)
            if rule >= 0
        ]
        said = ", ".join(fired[:3]) + (f" and {len(fired) - 3} more" if fired[3:] else "")
        return [" · ".join(parts), said or "nothing fired"]

    def _raster(self) -> Any:
        from PIL import Image, ImageColor

        assert self.playback.record is not None
        steps, stages, slots, rules = self.playback.record.sizes
        palette = [ImageColor.getrgb(colour(i)) for i in range(rules)]
        table = np.array([*palette, ImageColor.getrgb(NOTHING)], np.uint8)
        cells = table[self.playback.record.rule.reshape(steps * stages, slots).T]
        size = (max(self.total, NARROWEST), slots * ROW)
        return Image.fromarray(cells).resize(size, Image.Resampling.NEAREST)

    def _cursor(self, draw: Any, t: int, top: int) -> None:
        assert self.raster is not None
        if t == 0:
            return
        width, steps = self.raster.width, self.playback.steps
        begin, end = (t - 1) * width / steps, t * width / steps
        box = (begin, top, max(begin + 2, end) - 1, top + self.raster.height - 1)
        draw.rectangle(box, outline="black", width=1)


def _even(size: int) -> int:
    """Sides that video codecs take."""
    return size + size % 2


# -- files ------------------------------------------------------------------------------------


def _encoded(frames: Iterator[Any], format: Format, fps: float) -> bytes:
    if format == "mp4":
        return _mp4(frames, fps)
    if format == "html":
        return film_page(frames, fps)
    first, *later = frames
    if format == "gif":  # one palette for all frames: no flicker, and smaller
        first, *later = _with_one_palette([first, *later])
    buffer = io.BytesIO()
    options: dict[str, Any] = {"save_all": True, "append_images": later, "loop": 0}
    options["duration"] = round(1000 / fps)
    if format == "webp":
        options |= {"lossless": True}
    first.save(buffer, format={"apng": "PNG"}.get(format, format.upper()), **options)
    return buffer.getvalue()


def _with_one_palette(frames: list[Any]) -> list[Any]:
    from PIL import Image

    few = frames[:: max(1, len(frames) // 16)]
    joined = Image.new("RGB", (few[0].width, few[0].height * len(few)))
    for n, frame in enumerate(few):
        joined.paste(frame, (0, n * frame.height))
    palette = joined.quantize(255)
    return [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]


def _mp4(frames: Iterator[Any], fps: float) -> bytes:
    """Through ffmpeg, which reads raw frames and writes fragments that need no seeking."""
    all_ = list(frames)
    width, height = all_[0].size
    program = _ffmpeg()
    assert program is not None  # `missing` was asked
    command = [
        *(program, "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"),
        *("-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"),
        *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18"),
        *("-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "-"),
    ]
    raw = b"".join(frame.tobytes() for frame in all_)
    try:
        done = subprocess.run(command, input=raw, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"ffmpeg: {error}") from None
    if done.returncode:
        raise RunFailed(f"ffmpeg: {done.stderr.decode(errors='replace')[-300:]}")
    return done.stdout


def _ffmpeg() -> str | None:
    """The program: of the system, or of the package imageio-ffmpeg."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        package = importlib.import_module("imageio_ffmpeg")
        path: str = package.get_ffmpeg_exe()
    except (ImportError, RuntimeError):  # no package, or one for another platform
        return None
    return path
