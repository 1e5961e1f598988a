"""Why, and why not: what the page says of a firing against the record of the layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.viewer.browser import click_cell, needs_browser, opened, seek
from tests.viewer.browser import state as state_of

pytestmark = needs_browser


@pytest.fixture
def page(browser: Any, site: str) -> Any:
    with opened(browser, site) as found:
        yield found


@pytest.fixture(scope="module")
def record(runs: Any) -> Any:
    return runs[0].workbench.play(0).record


def said(page: Any) -> str:
    return page.locator("#panel-why").inner_text()


def test_a_click_on_a_firing_explains_it(page: Any, record: Any) -> None:
    for step in (0, 3, 9):
        (slot,) = np.flatnonzero(record.rule[step, 0] >= 0)
        rule, context = record.rule[step, 0, slot], record.context[step, 0, slot]
        click_cell(page, step, slot)
        reads = "reading itself" if context == slot else f"reading block {context}"
        page.locator("#panel-why").get_by_text(f"fired on block {slot}, {reads}").wait_for()
        lead = page.locator("#panel-why .lead").inner_text()
        assert f"rule {rule}" in lead


def test_the_scores_are_those_before_noise_and_the_winner_is_ringed(page: Any, record: Any) -> None:
    seek(page, 3)
    page.get_by_text("Step 3", exact=True).wait_for()
    cells = page.locator("#panel-why .matrix .cell")
    shown = [float(text.replace("−", "-")) for text in cells.all_inner_texts()]
    np.testing.assert_allclose(shown, record.rule_scores[3, 0].ravel(), atol=0.06)
    (slot,) = np.flatnonzero(record.rule[3, 0] >= 0)
    winner = cells.nth(int(slot * 6 + record.rule[3, 0, slot]))
    assert "winner" in winner.get_attribute("class")
    assert page.locator("#panel-why .winner").count() == 1
    scores = np.sort(record.rule_scores[3, 0].ravel())
    assert f"by {scores[-1] - scores[-2]:.2f}" in said(page)


def test_a_slot_on_which_nothing_fired_says_where_the_stage_went(page: Any, record: Any) -> None:
    (fired,) = np.flatnonzero(record.rule[0, 0] >= 0)
    other = (fired + 1) % 3
    click_cell(page, 0, other)
    page.get_by_text(f"Nothing fired on block {other} here").wait_for()
    assert f"on block {fired}" in page.locator("#panel-why .lead").inner_text()


def test_it_says_what_was_read_and_what_was_added(page: Any, runs: Any, record: Any) -> None:
    played = runs[0].workbench.play(0)
    seek(page, 1)
    page.get_by_text("Step 1", exact=True).wait_for()
    (slot,) = np.flatnonzero(record.rule[1, 0] >= 0)
    rows = page.locator("#panel-why section", has_text="What it read").locator("tr")
    for i, name in enumerate(("row", "column")):
        cells = rows.filter(has_text=name).locator("td").all_inner_texts()
        assert float(cells[0]) == pytest.approx(played.features[1, slot, i], abs=0.006)
        added = float(cells[-2].replace("−", "-").replace("+", ""))
        assert added == pytest.approx(record.update[1, 0, slot, i], abs=0.006)
    images = page.locator("#panel-why img")
    assert images.count() == 3  # before, after and what differs
    assert all(images.nth(i).evaluate("image => image.naturalWidth") == 48 for i in range(3))


def test_with_stages_each_has_its_own_answer(browser: Any, site: str, runs: Any) -> None:
    record = runs[1].workbench.play(0).record
    with opened(browser, f"{site}&model=1&t=4&slot=0") as page:
        for stage in (0, 1):
            page.get_by_label("Stage").select_option(str(stage))
            assert state_of(page)["stage"] == stage
            page.locator("#panel-why .lead", has_text=f"rule {record.rule[4, stage, 0]}").wait_for()


def test_from_why_to_what_if(page: Any) -> None:
    seek(page, 3)
    page.get_by_role("button", name="Switch rule 3 off").click()
    seek(page, 3)
    assert state_of(page)["edits"] == {"disabled": [3]}
    assert page.locator("#stage figure").count() == 3


@pytest.mark.parametrize(("by", "where"), [(0, "here"), (1, "on block {}")])
def test_what_would_flip_it_is_forced_where_it_fires(page: Any, by: int, where: str) -> None:
    """On this slot or on another."""
    click_cell(page, 3, 0)
    page.locator("#panel-why .picker select").wait_for()

    def moved(route: Any) -> None:
        answer = route.fetch()
        why = answer.json()
        flip = {"slot": (why["slot"] + by) % 3, "rule": 2, "relative": 0.5, "features": {}}
        route.fulfill(response=answer, json=why | {"flip": flip})

    page.route("**/api/why", moved)
    click_cell(page, 4, 1)
    slot = (1 + by) % 3
    page.get_by_role("button", name=f"Force rule 2 {where.format(slot)}", exact=True).click()
    (forced,) = state_of(page)["edits"]["forced"]
    assert (forced["step"], forced["slot"], forced["rule"]) == (4, slot, 2)


def test_where_all_slots_are_empty_there_is_no_table_without_rows(page: Any) -> None:
    def empty(route: Any) -> None:
        answer = route.fetch()
        scores = [[None] * 6] * 3
        nothing = {"fired": False, "winner": None, "rival": None, "flip": None, "contexts": None}
        route.fulfill(response=answer, json=answer.json() | nothing | {"scores": scores})

    page.route("**/api/why", empty)
    click_cell(page, 5, 1)
    page.get_by_text("No slot could choose a rule").wait_for()
    assert page.locator("#panel-why .matrix").count() == 0
