"""What stands left of the time line's lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nps.viewer.session import Session
from tests.viewer.browser import needs_browser, opened, until
from tests.viewer.fake import FakeRun, FakeWorkbench
from tests.viewer.serving import served
from tests.viewer.test_page_looks import SPY

NAME = "squared distance to the true encoding"


@needs_browser
@pytest.mark.parametrize(("width", "whole"), [(400, False), (1240, True)])
def test_the_error_is_named_whole_or_in_brief(browser: Any, width: int, whole: bool) -> None:
    """A part of its name tells less than that it is the error."""
    bench = FakeWorkbench()
    played = replace(bench.play(0), error_name=NAME)
    bench.play = lambda *_: played  # type: ignore[method-assign]
    with served(Session([FakeRun(bench)])) as client, opened(browser, client.address, 900) as page:
        page.evaluate(SPY)
        page.set_viewport_size({"width": width, "height": 900})
        until(page, "written.includes('step')")
        written = page.evaluate("written")
        assert not [text for text in written if "…" in text]
        assert ("error" in written) == (not whole)
        assert (NAME in " ".join(written)) == whole
