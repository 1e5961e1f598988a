"""The interface against the real server: what the page asks, and what comes back."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from nps.inspect.edits import Acted, Edits
from nps.inspect.explanations import explain
from nps.viewer import session as sessions
from nps.viewer.session import Session
from tests.viewer.fake import FakeRun, FakeWorkbench
from tests.viewer.serving import TOKEN, Client, served


def some_runs():
    plain, other, without = (
        FakeWorkbench(),
        FakeWorkbench(rules=12, stages=2),
        FakeWorkbench(with_rules=False),
    )
    return [FakeRun(plain), FakeRun(other, seed=1), FakeRun(without, seed=2)]


@pytest.fixture(scope="module")
def client():
    with served(Session(some_runs())) as found:
        yield found


def error(client, route, **body) -> str:
    answer = client.send("POST", f"/api/{route}", json.dumps(body).encode())
    assert answer.status == 400, answer
    return answer.json["error"]


def unpacked(text, kind, *shape):
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


# -- models and playbacks -------------------------------------------------------------------------


def test_models(client):
    plain, other, without = client.call("models")["models"]
    assert plain["title"] == "fake-grid, seed 0"
    assert plain["rules"] == [f"rule {i}" for i in range(6)]
    assert (plain["stages"], other["stages"], without["stages"]) == (1, 2, 0)
    assert plain["slots"] == ["block 0", "block 1", "block 2"]
    assert plain["keys"]["ArrowUp"] == [0, 4, 8]
    assert plain["actions"][4] == "block 1 up"
    assert (plain["drags"], plain["plays"], plain["decodes"]) == (True, True, True)
    assert (plain["kind"], without["kind"]) == ("sequential", "none")
    assert without["rules"] == []
    assert plain["metrics"] == {"distance": 0.25}


def test_an_episode_is_what_the_workbench_plays(client):
    found = client.call("play", model=1, episode=3, edits={})
    playback = FakeWorkbench(rules=12, stages=2).play(3)
    assert found["title"] == "episode 3"
    assert found["base"] is None
    np.testing.assert_array_equal(unpacked(found["rule"], "<i2", 12, 2, 3), playback.record.rule)
    np.testing.assert_array_equal(unpacked(found["places"], "<f4", 13, 3, 2), playback.places)
    assert client.call("play", model=1, episode=3)["play"] == found["play"]  # no edits by default


def test_two_models_show_the_same_episode(client):
    same = [client.call("play", model=model, episode=2)["same"] for model in (0, 1, 2)]
    assert len(set(same)) == 1
    assert client.call("play", model=0, episode=1)["same"] not in same


def test_edits_are_compared_with_the_episode_as_it_is(client):
    base = client.call("play", model=0, episode=0)
    used = unpacked(base["rule"], "<i2", 12, 1, 3)
    rule = int(used[used >= 0][0])
    found = client.call("play", model=0, episode=0, edits={"disabled": [rule]})
    assert found["play"] != base["play"]
    assert found["base"]["play"] == base["play"]
    assert found["base"]["error"] == base["error"]
    first = int(np.argwhere(used == rule)[0, 0]) + 1
    assert found["base"]["first_difference"] == found["base"]["first_change"] == first
    assert rule not in unpacked(found["rule"], "<i2", 12, 1, 3)


def test_an_edit_without_effect_parts_nowhere(client):
    actions = client.call("play", model=0, episode=0)["actions"]
    edits = {"acted": [{"step": 3, "action": actions[3]}]}
    found = client.call("play", model=0, episode=0, edits=edits)
    assert found["base"]["first_difference"] is found["base"]["first_change"] is None


def test_a_model_without_rules(client):
    found = client.call("play", model=2, episode=0)
    assert (found["rule"], found["context"], found["rules"]) == (None, None, 0)


def test_frames(client):
    play = client.call("play", model=0, episode=0)["play"]
    for kind in ("true", "predicted", "masks"):
        body = json.dumps({"play": play, "kind": kind, "sheet": 0}).encode()
        answer = client.send("POST", "/api/frames", body)
        assert answer.headers["content-type"] == "image/png"
        assert answer.body.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("route", "body", "message"),
    [
        ("play", {"model": 9, "episode": 0}, "model: got 9, expected 0 to 2"),
        ("play", {"model": True, "episode": 0}, "model: got true, expected a whole number"),
        ("play", {"model": "0", "episode": 0}, 'model: got "0", expected a whole number'),
        ("play", {"episode": 0}, "model: got null, expected a whole number"),
        ("play", {"model": 0, "episode": -1}, "episode: got -1, expected 0 to 4"),
        ("play", {"model": 0, "episode": 0, "edits": []}, "edits: got list"),
        ("play", {"model": 0, "episode": 0, "edits": {"x": []}}, "edits: got 'x', expected"),
        ("play", {"model": 0, "episode": 0, "edits": {"disabled": [77]}}, "rule: got 77"),
        ("play", {"model": 2, "episode": 0, "edits": {"disabled": [0]}}, "this model has no rules"),
        ("play", {"model": 0, "episode": 0, "edits": {"acted": [{"step": 99, "action": 0}]}},
         "step: got 99, expected 0 to 11"),
        ("frames", {"play": "x", "kind": "true", "sheet": 0}, "play: not known any more"),
        ("frames", {"kind": "true", "sheet": 0}, "play: not known any more"),
        ("frames", {"play": ["x"], "kind": "true", "sheet": 0}, "play: not known any more"),
        ("frames", {"play": "{play}", "kind": "slots", "sheet": 0}, "kind: got 'slots', expected"),
        ("frames", {"play": "{play}", "kind": "true", "sheet": 1}, "sheet: got 1, expected 0 to 0"),
        ("frames", {"play": "{play}", "kind": None, "sheet": 0}, "kind: got null"),
        ("rules", {"model": 2}, "this model has no rules"),
        ("why", {"play": "{play}", "step": 12, "stage": 0, "slot": 0}, "step: got 12, expected"),
        ("why", {"play": "{play}", "step": 0, "stage": 1, "slot": 0}, "stage: got 1, expected"),
        ("why", {"play": "{play}", "step": 0, "stage": 0, "slot": -1}, "slot: got -1, expected"),
        ("why", {"play": "{play}", "step": 0, "slot": 0}, "stage: got null, expected a whole"),
        ("why", {"play": "x", "step": 0, "stage": 0, "slot": 0}, "play: not known any more"),
        ("html", {"model": 0, "episode": 99}, "episode: got 99"),
        ("html", {"model": 0, "episode": 0, "compare": 7}, "compare: expected an object"),
        ("html", {"model": 0, "episode": 0, "compare": {"model": 9, "episode": 0}}, "model: got 9"),
        ("world/act", {"world": "x", "action": 0}, "world: not open any more"),
        ("world/start", {"model": 0, "seed": -1}, "seed: got -1"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(client, route, body, message):
    if body.get("play") == "{play}":
        body = body | {"play": client.call("play", model=0, episode=0)["play"]}
    assert message in error(client, route, **body)


# -- why, and what the rules do -------------------------------------------------------------------


def test_why_is_what_explain_says(client):
    bench = FakeWorkbench(rules=12, stages=2)
    playback = bench.play(1)
    play = client.call("play", model=1, episode=1)["play"]
    for step, stage, slot in ((0, 0, 0), (3, 1, 2), (11, 0, 1)):
        found = client.call("why", play=play, step=step, stage=stage, slot=slot)
        ours = explain(bench, playback, step, slot, stage).to_json(lambda picture: "drawn")
        assert found["rule"] == playback.record.rule[step, stage, slot]
        assert found["winner"]["rule"] == ours["winner"]["rule"]
        assert found["margin"] == pytest.approx(ours["margin"], rel=1e-4)
        np.testing.assert_allclose(found["scores"], playback.record.rule_scores[step, stage], 1e-4)
        added = found["pictures"].pop("added")  # of a slot on which nothing fires there is none
        assert (added is None) == (ours["pictures"]["added"] is None)
        assert all(url.startswith("data:image/png") for url in found["pictures"].values())


def test_rules_are_described_once(client):
    found = client.call("rules", model=0)
    assert found["episodes"] == 5
    assert [rule["rule"] for rule in found["rules"]] == list(range(6))
    assert sum(rule["share"] for rule in found["rules"]) == pytest.approx(1.0, abs=1e-4)
    for rule in found["rules"]:
        for shares in rule["by"].values():
            assert sum(shares.values()) == pytest.approx(1.0, abs=1e-4)
    assert client.call("rules", model=0) == found


def test_long_episodes_are_described_by_few():
    run = FakeRun(FakeWorkbench(steps=400, episodes=9))
    with served(Session([run])) as client:
        assert client.call("rules", model=0)["episodes"] == 2


def test_slow_roll_outs_are_described_by_few():
    bench = FakeWorkbench(episodes=9)
    bench.described = 3
    with served(Session([FakeRun(bench)])) as client:
        assert client.call("rules", model=0)["episodes"] == 3


@pytest.mark.parametrize(
    ("kind", "media", "begin"),
    [("gif", "image/gif", b"GIF89a"), ("webp", "image/webp", b"RIFF")],
)
def test_films(client, kind, media, begin):
    pytest.importorskip("PIL")
    play = client.call("play", model=0, episode=0, edits={"disabled": [1]})["play"]
    body = json.dumps({"play": play, "format": kind}).encode()
    answer = client.send("POST", "/api/film", body)
    assert answer.status == 200
    assert answer.headers["content-type"] == media
    assert answer.body.startswith(begin)


def test_films_that_cannot_be(client, monkeypatch):
    monkeypatch.setattr("nps.inspect.films.MOST_FRAMES", 12)
    play = client.call("play", model=0, episode=0)["play"]
    assert "got 13 frames, expected at most 12" in error(client, "film", play=play, format="gif")
    assert "format: got 'exe', expected one of gif" in error(
        client, "film", play=play, format="exe"
    )


# -- memory ---------------------------------------------------------------------------------------


def test_what_left_the_cache_is_made_again(monkeypatch):
    monkeypatch.setattr(sessions, "PLAYBACK_BYTES", 1)
    monkeypatch.setattr(sessions, "SHEET_BYTES", 1)
    with served(Session(some_runs())) as client:
        plays = [client.call("play", model=0, episode=episode)["play"] for episode in (0, 1)]
        sheets = [client.call("frames", play=play, kind="true", sheet=0) for play in plays]
        assert client.call("frames", play=plays[0], kind="true", sheet=0) == sheets[0]
        assert sheets[0] != sheets[1]


def test_only_some_ids_are_remembered(monkeypatch):
    monkeypatch.setattr(sessions, "MOST_PLAYS", 2)
    with served(Session(some_runs())) as client:
        plays = [client.call("play", model=0, episode=episode)["play"] for episode in range(3)]
        assert "not known" in error(client, "frames", play=plays[0], kind="true", sheet=0)
        client.call("frames", play=plays[2], kind="true", sheet=0)


def test_many_requests_at_a_time_give_what_one_gives(client):
    """Rules are switched off for a model, not for a request: threads must not see each other's."""
    edits = [{"disabled": [rule]} for rule in range(6)] * 3

    def play(edit):
        return client.call("play", model=0, episode=4, edits=edit)

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(play, edits))
    fresh = FakeWorkbench()
    for edit, answer in zip(edits, found, strict=True):
        rule = unpacked(answer["rule"], "<i2", 12, 1, 3)
        np.testing.assert_array_equal(rule, fresh.play(4, Edits.from_json(edit)).record.rule)


# -- worlds ---------------------------------------------------------------------------------------


def test_a_world_is_played_until_the_imagination_parts(client):
    started = client.call("world/start", model=0, seed=5)
    moment, name = started["moment"], started["world"]
    assert (moment["step"], moment["right"], moment["parted"]) == (0, True, None)
    assert moment["true"] == moment["imagined"]
    assert moment["true"].startswith("data:image/png;base64,")
    assert moment["rule"] == []
    for step in range(1, 10):  # into the wall, which the model does not know
        moment = client.call("world/act", world=name, action=0)["moment"]
        assert moment["step"] == step
        if moment["event"] != "free":
            break
    assert not moment["right"]
    assert moment["parted"] == {"step": step, "slot": 0, "rule": moment["rule"][0][0]}
    assert moment["true"] != moment["imagined"]
    again = client.call("world/act", world=name, action=6)["moment"]
    assert again["parted"] == moment["parted"]  # the first time
    assert "action: got 99, expected 0 to 11" in error(client, "world/act", world=name, action=99)


def test_few_worlds_are_open(client):
    names = [client.call("world/start", model=0, seed=seed)["world"] for seed in range(9)]
    assert len(set(names)) == 9
    assert "not open any more" in error(client, "world/act", world=names[0], action=0)
    assert client.call("world/act", world=names[1], action=0)["moment"]["step"] == 1


# -- the whole program ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_quietly(how):
    command = [sys.executable, "-m", "tests.viewer.fake", "--token", TOKEN, "--models", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        client = Client(process.stdout.readline().strip())
        deadline = time.monotonic() + 60
        while True:
            try:
                assert client.call("play", model=0, episode=0)["steps"] == 12
                break
            except ConnectionError:
                assert time.monotonic() < deadline
        process.send_signal(how)
        _, said = process.communicate(timeout=30)
    assert said == ""
    assert process.returncode == (0 if how == signal.SIGINT else -signal.SIGTERM)


def test_the_true_world_follows_another_action():
    """Of the fake itself: what the other tests rely on."""
    bench = FakeWorkbench()
    one, other = bench.play(0), bench.play(0, Edits(acted=(Acted(0, 11),)))
    assert one.right.dtype == bool
    assert (one.true != other.true).any()


def test_the_page_opens_where_something_happens(monkeypatch):
    monkeypatch.setattr(FakeWorkbench, "opening", 3)
    with served(Session([FakeRun(FakeWorkbench())])) as found:
        assert found.call("models")["models"][0]["opening"] == 3


def test_errors_call_slots_as_the_page_does(client):
    forced = [{"step": 0, "slot": 1, "rule": 0}, {"step": 0, "slot": 2, "rule": 0}]
    said = error(client, "play", model=0, episode=0, edits={"forced": [forced[0] | {"slot": 9}]})
    assert "slot" in said
    layer = FakeWorkbench()
    layer.layer.self_context = False
    with served(Session([FakeRun(layer)])) as other:
        edits = {"forced": [{"step": 0, "slot": 1, "context": 1}]}
        said = error(other, "play", model=0, episode=0, edits=edits)
        assert said == "forced: context: block 1 may not be its own context here"
