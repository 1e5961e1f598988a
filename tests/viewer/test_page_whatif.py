"""What if: every edit on the page gives the roll-out that the workbench gives under it."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from nps.inspect.edits import Edits
from tests.viewer.browser import needs_browser, opened, pixels, seek
from tests.viewer.browser import state as state_of

pytestmark = needs_browser


@pytest.fixture
def page(browser: Any, site: str) -> Any:
    with opened(browser, f"{site}&tab=whatif&t=4") as found:
        yield found


def edits_of(page: Any) -> Any:
    seek(page, state_of(page)["t"])
    return state_of(page)["edits"]


def check(page: Any, runs: Any) -> Any:
    """The page shows the roll-out under its edits, and beside it the unedited one."""
    edits = Edits.from_json(edits_of(page))
    bench = runs[0].workbench
    edited, base = bench.play(0, edits), bench.play(0)
    seek(page, 12)
    np.testing.assert_array_equal(pixels(page, 1), edited.predicted[12])
    np.testing.assert_array_equal(pixels(page, 2), base.predicted[12])
    table = page.locator(".effect td b").all_inner_texts()
    assert float(table[0]) == pytest.approx(edited.error[1:].mean(), abs=0.006)
    assert float(table[1]) == pytest.approx(edited.error[-1], abs=0.006)
    assert int(table[2]) == edited.right[1:].sum()
    return edited


def test_a_rule_switched_off_gives_another_future(page: Any, runs: Any) -> None:
    page.get_by_label("rule 3 on").uncheck()
    assert edits_of(page) == {"disabled": [3]}
    edited = check(page, runs)
    assert not (edited.record.rule == 3).any()
    parted = page.locator(".effect .parting").inner_text()
    page.locator(".effect .link").click()
    assert parted.startswith(f"Differs from frame {state_of(page)['t']} ")
    assert " ms." in page.locator("#took").inner_text()
    page.get_by_role("button", name="Undo").click()
    assert edits_of(page) == {}
    assert page.locator("#stage figure").count() == 2
    page.get_by_role("button", name="Redo").click()
    assert edits_of(page) == {"disabled": [3]}
    page.get_by_role("button", name="Take back: rule 3 off").click()
    assert edits_of(page) == {}
    page.keyboard.press("Control+z")
    assert edits_of(page) == {"disabled": [3]}


def test_strength_and_bias_of_a_rule(page: Any, runs: Any) -> None:
    page.locator("summary", has_text="rule 2").click()
    slider = page.get_by_label("Factor on what rule 2 adds")
    slider.focus()
    for _ in range(10):  # steps of 0.05; one entry of the history
        page.keyboard.press("ArrowLeft")
    assert edits_of(page) == {"scaled": [{"rule": 2, "factor": 0.5}]}
    check(page, runs)
    row = page.locator("details", has_text="rule 2")
    row.get_by_label("Amount that the rule adds").fill("0.125")
    row.get_by_label("Amount that the rule adds").press("Enter")
    assert edits_of(page)["added"] == [{"rule": 2, "feature": "row", "amount": 0.125}]
    check(page, runs)


def test_a_forced_choice(page: Any, runs: Any) -> None:
    page.get_by_label("Slot", exact=True).select_option("1")
    page.get_by_label("Rule that fires").select_option("0")
    page.get_by_label("Slot that it reads").select_option("2")
    choice = {"step": 4, "slot": 1, "stage": 0, "rule": 0, "context": 2}
    assert edits_of(page) == {"forced": [choice]}
    edited = check(page, runs)
    assert edited.record.rule[4, 0].tolist() == [-1, 0, -1]
    assert edited.record.context[4, 0, 1] == 2
    seek(page, 4)
    page.get_by_label("Rule that fires").select_option("-1")
    page.get_by_label("Slot that it reads").select_option("")
    assert edits_of(page)["forced"] == [{**choice, "rule": -1, "context": None}]


def test_a_slot_is_dragged_to_another_place(page: Any, runs: Any) -> None:
    seek(page, 2)
    bench = runs[0].workbench
    row, column = bench.play(0).places[2, 2].tolist()
    box = page.locator("#stage .screen").nth(1).bounding_box()
    at = lambda r, c: (box["x"] + c * box["width"], box["y"] + r * box["height"])  # noqa: E731
    page.mouse.move(*at(row, column))
    page.mouse.down()
    page.mouse.move(*at(0.6, 0.3), steps=4)
    page.mouse.move(*at(0.8125, 0.1875), steps=4)
    page.mouse.up()
    placed = edits_of(page)["placed"]
    assert [(p["step"], p["slot"], p["feature"]) for p in placed] == [
        (2, 2, "row"),
        (2, 2, "column"),
    ]
    assert [p["value"] for p in placed] == pytest.approx([0.8125, 0.1875], abs=0.004)
    assert page.locator(".chip.edit").inner_text().startswith("block 2 moved, step 2")
    check(page, runs)


def test_a_feature_is_set_without_a_mouse(page: Any, runs: Any) -> None:
    page.get_by_label("Feature of the slot").select_option("1")
    page.get_by_label("Value of the feature").fill("0.25")
    page.get_by_label("Value of the feature").press("Enter")
    (placed,) = edits_of(page)["placed"]
    assert (placed["step"], placed["feature"], placed["value"]) == (4, "column", 0.25)
    check(page, runs)


def test_actions_are_exchanged_by_dragging_and_changed_by_menu(page: Any, runs: Any) -> None:
    acts = runs[0].workbench.play(0).actions
    chips = page.locator("ol.actions li")
    chips.nth(0).get_by_role("button").drag_to(chips.nth(3).get_by_role("button"))
    expected = [{"step": 3, "action": int(acts[0])}, {"step": 0, "action": int(acts[3])}]
    assert edits_of(page) == {"acted": expected}
    chips.nth(3).get_by_role("combobox").select_option(str(int(acts[3])))
    assert edits_of(page) == {"acted": expected[1:]}
    page.locator(".chip.new", has_text="block 1 right").drag_to(chips.nth(5).get_by_role("button"))
    assert edits_of(page)["acted"][-1] == {"step": 5, "action": 5}
    check(page, runs)


def test_edits_travel_in_the_address(page: Any, browser: Any, site: str) -> None:
    page.get_by_label("rule 3 on").uncheck()
    seek(page, 6)
    page.wait_for_timeout(400)
    kept = page.evaluate("location.hash").lstrip("#")
    with opened(browser, f"{site}&{kept}") as again:
        assert state_of(again) == state_of(page)
        np.testing.assert_array_equal(pixels(again, 1), pixels(page, 1))


def test_an_edit_that_is_refused_leaves_all_as_it_was(page: Any) -> None:
    page.get_by_label("Rule that fires").select_option("3")
    forced = edits_of(page)
    seek(page, 3)
    page.get_by_role("switch", name="rule 3 on").click()  # it is forced, so it stays on
    page.locator("#message.error").wait_for()
    assert edits_of(page) == forced


def test_encodings_may_differ_where_pictures_do_not(browser: Any, site: str, runs: Any) -> None:
    bench = runs[0].workbench
    fired = bench.play(0).record.rule
    rule = int(fired[fired >= 0][0])
    edits = {"scaled": [{"rule": rule, "factor": 0.999}]}
    one, other = bench.play(0), bench.play(0, Edits.from_json(edits))
    assert (one.predicted == other.predicted).all()
    first = int(np.argwhere((one.slots != other.slots).any((1, 2)))[0, 0])
    address = base64.urlsafe_b64encode(json.dumps(edits).encode()).decode().rstrip("=")
    with opened(browser, f"{site}&tab=whatif&t=0&edits={address}") as page:
        said = page.locator(".effect .parting").inner_text()
        assert said.startswith(f"The same pictures; the encodings differ from frame {first} ")
        page.locator(".effect .link").click()
        assert state_of(page)["t"] == first


def test_a_model_without_rules_is_not_told_to_switch_one_off(browser: Any, site: str) -> None:
    with opened(browser, f"{site}&tab=whatif&model=2") as page:
        hint = page.locator("#panel-whatif .lead").inner_text()
        assert hint.startswith("Change an action, and see another future")
        assert "no rules to switch" in page.locator("#panel-whatif").inner_text()


def test_only_choices_that_the_layer_allows_are_offered(browser: Any, site: str) -> None:
    """A slot that may not read itself, a rule that is off, and a slot that is empty."""

    def strict(route: Any) -> None:
        answer = route.fetch()
        models = answer.json()
        models["models"][0]["forces"] = {"context": True, "itself": False, "off": [4]}
        route.fulfill(response=answer, json=models)

    def empty(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"empty": [[], [], [2], *[[]] * 9]})

    with opened(browser, f"{site}&tab=whatif&t=2&slot=1") as page:
        page.route("**/api/models", strict)
        page.route("**/api/play", empty)
        page.reload()
        page.evaluate("nps.ready")
        read = page.get_by_label("Slot that it reads").locator("option").all_inner_texts()
        assert read == ["as the model chooses", "block 0"]
        rules = page.get_by_label("Rule that fires").locator("option").all_inner_texts()
        assert "rule 4" not in rules
        assert "rule 5" in rules
        page.get_by_label("Slot", exact=True).select_option("2")
        page.get_by_text("This slot is empty at this step").wait_for()
        assert page.get_by_label("Rule that fires").count() == 0
