"""`nps push` and `nps pull` with the hub's own client, against a hub on the loopback."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import nps
from tests.zoo import hub_server
from tests.zoo.made import commands, tiny_run

pytest.importorskip("huggingface_hub", reason="needs the extra hub")


DRIVER = """
import json, os, sys
from tests.zoo.made import ended
for line in sys.stdin:
    asked = json.loads(line)
    os.environ.pop("HF_TOKEN", None)
    os.environ.update(asked["environment"])
    print(json.dumps(ended(*asked["args"])), file=sys.__stdout__, flush=True)
"""
"""Runs one command after the other. In a process of its own, since the client reads some of its
environment when it is imported."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("made") / "tiny")


@pytest.fixture(scope="module")
def server():
    with hub_server.running() as hub:
        yield hub


@pytest.fixture
def hub(server):
    server.repos.clear()
    server.private.clear()
    return server


def started(home, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    always = {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**kept, **always, **environment},
        cwd=Path(__file__).parents[2],
    )


def ask(driver, *args, code=0, token=hub_server.TOKEN):
    """Standard output and error of a command."""
    environment = {"HF_TOKEN": token} if token else {}
    asked = {"args": [str(arg) for arg in args], "environment": environment}
    driver.stdin.write(json.dumps(asked) + "\n")
    driver.stdin.flush()
    ended, out, err = json.loads(driver.stdout.readline())
    assert ended == code, err
    return out, err


@pytest.fixture(scope="module")
def driver(server, tmp_path_factory):
    with started(tmp_path_factory.mktemp("home"), HF_ENDPOINT=server.address) as driver:
        yield driver
        driver.stdin.close()


@pytest.fixture
def call(driver):
    return partial(ask, driver)


def last_line(text):
    return text.strip().splitlines()[-1]


def test_a_model_comes_back_as_it_was(run, hub, call, tmp_path):
    out, _ = call("push", run, "me/tiny", "--licence", "apache-2.0", "--private")
    assert last_line(out) == f"{hub.address}/me/tiny: uploaded"
    files = hub.repos["me/tiny"]
    assert set(files) >= {"config.json", "model.safetensors", "card.json", "README.md"}
    assert "me/tiny" in hub.private
    for name, data in files.items():  # nothing of this machine
        assert str(run.parent).encode() not in data, name
    readme = files["README.md"].decode()
    assert readme.startswith("---\nlicense: apache-2.0\nlibrary_name: nps\n")
    test = json.loads((run / "test.json").read_text())
    assert f"| Error (MSE) | {test['mse']:.3g} |" in readme

    out, _ = call("pull", "me/tiny", "--out", tmp_path / "back")
    assert "arithmetic, seed 3" in out
    back, original = nps.load(tmp_path / "back"), nps.load(run)
    states = back.model.state_dict(), original.model.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert back.card["test"]["mse"] == test["mse"]
    hidden = {path.name for path in (tmp_path / "back").iterdir()} - set(files)
    assert not hidden  # such as the client's own cache

    commands("eval", str(tmp_path / "back"))
    again = json.loads((tmp_path / "back" / "test.json").read_text())
    assert again["mse"] == pytest.approx(test["mse"])


def test_a_file_that_was_changed_on_the_hub_is_refused(run, hub, call, tmp_path):
    call("push", run, "me/tiny")
    weights = bytearray(hub.repos["me/tiny"]["model.safetensors"])
    weights[-1] ^= 1
    hub.repos["me/tiny"]["model.safetensors"] = bytes(weights)
    _, err = call("pull", "me/tiny", "--out", tmp_path / "back", code=2)
    assert "the sha256 of model.safetensors differs" in last_line(err)
    assert not list(tmp_path.glob("*back*"))

    hub.repos["me/tiny"]["model.safetensors"] = bytes(weights) + bytes(1000)
    _, err = call("pull", "me/tiny", "--out", tmp_path / "back", code=2)
    assert "expected at most" in last_line(err)

    card = json.loads(hub.repos["me/tiny"]["card.json"])
    card["files"]["../evil"] = card["files"]["model.safetensors"]
    hub.repos["me/tiny"]["card.json"] = json.dumps(card).encode()
    _, err = call("pull", "me/tiny", "--out", tmp_path / "back", code=2)
    assert "it lists '../evil'" in last_line(err)


def test_mistakes_are_one_line(run, hub, call, tmp_path):
    hub.repos["me/other"] = {"pytorch_model.bin": b"\x80"}
    out = ("--out", tmp_path / "back")
    for args, token, code, expected in (
        (("push", run, "me/tiny"), "", 2, "no token for the hub"),
        (("push", run, "me/tiny"), "hf_wrong", 1, "401"),
        (("push", run, "me"), "", 2, "expected owner/name"),
        (("push", run), "", 2, "expected REPO after it"),
        (("push", run, "me/tiny", "--licence", "a: b"), "", 2, "--licence: got 'a: b'"),
        (("push", "no-such-model", "me/tiny"), "", 2, "no model of this name"),
        (("pull", "me/none", *out), "", 2, "no such repository"),
        (("pull", "me/other", *out), "", 2, "not a model of nps"),
        (("pull", "me/tiny", "--out", run), "", 2, "exists already"),
    ):
        _, err = call(*args, code=code, token=token)
        assert expected in last_line(err), err
        assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("environment", "code", "expected"),
    [
        ({"HF_HUB_OFFLINE": "1"}, 2, "offline"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, 1, "cannot reach the hub"),
    ],
)
def test_without_the_hub_there_is_one_line(tmp_path, environment, code, expected):
    with started(tmp_path, **environment) as driver:
        _, err = ask(driver, "pull", "me/tiny", "--out", tmp_path / "back", code=code)
        driver.stdin.close()
    assert expected in last_line(err)
    assert not (tmp_path / "back").exists()


def test_a_missing_extra_is_named(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # as if it were not installed
    for args in (("push", str(run), "me/tiny"), ("pull", "me/tiny", "--out", str(tmp_path / "b"))):
        _, err = commands(*args, code=2)
        assert "pip install 'neural-production-systems[hub]'" in last_line(err)
