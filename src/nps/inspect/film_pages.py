"""A film as a page of HTML: its frames under a button, a slider and the arrow keys.

One file without a reference to any other. A notebook shows it in a frame of its own.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterator
from typing import Any

ROOM = 64
"""Pixels below the frames for the controls."""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>nps: a film</title>
<style>
body {{ margin: 0; font: 14px system-ui, sans-serif; color: #222; background: #fff; }}
img {{ display: block; max-width: 100%; }}
div {{ display: flex; gap: 8px; align-items: center; max-width: {width}px; padding: 8px 0; }}
input {{ flex: 1; }}
</style>
<img alt="true and predicted frames" width="{width}" height="{height}" src="{first}">
<div>
<button aria-label="Play">▶</button>
<input type="range" aria-label="Frame" min="0" max="{last}" value="0">
<output>0 / {last}</output>
</div>
<script>
const frames = [{frames}];
const [image, button, slider, told] =
  ["img", "button", "input", "output"].map((name) => document.querySelector(name));
let timer = 0;
function show(t) {{
  slider.value = t;
  image.src = frames[slider.value];
  told.textContent = `${{slider.value}} / ${{frames.length - 1}}`;
}}
function play(on) {{
  clearInterval(timer);
  timer = on ? setInterval(() => show((Number(slider.value) + 1) % frames.length), {pause}) : 0;
  button.textContent = on ? "❚❚" : "▶";
  button.setAttribute("aria-label", on ? "Pause" : "Play");
}}
button.onclick = () => play(!timer);
slider.oninput = () => {{ play(false); show(slider.value); }};
document.onkeydown = (event) => {{
  const by = {{ ArrowLeft: -1, ArrowRight: 1 }}[event.key];
  if (!by || event.target === slider) return;
  play(false);
  show(Number(slider.value) + by);
}};
</script>
</html>
"""


def film_page(frames: Iterator[Any], fps: float) -> bytes:
    """The page of a film's frames, which are pictures of Pillow."""
    drawn = list(frames)
    sources = [_source(frame) for frame in drawn]
    width, height = drawn[0].size
    page = PAGE.format(
        width=width,
        height=height,
        first=sources[0],
        last=len(sources) - 1,
        frames=",".join(f'"{source}"' for source in sources),
        pause=round(1000 / fps),
    )
    return page.encode()


def framed(page: bytes) -> str:
    """The page in a frame, for a notebook."""
    text = page.decode()
    width, height = re.findall(r'<img .*?width="(\d+)" height="(\d+)"', text)[0]
    return (
        f'<iframe title="true and predicted frames" sandbox="allow-scripts" frameborder="0" '
        f'width="{int(width) + 16}" height="{int(height) + ROOM}" srcdoc="{html.escape(text)}">'
        "</iframe>"
    )


def _source(frame: Any) -> str:
    buffer = io.BytesIO()
    frame.save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
