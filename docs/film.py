"""Film the page of `nps view` in a real Chromium: docs/images/workbench.gif, and its tools.

    python docs/film.py blocks-best blocks-fixed-gnn

Needs the extra `viewer`, Pillow, playwright and a Chromium. The film shows the first validation
episode with a push: played, asked why, played without the rule that fires on the pushed block, its
rules in words, and the world beside the imagination.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import nps

IMAGES = Path(__file__).resolve().parent / "images"
WIDTH, HEIGHT = 1240, 860
SHOWN = 880
"""Width of the film."""
COLOURS = 96
TICK = 140
"""Milliseconds of a frame."""


def first_push(name: str) -> tuple[int, int, int, int]:
    """The first push with two steps before it: episode, step, pushed slot, and its rule."""
    bench = nps.load(name).workbench
    for episode in range(bench.count()):
        play = bench.play(episode)
        for step, event in enumerate(play.events):
            found = re.match(r"push.*?(\d+)\D+(\d+)", event)
            if found and step >= 2:
                pushed = int(found[2])
                return episode, step, pushed, int(play.record.rule[step, 0, pushed])
    raise SystemExit("no push in the validation episodes")


class Film:
    """Frames of a page, each with its time."""

    def __init__(self, page: Any) -> None:
        self.page, self.frames, self.times = page, [], []

    def shot(self, ticks: float = 1.0) -> None:
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        height = round(picture.height * SHOWN / picture.width)
        self.frames.append(picture.resize((SHOWN, height), Image.Resampling.LANCZOS))
        self.times.append(round(TICK * ticks))

    def seek(self, t: int, ticks: float = 3.0) -> None:
        self.page.evaluate("t => nps.seek(t)", t)
        self.page.wait_for_timeout(150)
        self.shot(ticks)

    def save(self, path: Path) -> None:
        palette = self.frames[0].quantize(COLOURS, dither=Image.Dither.NONE)
        rest = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        rest[0].save(
            path,
            save_all=True,
            append_images=rest[1:],
            duration=self.times,
            loop=0,
            optimize=True,
        )


def tab(page: Any, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()
    page.wait_for_timeout(400)


def record(page: Any, at: tuple[int, int, int, int]) -> None:
    _, step, pushed, rule = at
    film = Film(page)
    film.seek(0, 6)
    for t in range(1, step + 2):
        film.seek(t)
    film.seek(step, 4)
    spot = page.evaluate("([t, m]) => nps.cell(t, m)", [float(step), pushed])
    page.mouse.click(spot["x"], spot["y"])
    page.wait_for_timeout(1_500)
    film.shot(22)
    tab(page, "What if")
    film.shot(8)
    page.locator(f'#panels input[data-rule="{rule}"]').uncheck()
    page.wait_for_timeout(1_500)
    film.shot(8)
    for t in range(step, 11):
        film.seek(t)
    film.shot(8)
    page.screenshot(path=IMAGES / "workbench-whatif.png")
    page.get_by_role("button", name="Undo").click()
    tab(page, "Rules")
    page.wait_for_timeout(8_000)
    film.shot(22)
    page.screenshot(path=IMAGES / "workbench-rules.png")
    tab(page, "Play")
    page.get_by_role("button", name="Start").click()
    page.wait_for_timeout(1_500)
    film.shot(4)
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
        page.wait_for_timeout(600)
        film.shot(4)
    film.shot(8)
    page.screenshot(path=IMAGES / "workbench-play.png")
    film.save(IMAGES / "workbench.gif")
    print(f"{len(film.frames)} frames, {sum(film.times) / 1_000:.1f} s")


def main() -> None:
    names = sys.argv[1:]
    episode, *_ = at = first_push(names[0])
    server = subprocess.Popen(
        [sys.executable, "-m", "nps", "view", *names, "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = next(
            found.group() for line in server.stdout if (found := re.search(r"http://\S+", line))
        )
        with sync_playwright() as playwright:
            options = {"executable_path": which("chromium"), "args": ["--no-sandbox"]}
            browser = playwright.chromium.launch(**options)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_default_timeout(60_000)
            page.goto(f"{address}&model=0&episode={episode}")
            page.evaluate("nps.ready")
            record(page, at)
            if len(names) > 1:
                page.goto("about:blank")
                page.goto(f"{address}&model=0&episode={episode}&tab=compare&with=1&t={at[1] + 1}")
                page.evaluate("nps.ready")
                page.wait_for_timeout(3_000)
                page.screenshot(path=IMAGES / "workbench-compare.png")
            browser.close()
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
