"""Play: the page moves the true world and the imagination as the workbench's world does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nps.inspect.workbench import Moment
from nps.viewer.session import Session
from tests.viewer.browser import click_cell, needs_browser, opened, pixels, seek, until
from tests.viewer.browser import state as state_of
from tests.viewer.fake import FakeRun, FakeWorkbench
from tests.viewer.serving import served

pytestmark = needs_browser


@pytest.fixture
def page(browser: Any, site: str) -> Any:
    with opened(browser, f"{site}&tab=play&t=4") as found:
        found.get_by_role("button", name="Start").click()
        until(found, "nps.state().steps === 0")
        yield found


def press(page: Any, key: str) -> None:
    steps = state_of(page)["steps"]
    page.keyboard.press(key)
    until(page, f"nps.state().steps === {steps + 1}")


def check(page: Any, moment: Moment) -> None:
    seek(page, moment.step)
    np.testing.assert_array_equal(pixels(page, 0), moment.true)
    np.testing.assert_array_equal(pixels(page, 1), moment.imagined)


def test_keys_move_both_until_they_part(page: Any, runs: Any) -> None:
    world = runs[0].workbench.world(0)
    check(page, world.now())
    moment = world.now()
    while moment.parted is None:  # block 0 to the left, until it would leave the grid
        press(page, "ArrowLeft")
        moment = world.act(3)
        check(page, moment)
    lead = page.locator("#panel-play .parted").inner_text()
    wrong = moment.parted.step - 1  # the raster's name for the choice that led to that frame
    assert f"step {wrong}, in frame {moment.parted.step}" in lead
    assert f"block {moment.parted.slot}" in lead
    assert f"rule {moment.parted.rule}" in lead
    assert page.locator("#stage .badge").nth(1).inner_text() == "✗ wrong"
    page.locator("#panel-play .link").click()
    assert state_of(page)["t"] == wrong


def test_clicks_choose_slots_and_buttons_move_them(page: Any, runs: Any) -> None:
    world = runs[0].workbench.world(0)
    page.locator("#stage figure").nth(1).locator(".slot-mark").nth(1).click()
    assert state_of(page)["slot"] == 1
    page.get_by_role("button", name="block 1 down").first.click()
    until(page, "nps.state().steps === 1")
    check(page, world.act(4 + 2))
    page.keyboard.press("2")
    press(page, "ArrowUp")
    check(page, world.act(8))
    page.get_by_text("All actions").click()
    page.locator("#panel-play details").get_by_text("block 0 right").click()
    until(page, "nps.state().steps === 3")
    check(page, world.act(1))


def test_what_was_played_can_be_looked_at_again(page: Any, runs: Any) -> None:
    world = runs[0].workbench.world(0)
    moments = [world.now()]
    for key, action in (("ArrowDown", 2), ("ArrowRight", 1), ("ArrowDown", 2)):
        press(page, key)
        moments.append(world.act(action))
    for moment in moments[::-1]:
        check(page, moment)
    click_cell(page, 1, 0)
    assert state_of(page)["t"] == 1


def test_the_episode_and_the_world_have_their_own_clocks(page: Any) -> None:
    press(page, "ArrowDown")
    assert state_of(page)["t"] == 1
    page.get_by_role("tab", name="Why").click()
    assert state_of(page) | {"t": 4, "steps": 12} == state_of(page)
    page.get_by_role("tab", name="Play").click()
    assert state_of(page) | {"t": 1, "steps": 1} == state_of(page)


def test_slots_are_called_by_what_their_keys_move(browser: Any) -> None:
    """Slot 0 shows block 2, as slots of models without a readable place may."""
    bench = FakeWorkbench()
    bench.keys = {key: actions[::-1] for key, actions in bench.keys.items()}
    played = replace(bench.play(0), slot_names=("slot 0", "slot 1", "slot 2"))
    bench.play = lambda *_: played  # type: ignore[method-assign]
    with (
        served(Session([FakeRun(bench)])) as client,
        opened(browser, f"{client.address}&tab=play") as page,
    ):
        page.get_by_role("button", name="Start").click()
        until(page, "nps.state().steps === 0")
        chips = page.get_by_label("What the keys move").get_by_role("button")
        assert chips.all_inner_texts() == ["block 0", "block 1", "block 2"]
        chips.nth(2).click()
        assert state_of(page)["slot"] == 0
        page.keyboard.press("1")
        assert state_of(page)["slot"] == 1
        page.keyboard.press("0")
        press(page, "ArrowDown")
        check(page, FakeWorkbench().world(0).act(2))
        in_order = ["block 2", "block 1", "block 0"]
        for tab, menu in (("Why", "why slot"), ("What if", "force slot")):
            page.get_by_role("tab", name=tab).click()
            page.locator(f"[data-key='{menu}']").wait_for()
            options = page.locator(f"[data-key='{menu}'] option")
            assert options.all_inner_texts() == in_order
        lights = page.get_by_label("Show in the frames").get_by_text("block")
        assert lights.all_inner_texts() == in_order
