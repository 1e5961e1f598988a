"""A real Chromium for the tests of the page.

Nothing beyond the loopback resolves, a request there fails the test, and so does an error that the
page does not catch. Without a Chromium these tests are skipped, unless NPS_REQUIRE_BROWSER=1.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

CHROMIUM = shutil.which("chromium")
REQUIRED = os.environ.get("NPS_REQUIRE_BROWSER") == "1"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
LOCAL = {"127.0.0.1", "", None}

WITHOUT = "chromium is not installed: apt install chromium"
"""Why tests are skipped; the last line of a run says it."""

needs_browser = pytest.mark.skipif(CHROMIUM is None and not REQUIRED, reason=WITHOUT)


@contextmanager
def launched() -> Iterator[Any]:
    """A browser without windows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, address: str, width: int = 1280, **options: Any) -> Iterator[Any]:
    """The page at an address once it is ready; afterwards it must have stayed on the loopback."""
    settings = {"viewport": {"width": width, "height": 900}, "reduced_motion": "reduce"}
    context = browser.new_context(**{**settings, **options})
    page = context.new_page()
    page.set_default_timeout(15_000)
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    page.on("request", lambda request: _check(request.url, mistakes))
    try:
        page.goto(address)
        page.evaluate("nps.ready")
        yield page
    finally:
        context.close()
    assert not mistakes, mistakes


def _check(url: str, mistakes: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in LOCAL:
        mistakes.append(f"a request to {url}")


def seek(page: Any, t: int) -> None:
    """Show frame t and wait until it is drawn."""
    page.evaluate("t => nps.seek(t)", t)


def state(page: Any) -> dict[str, Any]:
    return page.evaluate("nps.state()")


def until(page: Any, expression: str, seconds: float = 15.0) -> None:
    """Wait for something to be true in the page, whose policy allows no waiting by script."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never: {expression}"
        page.wait_for_timeout(30)


def pixels(page: Any, number: int) -> Any:
    """What the n-th picture shows, (H, W, 3)."""
    return canvas(page.locator("#stage canvas.pixels").nth(number))[..., :3]


def canvas(locator: Any) -> Any:
    """The pixels of a canvas, (H, W, 4)."""
    width, height, data = locator.evaluate(
        """c => {
            const image = c.getContext('2d').getImageData(0, 0, c.width, c.height);
            return [c.width, c.height, [...image.data]];
        }"""
    )
    return np.array(data, np.uint8).reshape(height, width, 4)


def cell(page: Any, step: float, slot: int) -> tuple[float, float]:
    """Where the raster's cell of a step and a slot is in the window, for a mouse."""
    spot = page.evaluate("([step, slot]) => nps.cell(step, slot)", [float(step), int(slot)])
    return spot["x"], spot["y"]


def click_cell(page: Any, step: int, slot: int) -> None:
    page.mouse.click(*cell(page, step, slot))


def colour_at(page: Any, x: float, y: float) -> tuple[int, int, int]:
    """Of the time line's canvas, at a place in the window."""
    found = page.locator("#timeline .plot canvas").evaluate(
        """(c, [x, y]) => {
            const box = c.getBoundingClientRect();
            return [...c.getContext('2d').getImageData(x - box.left, y - box.top, 1, 1).data];
        }""",
        [x, y],
    )
    return tuple(found[:3])
