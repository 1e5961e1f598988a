"""Share: the address, films, and the page frozen into one file that needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nps.inspect.edits import Edits
from tests.viewer.browser import click_cell, needs_browser, opened, pixels, seek
from tests.viewer.browser import state as state_of

pytestmark = needs_browser


@pytest.fixture(scope="module")
def frozen(browser: Any, site: str, tmp_path_factory: Any) -> Path:
    """The page that the button saves, of two models and an edit."""
    path = tmp_path_factory.mktemp("frozen") / "page.html"
    with opened(browser, f"{site}&t=3&with=1", accept_downloads=True) as page:
        page.get_by_role("button", name="Share").click()
        with page.expect_download(timeout=60_000) as saved:
            page.get_by_role("button", name="Save HTML").click()
        saved.value.save_as(path)
    return path


def test_a_copied_address_opens_what_is_shown(browser: Any, site: str) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, f"{site}&episode=2&t=7&tab=whatif", permissions=permissions) as page:
        page.get_by_role("button", name="Share").click()
        page.get_by_role("button", name="Copy").click()
        page.get_by_text("Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        shown = state_of(page)
    with opened(browser, copied) as page:
        assert state_of(page) == shown


def test_a_film_is_saved(browser: Any, site: str, tmp_path: Path) -> None:
    with opened(browser, site, accept_downloads=True) as page:
        page.get_by_role("button", name="Share").click()
        with page.expect_download(timeout=60_000) as saved:
            page.get_by_role("button", name="GIF").click()
        saved.value.save_as(tmp_path / "film.gif")
    assert (tmp_path / "film.gif").read_bytes()[:4] == b"GIF8"


def test_a_film_that_cannot_be_made_here_is_not_offered(
    browser: Any, site: str, monkeypatch: Any
) -> None:
    def offered() -> Any:
        with opened(browser, site) as page:
            page.get_by_role("button", name="Share").click()
            page.get_by_role("button", name="GIF").wait_for()
            row = page.get_by_text("GIF for a README").inner_text()
            return page.get_by_role("button", name="MP4").is_enabled(), row

    monkeypatch.setattr("nps.inspect.films._ffmpeg", lambda: None)
    enabled, row = offered()
    assert not enabled
    assert "mp4 needs ffmpeg" in row
    monkeypatch.setattr("nps.inspect.films._ffmpeg", lambda: "/usr/bin/ffmpeg")
    enabled, row = offered()
    assert enabled
    assert "ffmpeg" not in row


def test_the_frozen_page_plays_without_a_network(browser: Any, frozen: Path, runs: Any) -> None:
    played = runs[0].workbench.play(0)
    with opened(browser, frozen.as_uri(), offline=True) as page:
        assert page.locator("#frozen-mark").is_visible()
        for t in (0, 4, 12):
            seek(page, t)
            np.testing.assert_array_equal(pixels(page, 0), played.true[t])
            np.testing.assert_array_equal(pixels(page, 1), played.predicted[t])
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert state_of(page)["t"] == 1


def test_the_frozen_page_knows_why_and_what_if(browser: Any, frozen: Path, runs: Any) -> None:
    bench = runs[0].workbench
    record = bench.play(0).record
    with opened(browser, frozen.as_uri(), offline=True) as page:
        (slot,) = np.flatnonzero(record.rule[3, 0] >= 0)
        click_cell(page, 3, slot)
        page.locator("#panel-why .lead", has_text=f"rule {record.rule[3, 0, slot]}").wait_for()
        page.get_by_role("tab", name="What if").click()
        page.get_by_label("rule 3 on").uncheck()
        seek(page, 12)
        off = bench.play(0, Edits(disabled=(3,)))
        np.testing.assert_array_equal(pixels(page, 1), off.predicted[12])
        assert page.get_by_label("rule 4 on").is_disabled()  # both were not computed
        page.get_by_role("button", name="Undo").click()
        seek(page, 12)
        np.testing.assert_array_equal(pixels(page, 1), bench.play(0).predicted[12])
        page.get_by_role("tab", name="Rules").click()
        page.locator(".rule-card").first.wait_for()
        page.get_by_role("tab", name="Play").click()
        assert "needs nps view" in page.locator("#panel-play").inner_text()


def test_the_frozen_page_compares(browser: Any, frozen: Path, runs: Any) -> None:
    with opened(browser, f"{frozen.as_uri()}#tab=compare", offline=True) as page:
        seek(page, 5)
        other = runs[1].workbench.play(0)
        np.testing.assert_array_equal(pixels(page, 2), other.predicted[5])
