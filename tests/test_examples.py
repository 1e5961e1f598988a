"""The examples run, on worlds small enough to check what they did."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nps.worlds.custom import load_episodes

EXAMPLES = Path(__file__).parent.parent / "examples"


class Space:
    """Actions 3 and 4, in turn; what `record` asks of a space of Gymnasium."""

    dtype, shape, start = np.dtype(np.int64), (), 3

    def seed(self, seed):
        self.drawn = seed

    def sample(self):
        self.drawn += 1
        return self.start + self.drawn % 2


class Walk:
    """A white pixel moves on by one for an odd action; the episode ends at the right border."""

    action_space = Space()

    def reset(self, seed=None):
        self.place, self.canvas = 0, np.zeros((6, 7, 3), np.uint8)
        return self._image(), {}

    def step(self, action):
        self.place += action % 2
        return self._image(), 0.0, self.place == 2, False, {}

    def _image(self):
        self.canvas[:] = 0
        self.canvas[0, self.place] = 255
        return self.canvas  # the same array again and again


@pytest.fixture(scope="module")
def recorder():
    return runpy.run_path(str(EXAMPLES / "record_episodes.py"))


@pytest.mark.parametrize("name", ["walk.npz", "walk.h5"])
def test_recorded_episodes_can_be_loaded(recorder, tmp_path, name):
    if name.endswith("h5"):
        pytest.importorskip("h5py")
    recorder["save"](tmp_path / name, recorder["record"](Walk(), episodes=3, steps=3, seed=0))
    found = load_episodes(tmp_path / name)
    # actions from 0: 1, 0, 1, then cut; the last frame of an episode repeats its action
    assert found.action.tolist() == [1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1]
    assert found.episode.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    place = found.obs[:, 0, 0].argmax(-1)
    assert place.tolist() == [0, 0, 1, 1, 0, 1, 1, 2, 0, 0, 1, 1]
    for before, after in found.windows().tolist():
        assert place[after] == place[before] + (found.action[before] + 3) % 2


def test_an_episode_ends_where_the_environment_says(recorder):
    arrays = recorder["record"](Walk(), episodes=2, steps=100)
    assert np.flatnonzero(arrays["episode_end"]).tolist() == [4, 9]


def test_record_by_name_from_rendered_images(recorder, tmp_path, capsys):
    gymnasium = pytest.importorskip("gymnasium")

    class Drawn(gymnasium.Env):
        """Observations are no images; actions are continuous."""

        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Box(-1, 1, (2,))

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.place = np.zeros(2, np.float32)
            return self.place, {}

        def step(self, action):
            self.place = action
            return self.place, 0.0, False, False, {}

        def render(self):
            return np.full((20, 30, 3), round(255 * abs(float(self.place[0]))), np.uint8)

    gymnasium.register("Drawn-v0", entry_point=Drawn)
    out = tmp_path / "drawn.npz"
    recorder["main"](["Drawn-v0", "--out", str(out), "--episodes=2", "--steps=4", "--size=8"])
    assert capsys.readouterr().out == f"{out}: 2 episodes, 8 transitions, images (3, 8, 8)\n"
    found = load_episodes(out)
    assert found.action.shape == (10, 2)
    for before, after in found.windows().tolist():
        expected = round(255 * abs(float(found.action[before, 0])))
        assert (found.obs[after] == expected).all()


def test_a_package_that_drawing_needs_is_reported_in_one_line(recorder, tmp_path, capsys):
    gymnasium = pytest.importorskip("gymnasium")

    class Undrawn(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, render_mode=None):
            self.render_mode = render_mode

        def reset(self, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def render(self):
            raise gymnasium.error.DependencyNotInstalled("run `pip install pencils`")

    gymnasium.register("Undrawn-v0", entry_point=Undrawn)
    with pytest.raises(SystemExit):
        recorder["main"](["Undrawn-v0", "--out", str(tmp_path / "a.npz")])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("error: Undrawn-v0: run `pip install pencils`")
    assert not list(tmp_path.iterdir())


def test_record_a_game_by_its_plain_name(tmp_path):
    """In a process of its own, where nobody has made the games known before."""
    pytest.importorskip("gymnasium")
    pytest.importorskip("ale_py")
    flags = ["ALE/Pong-v5", "--out=pong.npz", "--episodes=1", "--steps=2", "--size=20"]
    command = [sys.executable, str(EXAMPLES / "record_episodes.py"), *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "2 transitions, images (3, 20, 20)" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["No-v0", "--out=a.npz"], "error: No-v0: "),
        (["No-v0", "--out=a.pkl"], "a.pkl: expected .npz, .h5, .hdf5 in a folder"),
        (["No-v0", "--out=a.npz", "--size=0"], "argument --size: invalid positive value: '0'"),
    ],
)
def test_wrong_arguments_are_reported_and_nothing_is_written(
    recorder, tmp_path, monkeypatch, capsys, arguments, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        recorder["main"](arguments)
    assert exit.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
