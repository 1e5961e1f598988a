"""Compare: two models on one episode and one clock, and the raster of their difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.viewer.browser import needs_browser, opened, pixels, seek
from tests.viewer.browser import state as state_of

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
