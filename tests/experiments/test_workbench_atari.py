"""The workbench of Atari games, on invented episodes; the game itself where ale-py is."""

import importlib.util

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments import EXPERIMENTS
from nps.experiments.atari import AtariTask, Config
from nps.experiments.atari import workbench as module
from nps.inspect.edits import Acted, Edits
from nps.worlds import atari_file, atari_play
from nps.worlds.atari_games import GAMES, Settings
from tests.experiments.test_atari import TINY, files

__all__ = ["files"]  # a fixture


def bench_of(**changes):
    task = AtariTask(Config(**{**TINY, **changes}), torch.device("cpu"))
    return EXPERIMENTS["atari"].workbench(task, task.make_model(0).eval())


@pytest.mark.parametrize("transition", ["snps", "gnn"])
@pytest.mark.parametrize("game", ["pong", "freeway"])
def test_validation_episodes_play(transition, game):
    bench = bench_of(transition=transition, game=game)
    data = bench.task.sets["validation"]
    play = bench.play(1)
    assert bench.count() == 2
    assert (play.true == data.frames[1, 1:].numpy()).all()
    assert play.steps == 10
    assert list(bench.actions) == list(GAMES[game].actions)
    assert [bench.actions[a] for a in play.actions] == [
        GAMES[game].actions[a] for a in data.action[1]
    ]
    assert (play.record is None) == (transition == "gnn")
    edited = bench.play(1, Edits(acted=(Acted(9, 0),)))
    assert np.isnan(edited.error).sum() == 1


def test_keys_are_the_games():
    assert bench_of(game="freeway").keys == {"ArrowUp": [1], "ArrowDown": [2]}
    assert bench_of(game="pong").keys == {"ArrowRight": [2], "ArrowLeft": [3], "f": [1]}


def test_without_an_emulator_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install .*\[atari\]"):
        bench_of().world(0)


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs ale-py")
def test_the_game_is_played_as_it_was_recorded():
    from nps.worlds.atari_play import Emulator
    from nps.worlds.lanczos import shrink

    world, emulator = bench_of().world(3), Emulator("pong")
    draw = np.random.default_rng(3)
    emulator.reset()
    for action in draw.integers(6, size=GAMES["pong"].warm_up):
        emulator.act(int(action))
    for action in (0, 2, 2, 1):
        emulator.act(action)
    for action in (2, 2, 1):
        moment = world.act(action)
    shown = np.moveaxis(shrink(emulator.screen()[35:190], 50, 50), 0, -1)
    assert (moment.true == shown).all()
    assert moment.step == 3
    assert len(moment.rule[0]) == 3


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs ale-py")
def test_the_truth_follows_another_action_where_the_game_can_be_played(files):
    played = atari_play.play_all("pong", Settings(6, 5, 7))
    (files / "pong.npz").write_bytes(atari_file.pack("pong", Settings(6, 5, 7), played))
    bench = bench_of()
    plain = bench.play(1)
    assert (plain.true[0] == np.moveaxis(played["train"].frames[5, 1], 0, -1)).all()
    other = 2 if plain.actions[3] in (0, 1, 3, 5) else 3  # right or left
    edited = bench.play(1, Edits(acted=(Acted(3, other),)))
    same = Edits(acted=(Acted(3, int(plain.actions[3])),))
    assert (bench.play(1, same).true == plain.true).all()
    assert (edited.true[:4] == plain.true[:4]).all()
    assert (edited.true[4:] != plain.true[4:]).any()
    assert np.isfinite(edited.error).all()
    assert edited.right is not None
