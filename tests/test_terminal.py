"""What a user sees in a real terminal, at any width, with and without colours."""

import json

import pytest

from nps import zoo
from nps.errors import nearest
from tests.terminal import in_terminal

NO_RUN = f"no such run folder, and no model of this name{nearest('', zoo.names())}"
MISTAKES = {
    "missing required": (["train", "world-model"], "nps train world-model: --out is required"),
    "unknown flag": (
        ["train", "arithmetic", "--out=x", "--rule=3"],
        "nps train arithmetic: unknown flag --rule; did you mean --rules?",
    ),
    "wrong type": (
        ["train", "arithmetic", "--out=x", "--rules", "two"],
        "nps train arithmetic: --rules: got 'two', expected an integer",
    ),
    "wrong choice": (
        ["data", "atari", "--game=pang"],
        "nps data atari: --game: got 'pang', expected one of all, pong, space_invaders, freeway, "
        "breakout, qbert",
    ),
    "wrong value": (
        ["train", "arithmetic", "--out=x", "--rules=0"],
        "nps train arithmetic: rules: got 0, expected at least 1",
    ),
    "extra argument": (
        ["train", "arithmetic", "--out=x", "more"],
        "nps train arithmetic: unexpected argument 'more'",
    ),
    "no value": (
        ["eval", "x", "--which"],
        "nps eval RUN: --which: got no value, expected one of best, last",
    ),
    "value of a switch": (
        ["run", "arithmetic", "--quick=yes"],
        "nps run arithmetic: --quick: got 'yes', expected no value",
    ),
    "misspelt command": (["trian"], "unknown command 'trian'; did you mean train?"),
    "misspelt preset": (
        ["train", "arithmetik", "--out=x"],
        "unknown preset 'arithmetik'; did you mean arithmetic?",
    ),
    "a line break in a name": (["eval", "no\nwhere"], rf"no\nwhere: {NO_RUN}"),
    "a long name": (["eval", "a" * 200], f"{'a' * 200}: {NO_RUN}"),
}

EACH_OF = """
import json, sys
from nps.cli import main

for args in json.loads(sys.argv[1]):
    try:
        main(args)
    except SystemExit as stop:
        print("exit", stop.code)
"""


@pytest.mark.parametrize("terminal", [{"columns": 40}, {"columns": 80}, {"columns": 200},
    {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "latin-1"}], ids=str)  # fmt: skip
def test_a_mistake_is_one_whole_line_in_any_terminal(tmp_path, monkeypatch, terminal):
    """All mistakes in one process: only the arguments and the terminal matter here."""
    monkeypatch.chdir(tmp_path)
    commands = json.dumps([args for args, _ in MISTAKES.values()])
    code, shown = in_terminal("-c", EACH_OF, commands, **terminal)
    assert code == 0, shown
    expected = [f"nps: error: {message}\nexit 2\n" for _, message in MISTAKES.values()]
    assert shown == "".join(expected)
    assert list(tmp_path.iterdir()) == []
