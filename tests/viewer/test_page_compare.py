"""Compare: two models on one episode and one clock, and the raster of their difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nps.viewer.session import Session
from tests.viewer.browser import needs_browser, opened, pixels, seek
from tests.viewer.browser import state as state_of
from tests.viewer.fake import FakeRun, FakeWorkbench, write_folder
from tests.viewer.serving import served

pytestmark = needs_browser


def last(record: Any) -> Any:
    """The rule of the last stage that fired on each slot, (T, M)."""
    found = np.full(record.rule.shape[::2], -1)
    for stage in range(record.rule.shape[1]):
        found = np.where(record.rule[:, stage] >= 0, record.rule[:, stage], found)
    return found


def test_two_models_on_one_clock(browser: Any, site: str, runs: Any) -> None:
    one, two = (run.workbench.play(0) for run in runs[:2])
    with opened(browser, f"{site}&tab=compare") as page:
        page.get_by_label("Other model").select_option("1")
        for t in (0, 5, 12):
            seek(page, t)
            np.testing.assert_array_equal(pixels(page, 1), one.predicted[t])
            np.testing.assert_array_equal(pixels(page, 2), two.predicted[t])
        assert state_of(page)["with"] == 1
        captions = page.locator("#stage .caption").all_inner_texts()
        assert captions == ["True", "seed 0", "seed 1"]
        numbers = page.locator(".versus tr").nth(1).locator("td").all_inner_texts()
        means = [one.error[1:].mean(), two.error[1:].mean()]
        assert [float(x) for x in numbers] == pytest.approx(means, abs=0.006)


def test_the_shares_of_the_difference(browser: Any, site: str, runs: Any) -> None:
    a, b = (last(run.workbench.play(0).record) for run in runs[:2])
    fired = (a >= 0) | (b >= 0)
    with opened(browser, f"{site}&tab=compare&with=1") as page:
        shares = page.locator("#panel-compare .legend li").all_inner_texts()
        pairs = [
            tuple(int(text.split()[1]) for text in pair.split("↔"))
            for pair in page.locator(".pairs li").evaluate_all(
                "rows => rows.map(row => [...row.querySelectorAll('.rule-tag')]"
                ".map(tag => tag.lastChild.textContent).join(' ↔ '))"
            )
        ]
    # Each rule has at most one partner, and the pairs fire together.
    assert len({x for x, _ in pairs}) == len({y for _, y in pairs}) == len(pairs) > 0
    same = np.zeros_like(fired)
    for x, y in pairs:
        assert ((a == x) & (b == y)).any()
        same |= (a == x) & (b == y)
    counts = [
        same.sum(),
        ((a >= 0) & (b >= 0) & ~same).sum(),
        ((a >= 0) & (b < 0)).sum(),
        ((a < 0) & (b >= 0)).sum(),
    ]
    expected = [100 * count / fired.sum() for count in counts]
    assert [float(s.split(": ")[1].rstrip(" %")) for s in shares] == pytest.approx(expected, abs=1)


def test_rules_against_a_model_without_rules(browser: Any, site: str) -> None:
    with opened(browser, f"{site}&tab=compare&with=2") as page:
        assert "has no rules" in page.locator("#panel-compare").inner_text()
        assert page.locator("#stage figure").count() == 3
        page.get_by_role("tab", name="Why").click()
        assert page.locator("#stage figure").count() == 2


def test_the_model_that_was_compared_with_is_opened(browser: Any, site: str) -> None:
    """Not compared with itself; an error that the page does not catch would fail here."""
    with opened(browser, f"{site}&tab=compare&with=1") as page:
        assert page.locator("#stage figure").count() == 3
        page.locator("#model").select_option("1")
        seek(page, 3)
        assert (state_of(page)["model"], state_of(page)["with"]) == (1, None)
        assert page.locator("#stage figure").count() == 2
        assert page.locator(".versus").count() == 0
        assert page.get_by_label("Other model").input_value() == ""
    with opened(browser, f"{site}&tab=compare&model=1&with=1") as page:
        assert state_of(page)["with"] is None


def without(*rules: int) -> FakeWorkbench:
    bench = FakeWorkbench()
    bench.moves.rules.switch_off(*rules)
    return bench


@pytest.fixture(scope="module")
def family(tmp_path_factory: Any) -> Any:
    """A run, its edit with one rule alone, a run of another training that fires one rule, too, and
    one with a short training and encodings of its own."""
    folder = tmp_path_factory.mktemp("family")
    fired = last(FakeWorkbench().play(0).record)
    kept = np.bincount(fired[fired >= 0]).argmax()
    edits = {"disabled": [rule for rule in range(6) if rule != kept]}
    alone = without(*edits["disabled"])
    encoding = FakeWorkbench()
    encoding.encoder = "of its own"
    short = FakeRun(encoding, seed=2)
    short.card = {"changed": {"epochs": [15, 100]}, "note": "", "numbers": []}
    found = [
        FakeRun(FakeWorkbench(), 0, write_folder(folder / "plain", "a")),
        FakeRun(alone, 0, write_folder(folder / "one-rule", "a", edits)),
        FakeRun(alone, 1, write_folder(folder / "other", "b")),
        short,
    ]
    with served(Session(found)) as client:
        yield client.address, found


def shares(page: Any) -> list[float]:
    texts = page.locator("#panel-compare .legend li").all_inner_texts()
    return [float(text.split(": ")[1].strip("< %")) for text in texts]


def test_an_edited_run_is_compared_rule_by_rule(browser: Any, family: Any) -> None:
    address, runs = family
    one, two = (last(run.workbench.play(0).record) for run in runs[:2])
    with opened(browser, f"{address}&tab=compare&with=1") as page:
        assert "one run is an edit of the other" in page.locator("#panel-compare").inner_text()
        off = runs[1].workbench.moves.rules.off
        said = ", ".join(f"rule {rule} off" for rule in off)
        said = f"fake-grid, seed 0, edited as one-rule: {said}."
        assert said in page.locator("#panel-compare").inner_text()
        captions = page.locator("#stage .caption").all_inner_texts()
        assert captions == ["True", "fake-grid, seed 0", "edited as one-rule"]
        found = shares(page)
    fired = (one >= 0) | (two >= 0)
    same = (one == two) & fired
    assert 0 < same.sum() < fired.sum()
    assert found[0] == pytest.approx(100 * same.sum() / fired.sum(), abs=1)


def test_a_rule_that_always_fires_is_paired_with_none(browser: Any, family: Any) -> None:
    with opened(browser, f"{family[0]}&tab=compare&with=2") as page:
        assert page.locator(".pairs li").count() == 0
        assert "more often than by chance" in page.locator("#panel-compare").inner_text()
        assert shares(page)[0] == 0


def test_what_is_not_comparable_is_said(browser: Any, family: Any) -> None:
    with opened(browser, f"{family[0]}&tab=compare&with=3") as page:
        panel = page.locator("#panel-compare").inner_text()
        assert "fake-grid, seed 2: a short training, 15 of 100 epochs." in panel
        assert "distance: each model has encodings of its own" in panel
        heads = page.locator(".versus th").all_inner_texts()
        assert not {"mean", "last frame"} & set(heads)
        assert "frames right, of 12" in heads
    with opened(browser, f"{family[0]}&tab=compare&with=1") as page:
        heads = page.locator(".versus th").all_inner_texts()
        assert {"mean", "last frame"} <= set(heads)
        assert "a short training" not in page.locator("#panel-compare").inner_text()
