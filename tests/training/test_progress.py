"""The rate of a progress line says something at any speed, and the line fits the terminal."""

import json
import re

import pytest

from nps.training.progress import rate
from tests.terminal import in_terminal


@pytest.mark.parametrize(
    ("speed", "shown"),
    [
        (1234.5, "1234/s"),
        (10.4, "10/s"),
        (4.26, "4.3/s"),
        (1.0, "1/s"),
        (0.4, "2.5 s/epoch"),
        (0.01, "100 s/epoch"),
        (1e-4, "10000 s/epoch"),
    ],
)
def test_a_rate_is_never_zero(speed, shown):
    assert rate(speed, "epochs") == shown


SHOW = """
import json, sys, time
from nps.training.progress import ProgressLine

title, unit, metrics = json.loads(sys.argv[1])
with ProgressLine(title, 12000, 0, unit) as line:
    for done in range(68):
        line.update(done, metrics)
        time.sleep(0.01)
    line.update(8068, metrics)
"""
LOSSES = {"loss": 0.123456, "positive": 0.123456, "negative": 0.654321}


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize(
    ("title", "unit", "metrics"),
    [
        ("runs/[red]k2", "steps", LOSSES),
        ("runs/" + "of a long name " * 5, "steps", LOSSES),
        ("minigrid:MiniGrid-MultiRoom-N2-S4-v0-of-a-long-name", "episodes", None),
    ],
)
def test_counts_and_the_time_left_are_whole_at_any_width(columns, title, unit, metrics):
    code, shown = in_terminal("-c", SHOW, json.dumps([title, unit, metrics]), columns=columns)
    assert code == 0, shown
    last = [line for line in shown.replace("\r", "\n").split("\n") if "8068" in line][-1]
    assert re.search(r" 67% +8068/12000 ", last)
    assert re.search(r"/s +\d:\d\d:\d\d", last)
    assert len(last) <= columns
    assert last.startswith(title[:3])
    assert "loss" in last if metrics and columns >= 80 else True
    assert columns < 120 or len(title) > 20 or title in last
