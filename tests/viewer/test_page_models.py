"""The models that ship, in the page: every tab opens, Space plays, and nothing goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import nps
from nps import zoo
from nps.errors import UserError
from nps.viewer.session import Session
from tests.viewer.browser import needs_browser, opened, state, until
from tests.viewer.serving import served

pytestmark = needs_browser


@pytest.fixture
def run(request: Any, monkeypatch: Any) -> Any:
    """A model that ships, its rules described by few episodes."""
    run = nps.load(request.param)
    # Tests download no digits and play no game for a minute: they take the files that are here.
    monkeypatch.setattr("nps.worlds.collection._fetch", lambda search, cache, report: None)
    monkeypatch.setattr("nps.experiments.atari.data.provide", refuse)
    try:
        run.workbench.described = 1
    except UserError as error:
        if run.experiment not in ("atari", "mnist"):
            raise
        pytest.skip(str(error))
    return run


def refuse(*_: Any) -> str:
    raise UserError("no file of the game")


@pytest.fixture
def page(browser: Any, run: Any) -> Iterator[Any]:
    with (
        served(Session([run])) as client,
        opened(browser, f"{client.address}&slot=0&t=1") as found,
    ):
        found.set_default_timeout(60_000)
        yield found


def tab(page: Any, name: str) -> Any:
    page.get_by_role("tab", name=name, exact=True).click()
    return page.locator(f"#panel-{name.lower().replace(' ', '')}")


def complaint(page: Any) -> str | None:
    """The page catches what the server refuses, and says it at its foot."""
    shown: str | None = page.evaluate(
        "(() => { const line = document.getElementById('message');"
        " return line.hidden || line.className !== 'error' ? null : line.textContent; })()"
    )
    return shown


@pytest.mark.parametrize("run", zoo.names(), indirect=True)
def test_every_tab_of_a_model_that_ships_opens(page: Any, run: Any) -> None:
    bench = run.workbench
    has_rules = bench.layer is not None
    for name in ("Why", "What if"):
        panel = tab(page, name)
        until(page, f"document.getElementById('{panel.get_attribute('id')}').innerText.length > 40")
    panel = tab(page, "Rules")
    panel.locator(".rule-card" if has_rules else ".lead").first.wait_for()
    panel = tab(page, "Compare")
    panel.get_by_text("One model is open").wait_for()
    panel = tab(page, "Play")
    try:
        missing = "cannot be stepped" if bench.world(0) is None else ""
    except UserError as error:  # of its environment, which is told
        missing = str(error)[:40]
    if missing:
        panel.get_by_text(missing).wait_for()
    else:
        panel.get_by_role("button", name="Start").click()
        until(page, "nps.state().steps === 0", 60)
        panel.locator(".key:not([disabled]), .chip[data-key^='act']").first.click()
        until(page, "nps.state().steps === 1", 60)
    assert complaint(page) is None

    tab(page, "Why")
    page.locator("body").press("Home")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    until(page, "nps.state().t >= 2")
    page.keyboard.press("Space")
    assert state(page)["t"] <= bench.play(0).steps
    assert complaint(page) is None
