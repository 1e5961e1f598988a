"""The Gymnasium environments: Gymnasium's own checks, and the same world as the vectorised one."""

import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from nps.worlds import blocks

gymnasium = pytest.importorskip("gymnasium")

NAME = "nps.worlds.environments:nps/WeightedBlocks-v0"


def state_of(env) -> blocks.State:
    return env.unwrapped.state


@pytest.mark.parametrize("mode", ["unobserved", "observed", "shapes"])
@pytest.mark.parametrize("stay", [True, False])
def test_gymnasium_finds_nothing_wrong(mode, stay):
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(NAME, mode=mode, stay=stay, render_mode="rgb_array")
    assert env.action_space.n == (25 if stay else 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_made_by_gymnasium_alone():
    """In a fresh process, with no import of nps."""
    script = f"import gymnasium; print(gymnasium.make({NAME!r}).reset(seed=0)[0].shape)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "(50, 50, 3)\n", done.stderr


def test_registered_by_the_import():
    importlib.import_module("nps.worlds.environments")
    assert gymnasium.make("nps/WeightedBlocks-v0").spec.max_episode_steps == 100


def test_an_episode_is_that_of_the_rules():
    env = gymnasium.make(NAME, objects=5, render_mode="rgb_array")
    image, info = env.reset(seed=3)
    env.action_space.seed(3)
    outcomes = set()
    for t in range(100):
        before = state_of(env)
        assert np.array_equal(image, blocks.render(before)[0].numpy())
        assert np.array_equal(env.render(), image)
        assert np.array_equal(info["positions"], before.positions[0])
        action = env.action_space.sample()
        image, reward, terminated, truncated, info = env.step(action)
        after, outcome = blocks.step(before, torch.tensor([action]))
        assert torch.equal(state_of(env).positions, after.positions)
        assert info["outcome"] == blocks.Outcome(int(outcome)).name.lower()
        assert (reward, terminated, truncated) == (0.0, False, t == 99)
        outcomes.add(info["outcome"])
    assert outcomes >= {"nothing", "free", "push"}


def test_seeds():
    env = gymnasium.make(NAME)
    first, _ = env.reset(seed=1)
    second, _ = env.reset()
    again, _ = env.reset(seed=1)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "seen"}, "mode: got 'seen', expected one of observed"),
        ({"objects": 9}, "objects: got 9, expected 2 to 6"),
    ],
)
def test_bad_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        gymnasium.make(NAME, **wrong)


def test_another_way_to_render_or_act_is_refused():
    from nps.worlds.environments import WeightedBlocks

    with pytest.raises(ValueError, match="render_mode: got 'human', expected 'rgb_array' or None"):
        WeightedBlocks(render_mode="human")
    env = WeightedBlocks()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action: got 25, expected 0 to 24"):
        env.step(25)
    with pytest.warns(UserWarning, match="without a mode"):
        assert env.render() is None


def test_without_gymnasium(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "nps.worlds.environments", raising=False)
    with pytest.raises(ImportError, match=r"pip install 'neural-production-systems\[gym\]'"):
        importlib.import_module("nps.worlds.environments")


# -- the tower ---------------------------------------------------------------------------------

TOWER = "nps.worlds.environments:nps/Tower-v0"


@pytest.mark.parametrize("options", [{}, {"objects": 4, "falls": True, "pixels": 32}], ids=str)
def test_gymnasium_finds_nothing_wrong_with_the_tower(options):
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(TOWER, render_mode="rgb_array", **options)
    assert env.action_space.n == 1 + 4 * options.get("objects", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_pushing_a_tower():
    """Nothing moves if nothing is pushed; a push moves its shape in its direction."""
    env = gymnasium.make(TOWER, speed=1.0, render_mode="rgb_array")
    for action, axis, sign in ((9, 0, 1), (10, 0, -1), (11, 1, 1), (12, 1, -1)):
        image, info = env.reset(seed=4)
        before = info["position"]
        _, _, _, _, info = env.step(0)
        assert np.abs(info["position"] - before).max() < 0.01
        _, reward, terminated, truncated, info = env.step(action)
        moved = info["position"] - before
        assert sign * moved[2, axis] > 0.03
        assert np.abs(moved[0]).max() < 0.02
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert not np.array_equal(env.render(), image)
    assert info["touched"].shape == (3, 3)


def test_a_tower_that_falls():
    env = gymnasium.make(TOWER, falls=True)
    _, info = env.reset(seed=1)
    top = info["position"][-1, 2]
    for t in range(31):
        _, _, _, truncated, info = env.step(0)
        assert truncated == (t == 30)
    assert info["position"][-1, 2] < top - 0.3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objects": 1}, "objects: got 1, expected 2 to 6"),
        ({"render_mode": "human"}, "render_mode: got 'human'"),
    ],
)
def test_bad_arguments_of_the_tower_are_named(wrong, message):
    from nps.worlds.environments import Tower

    with pytest.raises(ValueError, match=message):
        Tower(**wrong)
    env = Tower()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action: got 13, expected 0 to 12"):
        env.step(13)
    with pytest.warns(UserWarning, match="without a mode"):
        assert env.render() is None


def test_a_tower_needs_its_extra(monkeypatch):
    from nps.worlds.environments import Tower

    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ValueError, match=r"need the extra: .*\[stacks\]"):
        Tower()
