"""Minari data sets, as Minari's own collector writes them."""

import json

import numpy as np
import pytest

from nps.errors import UserError
from nps.worlds.custom import load_episodes
from tests.experiments.test_custom import FLAGS
from tests.test_cli import call

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")
gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
IMAGE = spaces.Box(0, 255, (8, 9, 3), np.uint8)
CHOICES = spaces.Discrete(3, start=5)


class Dots(gymnasium.Env):
    """Random images; an episode has two steps more than the one before."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.episode, self.seen, self.taken = 0, [], []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._look(), {}

    def step(self, action):
        self.taken.append(np.array(action))
        self.time += 1
        return self._look(), 0.0, self.time == 2 * self.episode, False, {}

    def _look(self):
        found = self.observation_space.sample()
        self.seen.append(found["image"] if isinstance(found, dict) else found)
        return found


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Record three episodes as a data set of Minari's."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))

    def make(observation_space=IMAGE, action_space=CHOICES, **options):
        env = Dots(observation_space, action_space)
        collector = minari.DataCollector(env, **options)
        for episode in range(3):
            collector.reset(seed=episode)
            done = False
            while not done:
                _, _, done, _, _ = collector.step(action_space.sample())
        collector.create_dataset("mine/dots-v0", algorithm_name="random", description="dots")
        return env, tmp_path / "sets/mine/dots-v0"

    return make


@pytest.mark.parametrize("name", ["folder", "id"])
def test_images_and_actions_are_those_that_were_collected(made, name):
    env, folder = made()
    found = load_episodes(folder if name == "folder" else "minari:mine/dots-v0")
    assert found.episode.bincount().tolist() == [3, 5, 7]
    assert np.array_equal(found.obs.numpy(), np.stack(env.seen))
    before = found.windows()[:, 0]
    assert found.action[before].tolist() == [int(action) - 5 for action in env.taken]


def test_continuous_actions_and_an_image_among_other_observations(made):
    parts = {"image": IMAGE, "speed": spaces.Box(-1, 1, (2,)), "goal": spaces.Text(5)}
    env, folder = made(spaces.Dict(parts), spaces.Box(-1, 1, (2, 2)))
    found = load_episodes(folder, frames=2)
    assert np.array_equal(found.obs[..., :3].numpy(), np.stack(env.seen))
    expected = np.stack(env.taken).reshape(-1, 4)
    assert np.array_equal(found.action[found.windows()[:, 0]].numpy(), expected.astype(np.float32))


def test_compressed_images(made):
    """From 32 pixels on, Minari compresses images as JPEG."""
    grey = spaces.Box(0, 255, (40, 32, 3), np.uint8)
    grey.sample = lambda: np.full((40, 32, 3), grey.np_random.integers(256), np.uint8)
    env, folder = made(grey)
    obs = load_episodes(folder).obs.numpy()
    assert np.abs(obs.astype(int) - np.stack(env.seen)).max() <= 2


def test_arrow_files(made):
    pytest.importorskip("pyarrow")
    env, folder = made(data_format="arrow")
    assert np.array_equal(load_episodes(folder).obs.numpy(), np.stack(env.seen))


def error_of(path):
    with pytest.raises(UserError) as error:
        load_episodes(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_observations_and_actions_that_do_not_fit(made, tmp_path):
    _, folder = made(spaces.Box(-1, 1, (4,)))
    assert error_of(folder).startswith(f"{folder}: observations: got no images in Box(-1.0, 1.0,")


def test_two_cameras(made):
    _, folder = made(spaces.Dict({"image": IMAGE, "other": IMAGE}))
    assert f"{folder}: observations: got 2 images in Dict(" in error_of(folder)


def test_actions_of_several_choices(made):
    _, folder = made(action_space=spaces.MultiDiscrete([2, 3]))
    said = f"{folder}: actions: got MultiDiscrete([2 3]), expected Discrete or Box"
    assert error_of(folder) == said


def test_ids_that_are_not_there(made, tmp_path):
    made()
    assert error_of("minari:mine/other-v0") == (
        f"minari:mine/other-v0: no such data set in {tmp_path / 'sets/mine'}; `minari list local` "
        "shows yours, `minari download mine/other-v0` gets one"
    )


def test_arrays_that_are_not_in_the_file(made):
    _, folder = made()
    path = folder / "data/main_data.hdf5"
    with h5py.File(path, "a") as file:
        del file["episode_1/observations"]
        file["episode_1/observations"] = h5py.ExternalLink("other.hdf5", "observations")
    assert error_of(folder) == (
        f"{path}: episode_1/observations: a link to 'other.hdf5', expected an array in the file "
        "itself"
    )


def test_a_damaged_file(made):
    _, folder = made()
    (folder / "data/main_data.hdf5").write_bytes(b"no HDF5")
    assert error_of(folder).startswith(f"{folder}: cannot be read (")


def test_train_by_the_id_of_a_data_set(made, tmp_path):
    _, folder = made(spaces.Box(0, 255, (20, 20, 3), np.uint8))
    out, data = tmp_path / "out", "--data=minari:mine/dots-v0"
    flags = [*FLAGS, "--batch-size=2", "--epochs=1"]
    call("train", "world-model", data, f"--out={out}", *flags)
    assert json.loads((out / "config.json").read_text())["config"]["episodes"] == str(folder)
    assert "Predicted" in call("eval", str(out), "--on=minari:mine/dots-v0")[0]
    assert "Predicted" in call("eval", str(out), data)[0]
    _, err = call("train", "world-model", f"{data}1", f"--out={tmp_path / 'no'}", code=2)
    assert "minari:mine/dots-v01: no such data set" in err
