"""The workbench of the user's own episodes, and the environment beside the model."""

import dataclasses

import numpy as np
import pytest

from nps.errors import UserError
from nps.experiments import EXPERIMENTS
from nps.experiments.custom.workbench import CustomWorkbench
from nps.experiments.world_models.scenes import frames
from nps.inspect.edits import Acted, Edits
from nps.worlds.custom.origin import KEY, Origin
from tests.experiments.test_custom import arrays_of, task_of
from tests.test_cli import call

gymnasium = pytest.importorskip("gymnasium")
SMALL = {"extractor": "small", "hidden_dim": 8}


def bench_of(path, **changes) -> CustomWorkbench:
    task = task_of(path, **changes)
    bench = EXPERIMENTS["world-model"].workbench(task, task.make_model(0).eval())
    assert isinstance(bench, CustomWorkbench)
    return bench


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of())
    return tmp_path / "my.npz"


@pytest.mark.parametrize("transition", ["snps", "gnn"])
@pytest.mark.parametrize("stacked", [1, 3])
def test_recorded_episodes_play(file, transition, stacked):
    bench = bench_of(file, transition=transition, frames=stacked)
    data = bench.task.sets["validation"]
    play = bench.play(bench.count() - 1)
    start = int(data.start[-1])
    assert (play.true == data.obs[start : start + play.steps + 1].numpy()).all()  # the newest frame
    assert play.actions.tolist() == data.action[-1].tolist()
    assert bench.actions == ["action 0", "action 1", "action 2"]
    assert bench.keys["2"] == [2]
    assert (play.record is None) == (transition == "gnn")
    assert not any(play.events)
    assert play.predicted.shape == play.true.shape
    with pytest.raises(UserError, match="episode: got -1"):
        bench.play(-1)


def test_after_another_action_the_truth_is_not_known(file):
    bench = bench_of(file)
    plain = bench.play(0)
    edited = bench.play(0, Edits(acted=(Acted(4, (plain.actions[4] + 1) % 3),)))
    assert edited.right is None
    assert np.isnan(edited.error).tolist() == [t > 4 for t in range(edited.steps + 1)]
    assert (edited.error[:5] == plain.error[:5]).all()
    assert (edited.true == plain.true).all()


def test_continuous_actions_play_but_cannot_be_changed(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of(continuous=True))
    bench = bench_of(tmp_path / "my.npz")
    assert bench.play(0).actions is None
    assert (list(bench.actions), dict(bench.keys)) == ([], {})
    with pytest.raises(UserError, match="no discrete actions"):
        bench.play(0, Edits(acted=(Acted(0, 0),)))
    assert bench.world(0) is None


def test_images_of_numbers_and_of_one_channel_are_shown_as_bytes(tmp_path):
    arrays = arrays_of()
    arrays["obs"] = arrays["obs"][..., :1].astype(np.float32) / 255
    np.savez(tmp_path / "my.npz", **arrays)
    play = bench_of(tmp_path / "my.npz").play(0)
    assert play.true.dtype == np.uint8
    assert play.true.shape[-1] == 3
    assert play.true.max() == 255


class Lamp(gymnasium.Env):
    """A column of light that an action moves; it ends at the right border."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0, 255, (20, 20, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(8))
        return self._image(), {}

    def step(self, action):
        self.place = max(self.place + int(action) - 5, 0)
        return self._image(), 0.0, self.place >= 15, False, {}

    def _image(self):
        image = np.zeros((20, 20, 3), np.uint8)
        image[:, self.place] = 255
        return image


gymnasium.register("nps-test/Lamp-v0", entry_point=Lamp)


@pytest.mark.parametrize("suffix", ["npz", "h5"])
@pytest.mark.parametrize("stacked", [1, 2])
def test_the_environment_that_was_recorded_can_be_played_in(tmp_path, suffix, stacked):
    if suffix == "h5":
        pytest.importorskip("h5py")
    out = tmp_path / f"lamp.{suffix}"
    call("data", "record", "nps-test/Lamp-v0", f"--out={out}", "--episodes=20", "--steps=12")
    bench = bench_of(out, frames=stacked)
    world = bench.world(4)
    env = gymnasium.make("nps-test/Lamp-v0")
    image, _ = env.reset(seed=4)
    moment = world.now()
    assert (moment.true == image).all()
    assert moment.right
    for step in range(1, 30):
        image, _, ended, _, _ = env.step(5 + 2)
        moment = world.act(2)
        assert (moment.true == image).all()
        assert moment.step == step
        assert moment.event == ("the end" if ended else "")
        if ended:
            break
    assert moment.parted is not None  # untrained
    after = world.act(2)
    assert (after.step, after.event) == (step, "over")


def test_a_world_of_another_size_is_none_and_one_not_installed_says_so(tmp_path):
    for name, size in (("nps-test/Lamp-v0", (10, 10)), ("nps-test/NoLamp-v0", None)):
        np.savez(
            tmp_path / f"{len(name)}.npz", **arrays_of(), **{KEY: Origin(name, size=size).array()}
        )
    assert bench_of(tmp_path / "16.npz").world(0) is None
    with pytest.raises(UserError, match="NoLamp"):
        bench_of(tmp_path / "18.npz").world(0)
    np.savez(tmp_path / "same.npz", **arrays_of(), **{KEY: Origin("nps-test/Lamp-v0").array()})
    bench = bench_of(tmp_path / "same.npz")
    assert bench.world(0) is not None
    elsewhere = dataclasses.replace(bench.task.config, episodes=str(tmp_path))
    bench.task.config = elsewhere  # a folder
    assert bench.world(0) is None


def test_frames_are_the_newest_of_a_stack():
    import torch

    images = torch.arange(2 * 2 * 2 * 6, dtype=torch.uint8).view(2, 2, 2, 6)
    assert (frames(images) == images[..., :3].numpy()).all()
