"""Play with a falling tower in the page: its own names, waiting, and a model that looks again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.experiments.test_stacks import data  # noqa: F401, a fixture
from tests.experiments.test_stacks_play import AWAY, LEFT, RIGHT, WAIT, Run, push
from tests.experiments.test_workbench_stacks import bench_of
from tests.viewer.browser import needs_browser, opened, pixels, seek, until

pytestmark = needs_browser
SEED = 4


@pytest.fixture(scope="module")
def bench(data: Any) -> Any:  # noqa: F811
    return bench_of("snps")


@pytest.fixture
def page(browser: Any, bench: Any) -> Iterator[Any]:
    from nps.viewer.session import Session
    from tests.viewer.serving import served

    with (
        served(Session([Run(bench)])) as client,
        opened(browser, f"{client.address}&tab=play") as found,
    ):
        found.get_by_role("spinbutton", name="Seed").fill(str(SEED))
        found.get_by_role("button", name="Start").click()
        until(found, "nps.state().steps === 0")
        yield found


def test_a_tower_is_pushed_and_left_alone(page: Any, bench: Any) -> None:
    world = bench.world(SEED)
    lead = page.locator("#panel-play .lead")
    keys = [("w", WAIT), ("ArrowRight", push(0, RIGHT)), ("w", WAIT)]
    keys += [("2", None), ("ArrowUp", push(2, AWAY))]
    steps = 0
    for key, action in keys:
        page.keyboard.press(key)
        if action is None:
            continue
        steps += 1
        until(page, f"nps.state().steps === {steps}")
        seek(page, steps)
        moment = world.act(action)  # now that the server is done with the same model
        np.testing.assert_array_equal(pixels(page, 0), moment.true)
        np.testing.assert_array_equal(pixels(page, 1), moment.imagined)
        if action != WAIT:
            assert "The model has looked again" in lead.inner_text()
        elif moment.parted is None:
            assert "Together for 1 step" in lead.inner_text()
        else:
            step, slot = moment.parted.step, world.slot_names[moment.parted.slot]
            expected = f"step {step - 1}, in frame {step}, on {slot}"
            assert expected in " ".join(lead.inner_text().split())
    chips = page.get_by_role("group", name="What the keys move").get_by_role("button")
    assert chips.all_inner_texts() == list(world.slot_names)
    page.get_by_text("All actions").click()
    page.locator("#panel-play details").get_by_text(world.actions[push(1, LEFT)]).click()
    until(page, f"nps.state().steps === {steps + 1}")
    np.testing.assert_array_equal(pixels(page, 0), world.act(push(1, LEFT)).true)


def test_without_mujoco_the_page_says_what_is_missing(
    browser: Any, bench: Any, monkeypatch: Any
) -> None:
    from nps.viewer.session import Session
    from tests.viewer.serving import served

    monkeypatch.setitem(sys.modules, "mujoco", None)
    with (
        served(Session([Run(bench)])) as client,
        opened(browser, f"{client.address}&tab=play") as found,
    ):
        assert "need the extra" in found.locator("#panel-play .lead").inner_text()
