"""A browser, and the real server with models that need no training, for the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.viewer.browser import CHROMIUM, REQUIRED, WITHOUT, launched


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None and not REQUIRED:
        pytest.skip(WITHOUT)
    with launched() as found:
        yield found


@pytest.fixture(scope="session")
def runs() -> Any:
    """Models 0 and 1 show the same episodes, the second in two stages; 2 has no rules."""
    from tests.viewer.fake import FakeRun, FakeWorkbench

    return [
        FakeRun(FakeWorkbench()),
        FakeRun(FakeWorkbench(rules=12, stages=2), seed=1),
        FakeRun(FakeWorkbench(with_rules=False), seed=3),
    ]


@pytest.fixture(scope="session")
def site(runs: Any) -> Iterator[str]:
    """The address of the page with these models, token included."""
    from nps.viewer.session import Session
    from tests.viewer.serving import served

    with served(Session(runs)) as client:
        yield client.address
