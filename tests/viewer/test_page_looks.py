"""What holds of the whole page: narrow and dark windows, the keyboard, its size, its language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nps.viewer
from nps.viewer.session import Session
from tests.viewer.browser import needs_browser, opened, until
from tests.viewer.browser import state as state_of
from tests.viewer.fake import FakeRun, FakeWorkbench
from tests.viewer.serving import served

STATIC = Path(nps.viewer.__file__).parent / "static"
BUDGET = 150_000
"""Bytes of scripts."""


@needs_browser
@pytest.mark.parametrize("tab", ["why", "whatif", "rules", "play", "compare"])
def test_nothing_is_wider_than_a_narrow_window(browser: Any, site: str, tab: str) -> None:
    with opened(browser, f"{site}&t=2&with=1&tab={tab}", width=400) as page:
        page.wait_for_timeout(500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        small = page.evaluate(
            """() => [...document.querySelectorAll('button, select, input')]
                .filter((node) => node.offsetParent && node.getBoundingClientRect().width < 16)
                .map((node) => node.outerHTML)"""
        )
        assert small == []


SPY = """() => {
    window.written = [];
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
        window.written.push(String(text));
        fillText.call(this, text, ...place);
    };
}"""
"""Records what the time line writes."""


@contextmanager
def eventful(browser: Any, events: tuple[str, ...], width: int = 1280) -> Iterator[Any]:
    """The page of an episode with these events."""
    bench = FakeWorkbench(steps=len(events))
    played = replace(bench.play(0), events=events)
    bench.play = lambda *_: played  # type: ignore[method-assign]
    with (
        served(Session([FakeRun(bench)])) as client,
        opened(browser, client.address, width) as page,
    ):
        yield page


@needs_browser
@pytest.mark.parametrize(("steps", "in_words"), [(4, True), (6, False), (12, False)])
def test_names_in_a_narrow_time_line_are_whole(browser: Any, steps: int, in_words: bool) -> None:
    """In lines where these fit; else events are dots, and the line under the frames says them."""
    with eventful(browser, ("blocked by 0", *["free"] * (steps - 1))) as page:
        page.evaluate(SPY)
        page.set_viewport_size({"width": 400, "height": 900})
        until(page, "written.includes('distance')")
        written = page.evaluate("written")
        assert not [text for text in written if "…" in text]
        assert ("blocked by" in written) == ("free" in written) == in_words
        assert "blocked by 0" in page.locator("#now").inner_text()


@needs_browser
def test_a_long_event_is_told_whole_in_a_narrow_window(browser: Any) -> None:
    event = "collision of 1 and 2, bounce of 0, bounce of 1, bounce of 2"
    fits = "n => n.scrollWidth <= n.clientWidth && n.scrollHeight <= n.clientHeight"
    with eventful(browser, (event,) * 12, width=400) as page:
        line = page.locator("#now")
        assert event in line.inner_text()
        assert line.evaluate(fits)
        assert line.locator(":scope > :last-child").evaluate(fits)


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable(browser: Any, site: str, scheme: str) -> None:
    """Contrast of 4.5 between all text and what lies under it, as the guidelines ask."""
    with opened(browser, f"{site}&t=2", color_scheme=scheme) as page:
        page.locator("#panel-why .lead").wait_for()
        poor = page.evaluate(CONTRAST)
        assert poor == []
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", background)[:3])) > 384) == (scheme == "light")


CONTRAST = """() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    };
    const light = ([r, g, b]) => {
        const part = (x) => (x / 255 <= 0.03928 ? x / 3294.6 : ((x / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const under = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const colour = rgba(getComputedStyle(at).backgroundColor);
            if (colour[3] > 0.9) return colour;
        }
        return [255, 255, 255, 1];
    };
    const poor = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
        if (node.closest('svg, .hidden, :disabled, option, .swatch, .cell')) continue;
        const [a, b] = [light(rgba(getComputedStyle(node).color)), light(under(node))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) poor.push([walker.currentNode.data, contrast.toFixed(2)]);
    }
    return poor;
}"""


@needs_browser
def test_everything_is_reached_by_the_keyboard(browser: Any, site: str) -> None:
    with opened(browser, f"{site}&tab=whatif") as page:
        reached = []
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("document.activeElement.getAttribute('aria-label') ?? "
                              "document.activeElement.textContent")
            )  # fmt: skip
        for name in ("Play", "Frame", "Speed", "Share", "rule 0 on", "Rule that fires"):
            assert name in reached, name
        page.get_by_role("tab", name="What if").focus()
        page.keyboard.press("ArrowRight")
        assert state_of(page)["tab"] == "rules"
        page.keyboard.press("?")
        assert page.get_by_role("dialog", name="Keys").is_visible()
        page.keyboard.press("Escape")
        assert page.get_by_role("dialog").count() == 0


@needs_browser
def test_everything_that_is_used_has_a_name(browser: Any, site: str) -> None:
    with opened(browser, f"{site}&tab=whatif") as page:
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('button, input, select, [role=img]')]
                .filter((n) => !n.getAttribute('aria-label') && !n.textContent.trim()
                    && !n.labels?.length)
                .map((n) => n.outerHTML)"""
        )
        assert nameless == []


def test_the_code_is_small_plain_and_of_this_page_only() -> None:
    sources = {path.name: path.read_text() for path in STATIC.iterdir()}
    assert sum(len(text.encode()) for name, text in sources.items() if name[-3:] == ".js") < BUDGET
    for name, source in sources.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(", source)
        found = re.findall(r"https?://[^\s\"'`]*", source)
        assert set(found) <= {"http://www.w3.org/2000/svg"}, name


def test_names_are_unique_and_imports_have_no_circles() -> None:
    """So that the modules can be joined into the frozen page's one."""
    owner: dict[str, str] = {}
    imports: dict[str, set[str]] = {}
    for path in STATIC.glob("*.js"):
        source = path.read_text()
        imports[path.name] = set(re.findall(r'^import .* from "\./(.+)";$', source, re.M))
        declared = r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)"
        for name in re.findall(declared, source, re.M):
            assert owner.setdefault(name, path.name) == path.name, name
    while imports:
        ready = [name for name, needs in imports.items() if not needs & set(imports)]
        assert ready, f"a circle among {sorted(imports)}"
        for name in ready:
            del imports[name]
