"""A film as a page: its frames, its controls, and nothing from elsewhere."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nps.inspect.films import animate
from tests.viewer.browser import needs_browser, until
from tests.viewer.fake import FakeWorkbench

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def play() -> Any:
    return FakeWorkbench(steps=5).play(0)


def test_its_frames_are_those_of_the_other_formats(play: Any, tmp_path: Path) -> None:
    film = animate(play, tmp_path / "film.html", fps=5)
    text = (tmp_path / "film.html").read_text()
    assert (film.format, film.data) == ("html", text.encode())
    frames = re.search(r"const frames = \[(.*)\]", text)[1]  # type: ignore[index]
    found = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(part))))
        for part in re.findall(r"base64,([^\"]+)", frames)
    ]
    other = Image.open(io.BytesIO(animate(play, format="apng").data))
    assert len(found) == other.n_frames == 6
    for t, frame in enumerate(found):
        other.seek(t)
        np.testing.assert_array_equal(frame, np.asarray(other.convert("RGB")))
    assert "200" in text.split("setInterval")[1].split("}")[0]
    assert not re.search(r"https?://|src=\"[^d]", text)


@needs_browser
@pytest.mark.parametrize("where", ["page", "notebook"])
def test_it_plays(browser: Any, play: Any, tmp_path: Path, where: str) -> None:
    film = animate(play, format="html", fps=50)
    path = tmp_path / "film.html"
    path.write_text(film.data.decode() if where == "page" else film._repr_html_())
    page = browser.new_page()
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.goto(path.as_uri())
    shown = page.main_frame if where == "page" else page.main_frame.child_frames[0]
    until(shown, "!!document.querySelector('output')")
    told = shown.locator("output")
    slider = shown.get_by_label("Frame")
    sources = set()
    for t in range(6):
        slider.fill(str(t))
        assert told.inner_text() == f"{t} / 5"
        sources.add(shown.locator("img").get_attribute("src"))
    assert len(sources) == 6
    shown.get_by_label("Play").click()
    until(shown, "document.querySelector('output').textContent.startsWith('2')")
    shown.get_by_label("Pause").click()
    slider.fill("2")
    shown.get_by_label("Play").focus()
    page.keyboard.press("ArrowRight")
    assert told.inner_text() == "3 / 5"
    page.keyboard.press("ArrowLeft")
    assert told.inner_text() == "2 / 5"
    page.close()
    assert mistakes == []
