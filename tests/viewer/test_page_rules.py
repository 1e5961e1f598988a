"""Rules: what the page says of them against their description, and their names."""

from __future__ import annotations

from typing import Any

import pytest

from nps.viewer.session import Session
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


def test_a_tree_is_questions_with_answers(browser: Any) -> None:
    from nps.inspect import describe_all

    bench = FakeWorkbench(steps=20, episodes=50)
    described = describe_all(bench)
    with (
        served(Session([FakeRun(bench)])) as client,
        opened(browser, f"{client.address}&tab=rules") as page,
    ):
        page.locator(".rule-card").first.wait_for(timeout=60_000)
        told = [each for each in described if each.when]
        assert told
        for each in told:
            branches = page.locator(f".rule-card[data-rule='{each.rule}'] .tree li")
            assert branches.count() == len(each.when.tree)
            for i, line in enumerate(each.when.tree):
                question, *answer = branches.nth(i).locator("span, b").all_inner_texts()
                assert line.strip().startswith(question)
                assert answer in ([], ["fires"], ["does not"])
                assert (f": {' '.join(answer)} (" in line) == bool(answer)


def test_relatives_are_alike_or_opposite(browser: Any, site: str, described: Any) -> None:
    with opened(browser, f"{site}&tab=rules") as page:
        page.locator(".rule-card").first.wait_for(timeout=60_000)
        for each in described:
            card = page.locator(f".rule-card[data-rule='{each.rule}']")
            if not card.count():
                continue
            facts = {"like": set(), "opposite of": set()}
            for fact in card.locator(".fact").all():
                name = fact.locator("h4").inner_text()
                if name in facts:
                    facts[name] = set(fact.locator(".swatch").all_inner_texts())
            near = {str(r.rule) for r in each.relatives if r.similarity >= 0.2}
            assert facts["like"] <= near
            assert bool(facts["like"]) == bool(near)
            assert len(facts["opposite of"]) == sum(r.similarity <= -0.5 for r in each.relatives)


def test_models_that_ship_say_how_to_name_their_rules(browser: Any, site: str) -> None:
    def shipped(route: Any) -> None:
        answer = route.fetch()
        models = answer.json()
        models["models"][0] |= {"renames": False, "saves": True, "reading": "Read by a probe."}
        route.fulfill(response=answer, json=models)

    with opened(browser, f"{site}&tab=rules") as page:
        page.route("**/api/models", shipped)
        page.reload()
        page.locator("#panel-rules", has_text="To name its rules, change one in What if").wait_for()
        page.locator("#panel-rules", has_text="Read by a probe.").wait_for()
