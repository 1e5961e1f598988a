"""Rules: what the page says of them against their description, and their names."""

from __future__ import annotations

from typing import Any

import pytest

from nps.viewer.session import Session
from nps.zoo import HERE
from tests.viewer.browser import needs_browser, opened
from tests.viewer.fake import FakeRun, FakeWorkbench
from tests.viewer.serving import served

pytestmark = needs_browser


@pytest.fixture(scope="module")
def described(runs: Any) -> Any:
    from nps.inspect import describe

    return [describe(runs[0].workbench, rule) for rule in range(6)]


def test_each_rule_that_fires_has_a_card(browser: Any, site: str, described: Any) -> None:
    with opened(browser, f"{site}&tab=rules") as page:
        page.locator(".rule-card").first.wait_for(timeout=60_000)
        cards = page.locator(".rule-card")
        used = sorted((d for d in described if d.uses), key=lambda d: -d.uses)
        assert cards.count() == len(used)
        for i, each in enumerate(used):
            card = cards.nth(i)
            assert card.get_attribute("data-rule") == str(each.rule)
            text = card.inner_text()
            assert f"{each.uses} ×" in text
            assert each.does is None or each.does.sentence in text
        idle = page.locator(".idle").all_inner_texts()
        assert len(idle) == (len(used) < 6)


def test_a_model_without_rules_says_so(browser: Any, site: str) -> None:
    with opened(browser, f"{site}&tab=rules&model=2") as page:
        page.locator("#panel-rules", has_text="This model has no rules").wait_for()


def test_rules_of_a_model_that_ships_are_named_in_a_copy(browser: Any) -> None:
    run = FakeRun(FakeWorkbench(), 0, HERE / "weights" / "blocks-best")
    with (
        served(Session([run])) as client,
        opened(browser, f"{client.address}&tab=rules") as page,
    ):
        page.locator(".rule-card").first.wait_for(timeout=60_000)
        panel = page.locator("#panel-rules")
        assert "Save as a new run (in What if) to name its rules." in panel.inner_text()
        assert panel.locator("input").count() == 0
