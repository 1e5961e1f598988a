"""Playback in a real browser: the frames, the raster and the clock against the playback itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.viewer.browser import (
    canvas,
    cell,
    click_cell,
    colour_at,
    needs_browser,
    opened,
    pixels,
    seek,
    until,
)
from tests.viewer.browser import state as state_of

pytestmark = needs_browser

COLOURS = [(0, 114, 178), (230, 159, 0), (0, 158, 115), (213, 94, 0), (86, 180, 233)]
NULL = (241, 241, 237)


@pytest.fixture
def page(browser: Any, site: str) -> Any:
    with opened(browser, site) as found:
        yield found


@pytest.fixture(scope="module")
def played(runs: Any) -> Any:
    return runs[0].workbench.play(0)


def test_the_frames_are_those_of_the_playback(page: Any, played: Any) -> None:
    for t in (0, 3, 12):
        seek(page, t)
        np.testing.assert_array_equal(pixels(page, 0), played.true[t])
        np.testing.assert_array_equal(pixels(page, 1), played.predicted[t])
        said = page.locator("#stage .badge").nth(1).inner_text()
        assert said == ("✓ right" if played.right[t] else "✗ wrong")


def test_the_raster_has_the_colour_of_each_rule(page: Any, played: Any) -> None:
    seek(page, 12)  # the band of the cursor does not lie on any cell
    for step in range(12):
        for slot in range(3):
            rule = played.record.rule[step, 0, slot]
            x, y = cell(page, step, slot)
            # Beside the number in the middle.
            found = np.array(colour_at(page, x - 15, y))
            expected = np.array(NULL if rule < 0 else COLOURS[rule])
            assert np.abs(found - expected).max() <= 2, (step, slot, rule)


def test_an_arrow_leads_from_the_slot_that_is_read(page: Any, played: Any) -> None:
    arrows = page.locator("#stage figure").nth(1).locator(".arrow")
    for step in range(12):
        seek(page, step)
        (slot,) = np.flatnonzero(played.record.rule[step, 0] >= 0)
        context = played.record.context[step, 0, slot]
        ends = played.places[step][[context, slot]]
        apart = np.linalg.norm(ends[1] - ends[0]) > 0.1  # closer, the discs touch
        assert arrows.count() == int(apart), step


def test_keys_move_the_time_and_stop_at_the_ends(page: Any) -> None:
    for key, expected in [
        *(("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 12)),
        *(("ArrowRight", 12), ("Home", 0), ("ArrowLeft", 0)),
    ]:
        page.keyboard.press(key)
        assert state_of(page)["t"] == expected, key
    assert page.locator("#time").inner_text() == "0 / 12"


def test_space_plays_to_the_end_and_starts_again(page: Any) -> None:
    for _ in range(4):
        page.keyboard.press("+")
    page.keyboard.press("Space")
    until(page, "nps.state().t === 12")
    until(page, "nps.state().t < 12")
    page.keyboard.press("Space")
    assert page.get_by_role("button", name="Play", exact=True).count() == 1
    stopped = state_of(page)["t"]
    page.wait_for_timeout(300)
    assert state_of(page)["t"] == stopped


def test_the_scrubber_and_the_time_line_seek(page: Any) -> None:
    page.locator("#scrubber").fill("7")
    assert state_of(page)["t"] == 7
    click_cell(page, 4, 1)
    assert state_of(page) | {"t": 4, "slot": 1} == state_of(page)
    x, y = cell(page, 2, 0)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(cell(page, 9, 0)[0], y, steps=3)
    page.mouse.up()
    assert state_of(page)["t"] == 9


def test_what_a_slot_looks_at_stays_light(page: Any, played: Any) -> None:
    page.locator("#look").get_by_role("button", name="block 1").click()
    seek(page, 2)
    shade = page.locator("#stage canvas.shade").nth(0)
    until(page, "!document.querySelector('canvas.shade').hidden")
    alpha = canvas(shade)[..., 3]
    mask = played.masks[2, 1].astype(float)
    np.testing.assert_allclose(alpha, 0.78 * (255 - mask), atol=2)


def test_other_episodes_open_and_the_address_keeps_what_is_shown(
    page: Any, runs: Any, browser: Any, site: str
) -> None:
    page.get_by_role("button", name="Next episode").click()
    seek(page, 5)
    np.testing.assert_array_equal(pixels(page, 0), runs[0].workbench.play(1).true[5])
    until(page, "location.hash.includes('episode=1') && location.hash.includes('t=5')")
    assert "token" not in page.evaluate("location.hash")
    kept = page.evaluate("location.hash").lstrip("#")
    with opened(browser, f"{site}&{kept}") as again:
        assert state_of(again) == state_of(page)


def test_a_model_without_rules_shows_what_there_is(browser: Any, site: str) -> None:
    with opened(browser, f"{site}&model=2") as page:
        assert page.locator("#stage figure").count() == 2
        page.locator("#panel-why", has_text="no rules").wait_for()


def test_a_wrong_token_says_what_to_do(browser: Any, site: str) -> None:
    with opened(browser, site.split("#")[0] + "#token=wrong") as page:
        page.get_by_text("Open the address that nps view printed").wait_for()  # once
        for controls in ("aside", "#transport", "#timeline", "#share"):
            assert not page.locator(controls).is_visible()


def test_it_opens_where_something_happens(browser: Any, monkeypatch: Any) -> None:
    from nps.viewer.session import Session
    from tests.viewer.fake import FakeRun, FakeWorkbench
    from tests.viewer.serving import served

    monkeypatch.setattr(FakeWorkbench, "opening", 3)
    with served(Session([FakeRun(FakeWorkbench())])) as client:
        with opened(browser, client.address) as page:
            assert state_of(page)["episode"] == 3
        with opened(browser, f"{client.address}&episode=1") as page:
            assert state_of(page)["episode"] == 1
