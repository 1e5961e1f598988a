"""World models of the user's own episodes: through the command line, and with broken files."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from nps.errors import UserError
from nps.experiments import load_task
from nps.experiments.custom import Config, CustomTask, with_test_set
from nps.experiments.custom import data as splitting
from nps.experiments.custom.verdict import verdict
from nps.training.loop import Settings, train
from nps.training.run import Run, identity
from nps.training.signals import Interrupted
from nps.training.task import Batch
from nps.worlds.custom import load_episodes
from tests.experiments.drawing import RARELY, assert_draws
from tests.experiments.stacks import assert_stack_equals_single
from tests.test_cli import call

CPU = torch.device("cpu")
LENGTHS = (12, 31, 9, 24, 12, 40, 2, 17)
TINY = {
    "extractor": "small",
    "slots": 2,
    "hidden_dim": 16,
    "width": 4,
    "batch_size": 30,
    "validate_every": 1,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]


def arrays_of(lengths=LENGTHS, side=20, continuous=False, **changes):
    """A bright column that an action shifts, in front of noise that is the same in every frame."""
    draw = np.random.default_rng(0)
    behind = draw.integers(200, size=(side, side, 3), dtype=np.uint8)
    action = draw.integers(3, size=sum(lengths))
    obs, place = [], 0
    for step in action:
        frame = behind.copy()
        frame[:, place % side] = 255
        obs.append(frame)
        place += step - 1
    ends = np.zeros(sum(lengths), bool)
    ends[np.cumsum(lengths) - 1] = True
    recorded = np.stack([action - 1.0, action * 0.5], 1) if continuous else action
    return {"obs": np.stack(obs), "action": recorded, "episode_end": ends, **changes}


@pytest.fixture
def file(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of())
    return tmp_path / "my.npz"


def task_of(path, **changes) -> CustomTask:
    return CustomTask(Config(**{**TINY, "episodes": str(path), **changes}), CPU)


def test_train_eval_inspect_through_the_command_line(tmp_path, file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out, _ = call("train", "world-model", "--data=my.npz", "--out=mine", "--epochs=1", *FLAGS)
    assert "trained" in out
    saved = json.loads((tmp_path / "mine/config.json").read_text())
    assert saved["config"]["episodes"] == str(file)
    assert json.loads((tmp_path / "mine/metrics.jsonl").read_text())["step"] >= 2
    monkeypatch.chdir("/")
    out = call("eval", str(tmp_path / "mine"))[0]
    tested = json.loads((tmp_path / "mine/test.json").read_text())
    words = " ".join(out.split())
    config = saved["config"]
    assert verdict([tested], config) in words
    assert f"{100 * tested['predicted_1']:.1f}" in words
    assert "h1 " not in out
    rows = [row.split() for row in call("eval", str(tmp_path / "mine"), "--all")[0].splitlines()]
    (h1,) = (row for row in rows if row[:1] == ["h1"])
    assert [float(number) for number in h1[1:]] == pytest.approx(
        [tested["h1_1"], tested["h1_5"]], rel=1e-5
    )
    assert ["rollouts", str(tested["rollouts"])] in rows
    shown = call("inspect", str(tmp_path / "mine"))[0]
    assert "rule 3" in shown
    assert "Nothing moves: H@1" in shown
    _, model = load_task(tmp_path / "mine")
    assert not model.training
    assert (model.actions.count, model.encoder.size) == (3, (20, 20))


def test_inspect_where_actions_are_vectors(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of(continuous=True))
    folder = str(tmp_path / "mine")
    data = f"--data={tmp_path / 'my.npz'}"
    call("train", "world-model", data, f"--out={folder}", "--epochs=1", *FLAGS)
    assert "Nothing moves: H@1" in call("inspect", folder)[0]


def test_a_file_that_grows_moves_no_episode():
    for seed in range(5):
        many = splitting.held_out(41, 0.1, seed)
        for count in range(3, 41):
            for name, part in splitting.held_out(count, 0.1, seed).items():
                assert part.tolist() == many[name][many[name] < count].tolist()
        assert len(torch.cat([*many.values()]).unique()) >= 8
        least = splitting.held_out(3, 0.1, seed)
        assert sorted(map(len, least.values())) == [1, 1]
        assert least["test"].tolist() != least["validation"].tolist()
    first = {int(splitting.held_out(3, 0.1, seed)["test"]) for seed in range(20)}
    assert first == {0, 1, 2}


def test_what_grows_beyond_numbers_is_far_and_no_error(tmp_path):
    """One step ahead a model may be right and still grow without end in a roll-out."""
    np.savez(tmp_path / "my.npz", **arrays_of((40,) * 4))
    task = task_of(tmp_path / "my.npz", transition="snps")
    assert task.horizons == [1, 5, 10]
    model = task.make_model(0).eval()
    with torch.no_grad():
        for weight in model.transition.parameters():
            weight *= 1e3
    judged = task.evaluate(model, "validation")
    assert judged["h1_1"] >= 0
    assert task.test(model)["h1_1"] >= 0


def test_a_file_that_has_moved_is_asked_for(tmp_path, file):
    folder = str(tmp_path / "mine")
    flags = ["--epochs=1", "--test-steps=5", *FLAGS]
    call("train", "world-model", f"--data={file}", f"--out={folder}", *flags)
    moved = file.rename(tmp_path / "elsewhere.npz")
    from nps.experiments import _task

    _task.cache_clear()
    for command in ("eval", "inspect"):
        _, err = call(command, folder, code=2)
        assert err == (
            f"nps: error: {file}: no such file or folder; give its new path with --data\n"
        )
    assert "Copy the" in call("eval", folder, f"--data={moved}")[0]
    assert json.loads((tmp_path / "mine/test.json").read_text())["episodes"] == str(moved)
    _, err = call("eval", folder, f"--data={tmp_path / 'nowhere.npz'}", code=2)
    assert "--data: no such folder or file" in err
    np.savez(tmp_path / "other.npz", **arrays_of(side=30))
    _, err = call("eval", folder, f"--data={tmp_path / 'other.npz'}", code=2)
    assert "its model does not fit the data: size mismatch for encoder" in err
    assert err.count("\n") == 1


def test_other_episodes_are_tested_all_and_beside_its_own(tmp_path, file):
    folder = tmp_path / "mine"
    call("train", "world-model", f"--data={file}", f"--out={folder}", "--epochs=1", *FLAGS)
    call("eval", str(folder))
    own = (folder / "test.json").read_bytes()
    # Two episodes, and none of the highest action: not enough to train on, but to test on.
    other = arrays_of((25, 32))
    np.savez(tmp_path / "other.npz", **{**other, "action": other["action"].clip(max=1)})
    assert "Copy the" in call("eval", str(folder), f"--on={tmp_path / 'other.npz'}")[0]
    found = json.loads((folder / "test-on-other.json").read_text())
    assert found["on"] == str(tmp_path / "other.npz")
    assert found["rollouts"] == 24 // 10 + 31 // 10
    assert (folder / "test.json").read_bytes() == own
    shown = call("inspect", str(folder), f"--on={tmp_path / 'other.npz'}")[0]
    assert "among 5 roll-outs: by chance H@1 is 20." in " ".join(shown.split())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"side": 30}, "obs: got (H, W, C) = (30, 30, 3), expected (20, 20, 3) as in training"),
        ({"continuous": True}, "action: got continuous actions, expected discrete as in training"),
        ({"action": np.full(147, 4)}, "action: got 4, expected 0 to 2 as in training"),
        ({"lengths": (2,)}, "got one transition for test"),
    ],
    ids=["images", "kind", "actions", "short"],
)
def test_other_episodes_that_the_model_does_not_know(tmp_path, file, changes, message):
    task = task_of(file)
    np.savez(tmp_path / "other.npz", **arrays_of(**changes))
    with pytest.raises(UserError, match=re.escape(message)):
        with_test_set(task, str(tmp_path / "other.npz"))


def test_a_run_does_not_go_on_with_other_data(tmp_path, file):
    flags = ["--test-steps=5", *FLAGS]
    command = ["train", "world-model", f"--data={file}", f"--out={tmp_path / 'mine'}", *flags]
    task, runs = task_of(file, test_steps=5), {0: Run(tmp_path / "mine")}
    config = dataclasses.replace(task.config, epochs=3)
    with runs[0].writing():
        runs[0].claim(identity("world-model", "world-model", 0, config), fresh=False)
        with pytest.raises(Interrupted):
            train(task, config, runs, CPU, Settings(stop_at=3), lambda _: None)
    before = arrays_of()
    np.savez(file, **{**before, "action": before["action"][::-1]})
    _, err = call(*command, "--epochs=3", code=2)
    assert err.endswith("mine: its data have changed; --fresh starts over\n")
    assert err.count("\n") == 1
    assert "the data have changed since its training" in call("eval", str(tmp_path / "mine"))[1]
    assert [path.name for path in tmp_path.glob("mine/test*")] == ["test-on-changed-data.json"]
    np.savez(file, **before)
    assert "resuming after step 3" in call(*command, "--epochs=3")[1]


def test_roll_outs_of_other_lengths_are_ranked_too(file):
    np.savez(file, **arrays_of((30,) * 5))
    assert task_of(file, test_steps=7).horizons == [1, 5, 7]


def test_roll_outs_that_episodes_are_too_short_for(file, capsys):
    np.savez(file, **arrays_of((12,) * 5))
    assert task_of(file, test_steps=11).horizons == [1, 5]  # eleven steps leave one to rank
    recorded = "nps: test episodes are too short for roll-outs of 11 steps; using 5\n"
    assert capsys.readouterr().err == recorded


BROKEN = {
    "no such": (None, "no such folder or file"),
    "text": (b"hello", "truncated, or not a .npz file"),
    "no action": ({"action": None}, "no action; the file has"),
    "short": ({"action": np.zeros(3, int)}, "action: got 3 rows for 147 frames"),
    "black": ({"obs": np.zeros((147, 20, 20, 3), np.uint8)}, "obs: all images are equal, expected"),
    "range": ({"obs": np.full((147, 20, 20, 3), 7.0)}, "obs: got values from 7 to 7, expected 0"),
    "too many": ({"action": np.full(147, 10**12)}, "action: got 1000000000000, expected numbers b"),
    "one episode": ({"episode_end": np.arange(147) == 146}, "got 1 episode, expected at least 3"),
    "two": ({"episode_end": np.isin(np.arange(147), (9, 146))}, "got 2 episodes, expected at le"),
}


@pytest.mark.parametrize(("changes", "message"), BROKEN.values(), ids=BROKEN)
def test_bad_data_is_reported_in_one_line_and_nothing_is_written(tmp_path, changes, message):
    path = tmp_path / "my.npz"
    if isinstance(changes, bytes):
        path.write_bytes(changes)
    elif changes is not None:
        arrays = {key: array for key, array in arrays_of(**changes).items() if array is not None}
        np.savez(path, **arrays)
    out = tmp_path / "out"
    _, err = call("train", "world-model", f"--data={path}", f"--out={out}", *FLAGS, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_settings_that_do_not_fit_the_file(tmp_path, file):
    np.savez(tmp_path / "smooth.npz", **arrays_of(continuous=True))
    cases = {
        "batch_size: got 900, expected at most the": [f"--data={file}", "--batch-size=900"],
        "count: got 3 actions, expected a multiple of": [f"--data={file}", "--action=factored"],
        "action: got factored, expected copied": [
            f"--data={tmp_path / 'smooth.npz'}",
            "--action=factored",
        ],
        "expected --data": [],
    }
    for message, flags in cases.items():
        out = tmp_path / "out"
        given = ["--test-steps=5", *FLAGS, *flags]
        _, err = call("train", "world-model", f"--out={out}", *given, code=2)
        assert message in err
        assert err.count("\n") == 1
        assert not out.exists()


@pytest.mark.parametrize("share", ["0", "1e-200", "0.0009", "0.34", "0.49", "-0.1", "nan"])
def test_shares_that_cannot_be_held_out(tmp_path, file, share):
    flags = [f"--data={file}", f"--out={tmp_path / 'out'}", f"--held-out={share}"]
    _, err = call("train", "world-model", *FLAGS, *flags, code=2)
    assert f"held_out: got {share}, expected a number in [0.001, 0.333333]" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("share", "period"), [(1 / 3, 3), (0.3, 3), (0.25, 4), (0.001, 1000)])
def test_one_of_as_many_episodes_as_the_share_says(share, period):
    count = 3 * period
    assert Config(held_out=share).held_out == share
    for part in splitting.held_out(count, share, 0).values():
        assert (part // period).tolist() == [0, 1, 2]


@pytest.mark.parametrize("continuous", [False, True])
def test_images_and_actions_are_the_file_s(tmp_path, continuous):
    arrays = arrays_of(continuous=continuous)
    np.savez(tmp_path / "my.npz", **arrays)
    task = task_of(tmp_path / "my.npz")
    found = load_episodes(tmp_path / "my.npz")
    first = np.flatnonzero(np.diff(found.episode.numpy(), prepend=-1))
    train = task.sets["train"]
    assert task.examples == int((train.lengths - 1).sum())
    for e, start in enumerate(train.start.tolist()):
        assert start in first
        length = int(train.lengths[e])
        assert found.episode[start] == found.episode[start + length - 1]
        times = torch.arange(length)
        episode = torch.full((length,), e)
        images = train.images(episode, times)
        assert np.array_equal(images.numpy(), arrays["obs"][start : start + length])
        expected = torch.as_tensor(arrays["action"][start : start + length - 1])
        actions = train.actions(episode[1:], times[:-1])
        torch.testing.assert_close(actions.double(), expected.double())
    model = task.make_model(0)
    noise = torch.rand(9, task.noise_size)
    loss, _ = task.loss(model, Batch(torch.arange(9) * 7, noise, torch.tensor(0.0), "all"))
    assert torch.isfinite(loss)
    tested = task.test(model.eval())
    assert {f"h1_{step}" for step in task.horizons} <= set(tested)


def test_whole_episodes_are_held_out_and_cut_into_segments(file):
    data = load_episodes(file)
    for seed in range(5):
        task = task_of(file, held_out=0.25, data_seed=seed)
        used = {}
        for name, part in task.sets.items():
            frames = [
                set(range(start, start + length))
                for start, length in zip(part.start.tolist(), part.lengths.tolist(), strict=True)
            ]
            used[name] = {int(data.episode[n]) for some in frames for n in some}
            if name != "train":  # each begins where another ended, or with its episode
                assert all(len(some) == task.sets[name].action.shape[1] + 1 for some in frames)
                assert all(
                    len(one & other) <= 1 for one in frames for other in frames if one != other
                )
        assert not used["train"] & (used["validation"] | used["test"])
        assert not used["validation"] & used["test"]
        assert len(used["train"]) == 4
    truth = task.sets["test"].truth()
    start = task.sets["test"].start
    images = data.obs[(start[:, None] + torch.arange(truth.shape[1])).flatten()].flatten(1)
    same = (images[:, None] == images).all(-1)
    assert torch.equal(truth.flatten()[:, None] == truth.flatten(), same)


def test_nothing_is_kept_for_times_that_short_episodes_have_not(tmp_path):
    """Memory grows with the frames, not with episodes times the longest."""
    lengths = (3,) * 300 + (30_000,)
    ends = np.isin(np.arange(sum(lengths)), np.cumsum(lengths) - 1)
    obs = np.random.default_rng(0).integers(256, size=(len(ends), 10, 10, 1), dtype=np.uint8)
    np.savez(tmp_path / "my.npz", obs=obs, action=np.arange(len(ends)) % 3, episode_end=ends)

    class Largest(TorchFunctionMode):
        found = 0

        def __torch_function__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self.found = max(self.found, result.numel())
            return result

    with Largest() as largest:
        task = task_of(tmp_path / "my.npz")
    assert task.examples > 25_000
    assert largest.found <= obs.size


def test_short_episodes_are_ranked_after_fewer_steps(tmp_path):
    np.savez(tmp_path / "short.npz", **arrays_of((7,) * 30))
    assert task_of(tmp_path / "short.npz").horizons == [1, 5]
    np.savez(tmp_path / "shorter.npz", **arrays_of((3,) * 30))
    assert task_of(tmp_path / "shorter.npz").horizons == [1]
    np.savez(tmp_path / "least.npz", **arrays_of((2,) * 40))
    judged = (task := task_of(tmp_path / "least.npz")).evaluate(
        task.make_model(0).eval(), "validation"
    )
    assert set(judged) == {"score", "loss", "h1_1", "identity_h1_1"}
    assert splitting._some(torch.arange(10), 4).tolist() == [0, 2, 5, 7]


@pytest.mark.parametrize("continuous", [False, True])
def test_a_stack_of_seeds_equals_single_runs(tmp_path, continuous):
    np.savez(tmp_path / "my.npz", **arrays_of(continuous=continuous))
    task = task_of(tmp_path / "my.npz", epochs=2)
    assert_stack_equals_single(tmp_path, task, "loss")


def test_run_asks_for_the_file_before_anything_is_written(tmp_path):
    _, err = call("run", "world-model", f"--out={tmp_path / 'out'}", code=2)
    assert "expected --data" in err
    assert not (tmp_path / "out").exists()


def test_a_table_of_both_models(tmp_path, file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("world-model", "world-model-gnn"):
        folder = f"runs/{name}/seed-0"
        call("train", name, f"--data={file}", f"--out={folder}", "--epochs=1", *FLAGS)
        call("eval", folder)
    table = call("table", "runs")[0]
    assert table.startswith("| Model | Steps | Predicted | 95 % interval | Copy the input |")
    assert "| NPS | 1 |" in table
    assert "| GNN | all steps |" in table
    call("table", "runs", "--report")
    page = (tmp_path / "runs/report.html").read_text()
    assert page.index("NPS: After 1") < page.index("<th>Predicted</th>")
    assert page.index("<th>Predicted</th>") < page.index("<td>NPS: nothing moves</td>")
    assert "No difference between NPS and GNN can be concluded" in page
    assert "how often the slot changes most" in " ".join(
        call("inspect", "runs/world-model-gnn/seed-0")[0].split()
    )


@pytest.mark.parametrize("kind", ["bytes", "floats", "vectors"])
def test_the_picture_while_training_shows_rollouts(tmp_path, file, monkeypatch, kind):
    arrays = arrays_of(continuous=kind == "vectors")
    if kind == "floats":
        arrays["obs"] = (arrays["obs"] / 255).astype(np.float32)
    np.savez(file, **arrays)
    assert_draws(tmp_path, task_of(file, **RARELY), "rollouts", monkeypatch)
