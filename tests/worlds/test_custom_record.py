"""Record episodes of environments: in Python on a small world, and by `nps data record`."""

import shlex
import sys

import numpy as np
import pytest

from nps.errors import UserError
from nps.worlds.custom import load_episodes
from nps.worlds.custom.record import record, save
from tests.test_cli import call

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces


class Walk(gymnasium.Env):
    """A white pixel moves on by one for action 5; the episode ends at the right border."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = spaces.Box(0, 255, (6, 7, 3), np.uint8)
    action_space = spaces.Discrete(2, start=4)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.canvas = 0, np.zeros((6, 7, 3), np.uint8)
        return self._image(), {}

    def step(self, action):
        self.place += int(action) % 2
        return self._image(), 0.0, self.place == 2, False, {}

    def _image(self):
        self.canvas[:] = 0
        self.canvas[0, self.place] = 255
        return self.canvas  # the same array again and again


class Drawn(gymnasium.Env):
    """Observations are not images; actions are continuous."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (2,))

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


class Undrawn(Drawn):
    action_space = spaces.Discrete(2)

    def render(self):
        raise gymnasium.error.DependencyNotInstalled("run `pip install pencils`")


class Black(Walk):
    def _image(self):
        return np.zeros((6, 7, 3), np.uint8)


class Several(Walk):
    action_space = spaces.MultiDiscrete([2, 3])


for each in (Walk, Drawn, Undrawn, Black, Several):
    gymnasium.register(f"nps-test/{each.__name__}-v0", entry_point=each)


def alternately(observation, space):
    """Go on from an even place only: the policy sees the observation."""
    return 5 - int(observation[0].argmax() // 3 % 2)


@pytest.mark.parametrize("name", ["walk.npz", "walk.h5"])
def test_recorded_episodes_can_be_loaded(tmp_path, name):
    if name.endswith("h5"):
        pytest.importorskip("h5py")
    save(tmp_path / name, record(Walk(), episodes=3, steps=3))
    found = load_episodes(tmp_path / name)
    place = found.obs[:, 0, :, 0].argmax(-1)
    lengths = found.episode.bincount() - 1
    assert lengths.max() <= 3
    for before, after in found.windows().tolist():
        assert place[after] == place[before] + found.action[before]  # counted from 0
    for last in (lengths + 1).cumsum(0) - 1:  # cut, or at the border
        assert place[last] == 2 or lengths[found.episode[last]] == 3


def test_the_policy_sees_the_observation_and_chooses():
    arrays = record(Walk(), episodes=2, steps=4, policy=alternately)
    assert arrays["action"].tolist() == [1, 0, 0, 0, 0] * 2
    assert np.flatnonzero(arrays["episode_end"]).tolist() == [4, 9]


def test_the_same_seed_gives_the_same_file():
    one, same, other = (record(Walk(), 5, 9, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(one[key], same[key]) for key in one)
    assert one["action"].tolist() != other["action"].tolist()


def run(*flags, code=0):
    return call("data", "record", *map(str, flags), code=code)


def test_the_printed_command_trains(tmp_path, monkeypatch):
    """Also of a recording that is smaller than a batch."""
    monkeypatch.chdir(tmp_path)
    out = "my walk.npz"
    shown, _ = run("nps-test/Drawn-v0", f"--out={out}", "--episodes=12", "--steps=4", "--size=20")
    prefix, command = shown.splitlines()[-1].split(": ", 1)
    assert prefix == "Train on it"
    words = shlex.split(command)
    assert words[-2:] == ["--batch-size", "40"]  # 10 of 12 episodes train
    call(*words[1:], "--epochs=1", "--extractor=small")
    assert (tmp_path / "runs" / "my walk" / "config.json").is_file()


def test_a_large_recording_needs_no_other_batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown, _ = run("nps-test/Drawn-v0", "--out=my.npz", "--episodes=3", "--steps=128", "--size=8")
    command = "nps train world-model --data my.npz --out runs/my"
    assert shown.splitlines()[-1] == f"Train on it: {command}"


def test_record_by_name_from_drawn_images(tmp_path):
    out = tmp_path / "drawn.npz"
    flags = [f"--out={out}", "--episodes=2", "--steps=4", "--size=8x12"]
    assert run("nps-test/Drawn-v0", *flags)[0] == (
        f"{out}: 2 episodes of 4 to 4 steps, 8 transitions, images 8 x 12 x 3\n"
        "No model can be trained on it: got 2 episodes, expected at least 3\n"
    )
    found = load_episodes(out)
    assert found.action.shape == (10, 2)
    for before, after in found.windows().tolist():
        expected = round(255 * abs(float(found.action[before, 0])))
        assert (found.obs[after] == expected).all()


MINE = """
import gymnasium
import numpy as np

gymnasium.register("Mine-v0", entry_point="tests.worlds.test_custom_record:Walk")
CHOICES = [5, 4]

class Dark(gymnasium.ObservationWrapper):
    def observation(self, image):
        return image // 2

class Wide(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (6, 14, 3), np.uint8)

    def reset(self, **options):
        image, info = self.env.reset(**options)
        return np.concatenate([image, image], 1), info

    def step(self, action):
        image, *rest = self.env.step(action)
        return np.concatenate([image, image], 1), *rest

class Broken(gymnasium.Wrapper):
    def __init__(self, env):
        raise KeyError("no lens")

class BrokenLater(gymnasium.Wrapper):
    def step(self, action):
        raise OSError("the lens fell off")

def on(observation, action_space):
    assert action_space.contains(5)
    return 5

def wrong(observation, action_space):
    return 7

def failing(observation, action_space):
    table = np.zeros(2)
    return np.take(table, 5)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of the user's in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "bad.py").write_text("def policy(:\n")
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", ".")])
    yield tmp_path
    for name in ("mine", "bad"):
        sys.modules.pop(name, None)
    gymnasium.registry.pop("Mine-v0", None)


def test_package_policy_and_wrappers(mine):
    before = list(sys.path)
    wrappers = ["--wrapper=mine:Dark", "--wrapper=mine:Wide"]
    run("mine:Mine-v0", "--out=my.npz", "--episodes=2", "--policy=mine:on", *wrappers)
    found = load_episodes("my.npz")
    assert found.obs.shape == (6, 6, 14, 3)
    assert found.obs.max() == 127
    assert found.action.tolist() == [1] * 6
    assert sys.path == before


FAILURES = {
    "the policy failed: IndexError: index 5 is out of bounds": ["--policy=mine:failing"],
    "mine.py, line 42: return np.take(table, 5)": ["--policy=mine:failing"],
    "the policy returned 7, expected an action of Discrete(2, start=4)": ["--policy=mine:wrong"],
    "--policy mine:onn: no onn in it; did you mean on?": ["--policy=mine:onn"],
    "--policy mine:CHOICES: got list, expected something to call": ["--policy=mine:CHOICES"],
    "--policy nowhere:on: ModuleNotFoundError: No module named 'nowhere'": ["--policy=nowhere:on"],
    "--policy bad:policy: SyntaxError: ": ["--policy=bad:policy"],
    "--policy: got 'on', expected module:name, e.g. my_file:my_function": ["--policy=on"],
    "--wrapper mine:Broken: KeyError: 'no lens', raised in ": ["--wrapper=mine:Broken"],
    "step: OSError: the lens fell off, raised in ": ["--wrapper=mine:BrokenLater"],
    "--size: got '50x', expected a side or HEIGHTxWIDTH": ["--size=50x"],
    "--size: got '0', expected a side": ["--size=0"],
    "--episodes: got 0, expected at least 1": ["--episodes=0"],
    "--steps: got -1, expected at least 1": ["--steps=-1"],
}


@pytest.mark.parametrize("message", FAILURES)
def test_what_fails_is_one_line_and_nothing_is_written(mine, message):
    before = sorted(mine.iterdir())
    _, err = run("mine:Mine-v0", "--out=my.npz", *FAILURES[message], code=2)
    assert message in err
    assert err.count("\n") == 1
    assert sorted(p for p in mine.iterdir() if p.name != "__pycache__") == before


@pytest.mark.parametrize(
    ("name", "out", "message"),
    [
        ("No-v0", "a.npz", "No-v0: Environment `No` doesn't exist; if another package brings it: "),
        ("nowhere:No-v0", "a.npz", "nowhere:No-v0: No module named 'nowhere'"),
        ("nps-test/Undrawn-v0", "a.npz", "nps-test/Undrawn-v0: reset: DependencyNotInstalled: run"),
        (
            "nps-test/Black-v0",
            "a.npz",
            "Black-v0: obs: all images are equal, expected some",
        ),
        ("nps-test/Several-v0", "a.npz", "actions: got MultiDiscrete([2 3]), expected Discrete or"),
        ("nps-test/Walk-v0", "a.pkl", "a.pkl: expected .npz, .h5, .hdf5 in a folder that exists"),
        ("nps-test/Walk-v0", "no/a.npz", "no/a.npz: expected .npz, .h5, .hdf5 in a folder that ex"),
    ],
)
def test_wrong_names_are_reported_and_nothing_is_written(tmp_path, monkeypatch, name, out, message):
    monkeypatch.chdir(tmp_path)
    _, err = run(name, f"--out={out}", code=2)
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_existing_file_is_left_alone(tmp_path):
    out = tmp_path / "mine.npz"
    out.write_text("my thesis")
    _, err = run("nps-test/Walk-v0", f"--out={out}", code=2)
    assert err == f"nps: error: {out}: exists already; move it away, or choose another name\n"
    assert out.read_text() == "my thesis"


def test_actions_of_a_policy_in_other_types():
    def lists(observation, space):
        return [0.5, -0.5]

    def arrays(observation, space):
        return np.array(5)

    def words(observation, space):
        return ["left", "right"]

    env = Drawn("rgb_array")
    assert record(env, 1, 2, policy=lists)["action"].tolist() == [[0.5, -0.5]] * 3
    assert record(Walk(), 1, 2, policy=arrays)["action"].tolist() == [1] * 3
    with pytest.raises(UserError, match="the policy returned no numbers: ValueError"):
        record(env, 1, 2, policy=words)


def test_record_a_game_by_its_plain_name(tmp_path):
    pytest.importorskip("ale_py")
    out = tmp_path / "pong.npz"
    printed = run("ALE/Pong-v5", f"--out={out}", "--episodes=1", "--steps=2")[0]
    assert "2 transitions, images 210 x 160 x 3" in printed
    out = tmp_path / "grey.npz"
    flags = ["--wrapper=gymnasium.wrappers:GrayscaleObservation", "--size=105x80"]
    printed = run("ALE/Pong-v5", f"--out={out}", "--episodes=1", "--steps=2", *flags)[0]
    assert "images 105 x 80 x 1" in printed
