"""One error is one line, whatever the names in it contain and whatever the system refuses."""

import errno
import os
import subprocess
import sys

import pytest

from nps import cli
from nps.errors import LONGEST, RunFailed, UserError, one_line, say
from tests.test_cli import call


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, é, 本, ± 2…", "plain, é, 本, ± 2…"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31mred\x00", "\\x1b[31mred\\x00"),
        ("\udcff\u2028", "\\udcff\\u2028"),
    ],
)
def test_control_characters_are_escaped_once(text, shown, capsys):
    assert one_line(text) == one_line(one_line(text)) == shown
    assert str(UserError(text)) == str(RunFailed(text)) == shown
    say(text)
    assert capsys.readouterr().err == f"nps: {shown}\n"


def test_a_message_has_an_end():
    assert len(one_line("x" * 10**6)) < LONGEST + 10


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2Jx", "x" * 300, "y/" * 3000, "a\udcffb"])
@pytest.mark.parametrize(
    "command",
    [
        ("eval", "{}"),
        ("inspect", "{}"),
        ("table", "{}"),
        ("table", "--add", "{}", "--to", "results"),
        ("eval", "run", "--data", "{}"),
        ("train", "world-model", "--data", "{}", "--out", "run"),
        ("train", "arithmetic", "--epochs=1", "--out", "{}/config.json/x"),
    ],
)
def test_names_that_are_too_long_or_no_text_are_one_line(tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    for part in (tmp_path / "a\nb", tmp_path / "\x1b[2Jx", tmp_path / "a\udcffb"):
        part.mkdir()
        (part / "config.json").write_text("{}")
    with pytest.raises(SystemExit) as stop:
        cli.main([part.format(name) for part in command])
    assert stop.value.code in (1, 2)


@pytest.mark.parametrize("name", ["a\nb", "x" * 300])
def test_the_line_itself(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    _, err = call("eval", name, code=2)
    assert err.startswith("nps: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "f"), "f: No space left on device"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "starts no more threads"),
    ],
)
def test_what_the_system_refuses_is_one_line(monkeypatch, error, why):
    def refuse(args):
        raise error

    monkeypatch.setitem(cli.COMMANDS, "presets", refuse)
    _, err = call("presets", code=1)
    assert err.startswith("nps: error: ")
    assert why in err
    assert err.count("\n") == 1


def test_a_mistake_of_ours_is_not_hidden(monkeypatch):
    def wrong(args):
        raise RuntimeError("a bug")

    monkeypatch.setitem(cli.COMMANDS, "presets", wrong)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["presets"])


def test_output_to_a_full_disk_is_one_line():
    command = [sys.executable, "-m", "nps", "presets"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "nps: error: No space left on device\n"
