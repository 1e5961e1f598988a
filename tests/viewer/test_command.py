"""`nps view` and `nps inspect --html` as users meet them, on a run of two steps."""

import os
import re
import signal
import sys
import webbrowser

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from nps.commands import view
from nps.experiments.blocks.workbench import BlocksWorkbench
from tests.experiments.test_blocks import TINY
from tests.test_cli import call, start
from tests.viewer.serving import Client


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "blocks" / "seed-0"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    call("train", "blocks-fixed-nps", f"--out={folder}", "--epochs=1", *flags)
    return str(folder)


def test_it_prints_an_address_that_answers_and_ends_by_ctrl_c(run):
    process = start("view", run, "--no-open")
    with process:
        lines = []
        while not lines or not lines[-1].startswith("http://"):
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        address = lines[-1].strip()
        client, token = Client(address), address.partition("#token=")[2]
        headers = {"Authorization": f"Bearer {token}"}
        assert client.send("POST", "/api/models", b"{}").status == 401
        answer = client.send("POST", "/api/models", b"{}", headers)
        (model,) = answer.json["models"]
        assert model["title"] == "blocks-fixed-nps, seed 0"
        assert model["plays"]
        assert client.send("GET", "/").status == 200
        assert process.stdout.readline() == "Ctrl-C ends it.\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "nps view: expected RUN first, e.g. nps view blocks-best"),
        (["{run}", "--port=99999"], "--port: got 99999, expected 0 to 65535"),
        (["{run}", "--port=x"], "--port"),
        (["{run}", "nowhere/at-all"], "nowhere/at-all: no such run folder"),
        (["{run}", "--data=nowhere"], "--data: no such folder or file: nowhere"),
        (["{run}", "--opne"], "unknown flag --opne"),
    ],
)
def test_mistakes_are_one_line(run, args, message):
    _, err = call("view", *(arg.format(run=run) for arg in args), code=2)
    assert message in err
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(run):
    from nps.viewer.serve import prepare

    taken = prepare()
    port = taken.port
    with taken.listener:
        _, err = call("view", run, f"--port={port}", code=1)
    assert f"--port {port}: Address already in use" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_what_is_not_installed_is_one_line(run, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    out, err = call("view", run, code=2)
    assert "nps view needs Starlette and uvicorn: pip install 'neural" in err
    assert "[viewer]" in err
    assert out == ""  # said before anything is loaded


def test_the_browser_is_opened_only_where_there_is_one(run, monkeypatch):
    opened = []
    monkeypatch.setattr("nps.viewer.serve.run", lambda serving, session: serving.listener.close())
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    call("view", run)
    assert opened == []
    monkeypatch.setitem(os.environ, "DISPLAY", ":0")
    call("view", run, "--no-open")
    assert opened == []
    out, _ = call("view", run, run)  # twice the same is allowed
    assert opened == re.findall(r"http://\S+", out)


def test_help(run):
    out, _ = call("view", "--help")
    assert "nps view RUN" in out
    assert "--no-open" in out
    assert "nps view" in call("--help")[0]
    assert view.__doc__


def test_a_frozen_page_of_a_run(run, tmp_path):
    path = tmp_path / "new" / "page.html"
    out, _ = call("inspect", run, "--html", str(path), "--episode=1")
    assert "episode 1, one page of" in out
    text = path.read_text()
    assert text.startswith("<!doctype html>")
    assert str(tmp_path) not in text  # nothing of this machine
    assert run not in text
    assert list(path.parent.iterdir()) == [path]


def test_a_frozen_page_opens_where_the_viewer_does(run, tmp_path, monkeypatch):
    monkeypatch.setattr(BlocksWorkbench, "opening", 1)
    out, _ = call("inspect", run, "--html", str(tmp_path / "page.html"))
    assert "episode 1, one page of" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--html=p.png"], "--html: got p.png, expected a name ending in .html"),
        (["--html=p.html", "--episode=9999"], "--episode: got 9999, expected 0 to"),
        (["--html=p.html", "--out=p.png"], "--out: expected --html or --out, not both"),
        (["--html=p.html", "--on=default"], "--on: the page of --html shows the validation set"),
    ],
)
def test_mistakes_in_freezing_are_one_line(run, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    _, err = call("inspect", run, *args, code=2)
    assert message in err
    assert list(tmp_path.iterdir()) == []
