"""`--frames n`: the data, the model and every command see observations of n frames."""

import json

import numpy as np
import pytest
import torch

from nps.experiments import load_task
from nps.experiments.custom import Config, with_test_set
from nps.worlds.custom import load_episodes
from tests.experiments.stacks import assert_stack_equals_single
from tests.experiments.test_custom import FLAGS, arrays_of, task_of
from tests.test_cli import call
from tests.test_docs import ROOT, code_blocks

TWO_EPOCHS = [*FLAGS, "--epochs=2"]


def moving(lengths=(14,) * 30, side=20):
    """A column that keeps going left or right: one frame does not tell which."""
    draw = np.random.default_rng(0)
    arrays = arrays_of(lengths, side=side)
    images = []
    for length in lengths:
        place, speed = draw.integers(side), draw.choice((-1, 1))
        for time in range(length):
            frame = np.zeros((side, side, 3), np.uint8)
            frame[:, (place + speed * time) % side] = 255
            images.append(frame)
    return {**arrays, "obs": np.stack(images)}


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "my.npz", **moving())
    return tmp_path / "my.npz"


def test_every_set_sees_the_stack_of_its_episode(file):
    """Also at the start of a segment inside an episode, whose earlier frames are known."""
    frames, stacked = 3, load_episodes(file, frames=3).obs
    task = task_of(file, frames=frames, test_steps=5)
    assert task.image == (20, 20, 9)
    inside = 0
    for part in task.sets.values():
        for e, (start, length) in enumerate(zip(part.start.tolist(), part.lengths, strict=True)):
            time = torch.arange(int(length))
            images = part.images(torch.full_like(time, e), time)
            assert torch.equal(images, stacked[start : start + int(length)])
            inside += int(load_episodes(file).first[start]) != start
    assert inside


def test_states_are_equal_if_all_their_frames_are(file):
    """At one place the column may be on its way left or right."""
    found = {}
    for frames in (1, 2):
        test = task_of(file, frames=frames, test_steps=5).sets["test"]
        at = test.start[:, None] + torch.arange(6)
        images = load_episodes(file, frames=frames).obs[at.flatten()].flatten(1)
        same = (images[:, None] == images).all(-1)
        truth = test.truth().flatten()
        assert torch.equal(truth[:, None] == truth, same)
        found[frames] = len(truth.unique())
    assert found[1] < found[2]


def test_train_resume_eval_inspect_and_load(tmp_path, file):
    out = str(tmp_path / "mine")
    command = ["train", "world-model", f"--data={file}", f"--out={out}", "--frames=2", *FLAGS]
    call(*command, "--epochs=1")
    assert json.loads((tmp_path / "mine/config.json").read_text())["config"]["frames"] == 2
    _, err = call(*[each for each in command if each != "--frames=2"], "--epochs=1", code=2)
    assert "frames" in err
    assert "Predicted" in call("eval", out)[0]
    assert "Nothing moves" in call("inspect", out)[0]
    np.savez(tmp_path / "other.npz", **moving((12, 13, 14)))
    assert "Predicted" in call("eval", out, f"--on={tmp_path / 'other.npz'}")[0]
    task, model = load_task(out)
    assert task.config.frames == 2
    episodes = load_episodes(file, frames=task.config.frames)
    with torch.no_grad():
        slots = model.encode(episodes.obs[:8])
        rolled = model.rollout(slots[:1], episodes.action[None, :5])
    assert slots.shape == (8, 2, 16)
    assert rolled.shape == (1, 5, 2, 16)


def test_runs_before_the_flag_have_one_frame(tmp_path, file):
    out = tmp_path / "mine"
    call("train", "world-model", f"--data={file}", f"--out={out}", "--epochs=1", *FLAGS)
    saved = json.loads((out / "config.json").read_text())
    assert saved["config"].pop("frames") == 1
    (out / "config.json").write_text(json.dumps(saved))
    task, model = load_task(out)
    assert task.config.frames == 1
    assert model.encode(load_episodes(file).obs[:2]).shape == (2, 2, 16)
    again = ["train", "world-model", f"--data={file}", f"--out={out}", "--epochs=1", *FLAGS]
    assert call(*again)[1].endswith("mine: complete, 10 steps\n")


def test_a_test_set_of_one_frame_fits_a_model_of_several(tmp_path, file):
    task = task_of(file, frames=2, test_steps=5)
    other = with_test_set(task, str(file))
    assert other.sets["test"].frames == 2
    np.savez(tmp_path / "other.npz", **moving(side=30))
    said = r"obs: got \(H, W, C\) = \(30, 30, 3\), expected \(20, 20, 3\) as in training"
    with pytest.raises(ValueError, match=said):
        with_test_set(task, str(tmp_path / "other.npz"))


def test_a_stack_of_seeds_equals_single_runs(tmp_path, file):
    task = task_of(file, epochs=2, frames=2, test_steps=5)
    assert_stack_equals_single(tmp_path, task, "loss")


@pytest.mark.parametrize("frames", [0, 17, 10**9, 1.5, True])
def test_numbers_that_cannot_be(frames):
    with pytest.raises(ValueError, match="frames: got "):
        Config(frames=frames)


@pytest.mark.parametrize("extractor", ["small", "medium", "large", "slot-attention"])
def test_images_that_are_not_square_train_with_every_extractor(tmp_path, extractor):
    arrays = arrays_of((12,) * 6)
    arrays["obs"] = arrays["obs"][:, :12, :17]
    np.savez(tmp_path / "my.npz", **arrays)
    out = tmp_path / "mine"
    flags = [*FLAGS, f"--extractor={extractor}", "--frames=2", "--test-steps=5", "--epochs=1"]
    call("train", "world-model", f"--data={tmp_path / 'my.npz'}", f"--out={out}", *flags)
    assert "Predicted" in call("eval", str(out))[0]
    assert "Nothing moves" in call("inspect", str(out))[0]
    model = load_task(out)[1]
    assert model.encoder.size == (12, 17)
    assert model.encode(load_episodes(tmp_path / "my.npz", frames=2).obs[:3]).shape == (3, 2, 16)


def test_the_example_of_the_data_page_runs(tmp_path, monkeypatch):
    """What load_episodes gives is what the model takes; roll-outs compare with what is seen."""
    monkeypatch.chdir(tmp_path)
    np.savez("pole.npz", **moving())
    call("train", "world-model", "--data=pole.npz", "--out=runs/pole", "--frames=2", *TWO_EPOCHS)
    page = ROOT / "docs/guides/data.md"
    (example,) = (code for code in code_blocks(page, "python") if "nps.load" in code)
    found = {}
    with torch.no_grad():
        exec(example, found)
    episodes, task = found["episodes"], found["run"].task
    every = load_episodes(tmp_path / "pole.npz")
    assert torch.equal(episodes.obs, every.stacked(2).obs)
    train = task.sets["train"]
    at, zero = train.start, torch.zeros_like(train.start)
    images = train.images(torch.arange(len(at)), zero)
    assert torch.equal(images, episodes.obs[at])
    assert images.dtype == episodes.obs.dtype
    assert found["predicted"].shape == (len(found["first"]), 10, 2, 16)
    assert found["seen"].shape == found["slots"].shape
