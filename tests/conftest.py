"""Shared settings: one torch thread, since the tests' tensors are tiny, no terminal colours,
assertions of helpers that say what they compared, and a line if there was no browser."""

import os
from typing import Any

import pytest
import torch

# Before they are imported.
pytest.register_assert_rewrite("tests.gradients", "tests.viewer.browser")
torch.set_num_threads(1)
os.environ.setdefault("COLUMNS", "200")
os.environ["NO_COLOR"] = "1"

from tests.viewer.browser import WITHOUT  # noqa: E402, its assertions are rewritten too


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say that tests of the page were skipped: with -q, pytest counts them and gives no reason."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(WITHOUT in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"Tests of the page that were skipped: {count}; {WITHOUT}")
