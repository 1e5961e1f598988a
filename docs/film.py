"""Film the page of `nps view` in a real Chromium: docs/images/workbench.gif and workbench-*.png.

    python docs/film.py

One command, one to two minutes: the film of 20 seconds that heads the README, and a figure of each
of the page's seven tools. `python docs/film.py blocks-best blocks-fixed-gnn` names the models: the
first is of blocks, with rules; the second is compared with it. `--into FOLDER` writes elsewhere.

Needs the extra `viewer`, playwright and a Chromium. The film shows the first validation episode
with a push: played, asked why, played without the rule that fires on the pushed block, its rules in
words, another model beside it, the world beside the imagination until they part, and what can be
shared. It is checked on the way: what should be on the page and is not ends it with an error.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import sync_playwright

import nps

IMAGES = Path(__file__).resolve().parent / "images"
WIDTH, HEIGHT = 1240, 860
SHOWN = 880
"""Width of the film."""
CAPTION = 34
"""Height of the line below it."""
COLOURS = 160
SECONDS = 20.0
WORLDS, MOVES = 400, (5, 9)
"""Worlds that are tried for one in which they part, after so many moves."""


# -- what to show ---------------------------------------------------------------------------------


class Push(NamedTuple):
    episode: int
    step: int
    slot: int
    """Of the pushed block."""
    rule: int
    """That fires on it."""


def first_push(bench: Any) -> Push:
    """The first push with two steps before it."""
    for episode in range(bench.count()):
        play = bench.play(episode)
        for step, event in enumerate(play.events):
            found = re.match(r"push.*?(\d+)\D+(\d+)", event)
            if found and step >= 2:
                pushed = int(found[2])
                return Push(episode, step, pushed, int(play.record.rule[step, 0, pushed]))
    raise SystemExit("no push in the validation episodes")


class Game(NamedTuple):
    seed: int
    moves: list[tuple[str, int]]
    """Key and slot of each; they part at the last."""


def parting(bench: Any) -> Game:
    """A world whose imagination parts from it while one looks, under random moves."""
    keys = {
        action: (key, slot) for key, each in bench.keys.items() for slot, action in enumerate(each)
    }
    for seed in range(WORLDS):
        world, draw = bench.world(seed), np.random.default_rng(seed)
        moves = []
        for step in range(1, MOVES[1] + 1):
            action = int(draw.choice(sorted(keys)))
            moves.append(keys[action])
            if world.act(action).parted is not None:
                if step >= MOVES[0]:
                    return Game(seed, moves)
                break
    raise SystemExit(f"in {WORLDS} worlds the imagination never parts from the truth")


# -- the camera -----------------------------------------------------------------------------------


class Film:
    """Pictures of a page, each with a caption and its share of the time."""

    def __init__(self, page: Any, into: Path) -> None:
        self.page, self.into, self.caption = page, into, ""
        self.frames: list[Any] = []
        self.weights: list[float] = []

    def shot(self, weight: float = 1.0) -> None:
        picture = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        height = round(picture.height * SHOWN / picture.width)
        frame = Image.new("RGB", (SHOWN, height + CAPTION), (32, 36, 44))
        frame.paste(picture.resize((SHOWN, height), Image.Resampling.LANCZOS))
        font = ImageFont.load_default(18)
        ImageDraw.Draw(frame).text((14, height + 6), self.caption, "white", font)
        self.frames.append(frame)
        self.weights.append(weight)

    def seek(self, t: int, weight: float = 1.0) -> None:
        self.page.evaluate("t => nps.seek(t)", t)
        self.shot(weight)

    def figure(self, name: str) -> None:
        self.page.screenshot(path=self.into / f"workbench-{name}.png")

    def save(self) -> Path:
        """Write the film, in one palette: taken from the first frame it lacks later colours. The
        last frame lies dimmed under a dialogue: its colours are its own, and so is its palette."""
        *bright, dimmed = self.frames
        few = bright[:: -max(1, len(bright) // 12)]
        joined = Image.new("RGB", (few[0].width, few[0].height * len(few)))
        for n, frame in enumerate(few):
            joined.paste(frame, (0, n * frame.height))
        palette = joined.quantize(COLOURS, dither=Image.Dither.NONE)
        drawn = [f.quantize(palette=palette, dither=Image.Dither.NONE) for f in bright]
        drawn.append(dimmed.quantize(COLOURS, dither=Image.Dither.NONE))
        # GIF counts hundredths of a second.
        unit = 100 * SECONDS / sum(self.weights)
        path = self.into / "workbench.gif"
        drawn[0].save(
            path,
            save_all=True,
            append_images=drawn[1:],
            duration=[10 * max(2, round(unit * weight)) for weight in self.weights],
            loop=0,
            optimize=True,
        )
        return path


def tab(page: Any, name: str) -> Any:
    page.get_by_role("tab", name=name, exact=True).click()
    return page.locator(f"#panel-{name.lower().replace(' ', '')}")


def still(page: Any) -> None:
    """Wait until nothing is being computed or moves any more."""
    page.evaluate("nps.seek(nps.state().t)")
    page.wait_for_timeout(300)


# -- the seven tools ------------------------------------------------------------------------------


def playback(film: Film, at: Push, name: str) -> None:
    film.caption = f"nps view {name}: an episode, what is predicted, and which rule fires where"
    for t in range(11):
        film.seek(t, 2.5 if t == 0 else 1.2)
        if t == at.step:
            film.figure("playback")


def why(film: Film, at: Push) -> None:
    film.caption = "Why did this rule fire? Click the firing"
    film.seek(at.step, 2.0)
    spot = film.page.evaluate("([t, m]) => nps.cell(t, m)", [float(at.step), at.slot])
    film.page.mouse.click(spot["x"], spot["y"])
    film.page.mouse.move(0, HEIGHT - 1)  # what is under the pointer would be told over the raster
    film.page.locator("#panel-why .lead").first.wait_for()
    still(film.page)
    film.shot(10)
    film.figure("why")


def what_if(film: Film, at: Push) -> None:
    film.caption = "What if this rule did not exist? The roll-out is computed again"
    panel = tab(film.page, "What if")
    still(film.page)
    film.shot(4)
    panel.locator(f'input[data-rule="{at.rule}"]').uncheck()
    still(film.page)
    film.shot(3)
    for t in range(at.step, 11):
        film.seek(t, 1.5)
    film.figure("whatif")
    film.shot(3)
    film.page.get_by_role("button", name="Undo").click()
    still(film.page)


def rules(film: Film) -> None:
    film.caption = "Rules in words: when each fires, and what it does"
    tab(film.page, "Rules").locator(".rule-card").first.wait_for()
    still(film.page)
    film.shot(10)
    film.figure("rules")


def compare(film: Film, at: Push) -> None:
    film.caption = "Compare: another model on the same episode and one clock"
    panel = tab(film.page, "Compare")
    panel.get_by_label("Other model").select_option("1")
    panel.locator("table").first.wait_for()
    still(film.page)
    for t in range(at.step, 11, 2):
        film.seek(t, 2.5)
        if t <= at.step + 2:
            film.figure("compare")


def play(film: Film, game: Game) -> None:
    film.caption = "Play: you move the true world, the model imagines it, until they part"
    page, panel = film.page, tab(film.page, "Play")
    seed = panel.get_by_label("Seed")
    seed.fill(str(game.seed))
    seed.dispatch_event("change")
    panel.get_by_role("button", name="Start").click()
    steps_are(page, 0)
    film.shot(2)
    for step, (key, slot) in enumerate(game.moves, 1):
        page.keyboard.press(str(slot))
        page.keyboard.press(key)
        steps_are(page, step)
        still(page)
        film.shot(2)
    panel.locator(".parted").wait_for()
    film.shot(7)
    film.figure("play")


def steps_are(page: Any, steps: int) -> None:
    """The page's policy allows no waiting by script."""
    for _ in range(600):
        if page.evaluate("nps.state().steps") == steps:
            return
        page.wait_for_timeout(50)
    raise SystemExit(f"the world never made step {steps}")


def share(film: Film) -> None:
    film.caption = "Share: an address, one file that plays offline, a film"
    film.page.get_by_role("button", name="Share").click()
    film.page.get_by_role("button", name="GIF").wait_for()
    still(film.page)
    film.shot(6)
    film.figure("share")


# -- all of it ------------------------------------------------------------------------------------


@contextmanager
def served(names: list[str]) -> Iterator[str]:
    """The address of `nps view`."""
    server = subprocess.Popen(
        [sys.executable, "-m", "nps", "view", *names, "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        found = (re.search(r"http://\S+", line) for line in server.stdout)
        address = next(filter(None, found), None)
        if address is None:
            raise SystemExit("nps view ended before it printed an address")
        yield address.group()
    finally:
        server.terminate()
        server.wait()


def warm_up(page: Any) -> None:
    """What is computed once is there before the film starts, which shows the times of the page."""
    tab(page, "Rules").locator(".rule-card").first.wait_for()
    for _ in range(2):
        box = tab(page, "What if").locator("input[data-rule]").first
        box.uncheck()
        still(page)
        page.get_by_role("button", name="Undo").click()
        still(page)
    tab(page, "Why")
    page.evaluate("t => nps.seek(t)", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["blocks-best", "blocks-fixed-gnn"])
    parser.add_argument("--into", type=Path, default=IMAGES)
    given = parser.parse_args()
    if len(given.models) != 2:
        parser.error("expected two models: one with rules, and one to compare with it")
    given.into.mkdir(parents=True, exist_ok=True)
    bench = nps.load(given.models[0]).workbench
    at, game = first_push(bench), parting(bench)
    print(f"{at}; world {game.seed} parts after {len(game.moves)} moves")
    with served(given.models) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(60_000)
        page.goto(f"{address}&model=0&episode={at.episode}")
        page.evaluate("nps.ready")
        warm_up(page)
        film = Film(page, given.into)
        playback(film, at, given.models[0])
        why(film, at)
        what_if(film, at)
        rules(film)
        compare(film, at)
        play(film, game)
        share(film)
        path = film.save()
        browser.close()
    print(f"{path}: {len(film.frames)} frames, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
