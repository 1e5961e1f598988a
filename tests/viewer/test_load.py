"""Long episodes: opening one of 10,000 frames, and the memory that playing it takes.

Times are of this process's processor, since the machine may be busy with something else.
"""

import json
import time

import pytest

from nps.viewer import session as sessions
from nps.viewer.routes import answer
from nps.viewer.session import Session
from tests.viewer.fake import FakeRun, FakeWorkbench

FRAMES = 10_000


class Recorded(FakeWorkbench):
    """A long episode that is there already: what takes time is the viewer's own work."""

    def __init__(self) -> None:
        super().__init__(slots=10, rules=32, steps=FRAMES, episodes=1, fast=True)
        self.whole = super().play(0)

    def play(self, episode, edits=None):
        return self.whole


@pytest.fixture(scope="module")
def bench() -> Recorded:
    return Recorded()


def test_ten_thousand_frames_open_in_three_seconds(bench):
    session = Session([FakeRun(bench)])
    begin = time.process_time()
    json.dumps(answer(session, "/api/models", {}))
    opened = answer(session, "/api/play", {"model": 0, "episode": 0, "edits": {}})
    text = json.dumps(opened)
    first = [
        answer(session, "/api/frames", {"play": opened["play"], "kind": kind, "sheet": 0})
        for kind in ("true", "predicted", "masks")
    ]
    took = time.process_time() - begin
    assert opened["steps"] == FRAMES
    assert took < 3.0
    # What is sent before anything is shown: no frames but those of the first sheets.
    assert len(text) + sum(len(sheet.data) for sheet in first) < 5_000_000


def test_sheets_are_forgotten(bench, monkeypatch):
    """Whatever was looked at, the sheets in memory stay within their bytes."""
    monkeypatch.setattr(sessions, "SHEET_BYTES", 20_000)
    session = Session([FakeRun(bench)])
    play = answer(session, "/api/play", {"model": 0, "episode": 0})["play"]
    for sheet in range(FRAMES // 64 + 1):
        answer(session, "/api/frames", {"play": play, "kind": "true", "sheet": sheet})
        assert session._sheets.bytes <= 20_000
    assert len(session._sheets) < 20
