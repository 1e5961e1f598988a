"""`nps.load`: a run as one object, beside what its model and its files say directly."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

import nps
from nps.errors import UserError
from nps.perception.places import drift, in_radii, push
from nps.training import checkpoint
from tests.experiments.test_custom import TINY as OWN
from tests.experiments.test_custom import arrays_of

ARITHMETIC = {
    "epochs": 3,
    "train_examples": 640,
    "validation_examples": 50,
    "test_examples": 40,
    "validate_every": 1,
}
BLOCKS = {
    "epochs": 1,
    "extractor": "small",
    "hidden_dim": 8,
    "width": 4,
    "batch_size": 20,
    "train_episodes": 4,
    "train_steps": 10,
    "validation_episodes": 5,
    "test_episodes": 5,
    "test_steps": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of two seeds, which tests only read."""
    out = tmp_path_factory.mktemp("arithmetic")
    nps.train("arithmetic", out=out, seeds=2, save_every=0, progress=False, **ARITHMETIC)
    return out


# -- what a run has ---------------------------------------------------------------------------


def test_model_config_metrics_and_data(folder):
    run = nps.load(folder, seed=1)
    saved = checkpoint.newest(folder / "seed-1/checkpoints", print)
    state = run.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in saved.tensors["best"].items())
    assert not run.model.training
    assert (run.experiment, run.preset, run.seed) == ("arithmetic", "arithmetic", 1)
    assert run.step == saved.state["best_step"]
    assert run.config.rules == 4
    assert run.config.epochs == 3
    lines = (folder / "seed-1/metrics.jsonl").read_text().splitlines()
    assert run.metrics == [json.loads(line) for line in lines]
    assert run.curve("loss") == ([1, 2, 3], [row["loss"] for row in run.metrics])
    assert run.curve("validation/mse")[1] == [row["validation"]["mse"] for row in run.metrics]
    assert {name: len(part.operation) for name, part in run.data.items()} == {
        "train": 640,
        "validation": 50,
        "test": 40,
    }
    assert run.test()["mse"] == pytest.approx(run.task.evaluate(run.model, "test")["mse"])
    with pytest.raises(UserError, match="curve: got 'mse', expected one of epoch, step, loss, "):
        run.curve("mse")


def test_its_repr_is_one_line_with_the_numbers_of_the_best_model(folder):
    run = nps.load(folder, seed=0)
    best = min(run.metrics, key=lambda row: row["validation"]["score"])
    assert repr(run) == (
        f"<run of arithmetic, preset arithmetic, seed 0: best model of step {best['step']}, "
        f"validation mse {best['validation']['mse']:.4g}, segregation "
        f"{best['validation']['segregation']:.4g}; {folder / 'seed-0'}>"
    )
    last = nps.load(folder, seed=0, which="last")
    assert "last model of step 30, " in repr(last)


def test_data_are_read_when_they_are_needed(folder, monkeypatch):
    """A log can be plotted on a machine that does not have the data."""

    def refuse(*_):
        raise AssertionError("data were made")

    monkeypatch.setattr("nps.experiments.loaded.make_task", refuse)
    run = nps.load(folder, seed=0)
    assert run.metrics
    assert "validation mse" in repr(run)
    with pytest.raises(AssertionError, match="data were made"):
        _ = run.model


def test_settings_of_the_program_do_not_change_the_model(folder):
    expected = nps.load(folder, seed=0).model.state_dict()
    random = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            model = nps.load(folder, seed=0).model
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in model.state_dict().items():
        assert value.dtype == expected[name].dtype
        assert torch.equal(value, expected[name])
        assert not value.is_inference()
    assert torch.equal(torch.get_rng_state(), random)


# -- which run --------------------------------------------------------------------------------


def test_a_checkpoint_folder_loads_too(folder):
    steps = checkpoint.steps(folder / "seed-0/checkpoints")
    path = checkpoint.path_of(folder / "seed-0/checkpoints", steps[0])
    assert nps.load(path, which="last").step == steps[0] < steps[-1]


@pytest.mark.parametrize(
    ("where", "how", "message"),
    [
        ("", {}, "holds runs of seeds 0, 1; choose one with seed="),
        ("", {"seed": 7}, "no run of seed 7; it holds 0, 1"),
        ("seed-0", {"seed": 1}, "seed-0: a run of seed 0, expected 1"),
        ("nowhere", {}, "nowhere: no such run folder"),
        ("seed-0/checkpoints", {}, "not a run folder, it has no config.json"),
        ("seed-0", {"which": "first"}, "which: got 'first', expected best or last"),
        ("seed-0", {"device": "gpu"}, "device: got 'gpu', expected cpu or cuda"),
        ("seed-0", {"data": "nowhere"}, "data: no such folder or file: "),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_line(folder, where, how, message):
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        _ = nps.load(folder / where, **how).model
    assert "\n" not in str(refused.value)


def test_many_seeds_are_named_by_the_first_and_the_last(tmp_path):
    for seed in range(9, 12 + 1):
        (tmp_path / f"seed-{seed}").mkdir()
        (tmp_path / f"seed-{seed}/config.json").write_text("{}")
    with pytest.raises(UserError, match="holds runs of seeds 9 to 12; choose one with seed="):
        nps.load(tmp_path)


def test_a_damaged_log_does_not_keep_a_run_from_being_shown(tmp_path, folder):
    shutil.copytree(folder / "seed-0", tmp_path / "run")
    for text in ("not JSON\n{}\n", "", '{"epoch": 1}\n'):
        (tmp_path / "run/metrics.jsonl").write_text(text)
        assert "best model of step 30; " in repr(nps.load(tmp_path / "run"))


def test_an_older_checkpoint_is_used_with_a_warning_that_names_both(tmp_path, folder):
    shutil.copytree(folder / "seed-0", tmp_path / "run")
    older, newest = (
        checkpoint.path_of(tmp_path / "run/checkpoints", step)
        for step in checkpoint.steps(tmp_path / "run/checkpoints")
    )
    (newest / "model.safetensors").write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged") as warned:
        run = nps.load(tmp_path / "run", which="last")
    assert run.step == int(older.name.removeprefix("step-"))
    (message,) = (str(each.message) for each in warned)
    assert newest.name in message
    assert older.name in message
    assert warned[0].filename == __file__


def test_data_that_have_changed_since_the_last_call_are_read_again(tmp_path, capsys):
    path = tmp_path / "my.npz"
    np.savez(path, **arrays_of())
    changes = {"epochs": 1, "test_steps": 5, **OWN}
    nps.train("world-model", out=tmp_path / "mine", data=path, progress=False, **changes)
    first = nps.load(tmp_path / "mine")
    assert len(first.data["train"].obs) == 147
    assert first.task is nps.load(tmp_path / "mine").task
    np.savez(path, **arrays_of((50, 31, 9, 24, 12, 40, 2, 17)))
    second = nps.load(tmp_path / "mine")
    assert capsys.readouterr().err == ""
    assert second.model is not None
    assert "the data have changed since its training" in capsys.readouterr().err
    assert len(second.data["train"].obs) == 185
    moved = path.rename(tmp_path / "moved.npz")
    with pytest.raises(UserError, match="no such file or folder"):
        _ = nps.load(tmp_path / "mine").model
    assert nps.load(tmp_path / "mine", data=moved).model is not None


# -- what fires, and roll-outs ----------------------------------------------------------------


def assert_same_trace(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_trace_of_arithmetic(folder):
    run = nps.load(folder, seed=0)
    data = run.data["validation"]
    with torch.no_grad():
        expected = run.model(data.before[:3], data.after[:3], return_trace=True)[1]
    assert_same_trace(run.trace(n=3), expected)
    assert not run.trace(n=1).rule_scores.requires_grad
    assert len(run.trace().rule) == 8
    assert_same_trace(run.trace(*run.examples(3)), expected)
    double = data.before[:3].double().numpy()
    assert_same_trace(run.trace(double, data.after[:3].tolist()), expected)
    assert len(run.trace(n=40, split="test").rule) == 40
    for how, message in (
        ({"n": 51}, "n: got 51, expected 1 to 50, as many as validation has"),
        ({"n": 0}, "n: got 0, expected 1 to 50"),
        ({"split": "dev"}, "split: got 'dev', expected one of train, validation, test"),
    ):
        with pytest.raises(UserError, match=message):
            run.trace(**how)
    with pytest.raises(UserError, match="trace: got 1 inputs, expected before, after"):
        run.trace(data.before)
    with pytest.raises(UserError, match="rollout: this experiment has no episodes"):
        run.rollout()


def assert_world_model(run):
    """Its traces and roll-outs are those of one transition after the other."""
    model, data = run.model, run.data["validation"]
    images, action = run.examples(3)
    first = torch.zeros(3, dtype=torch.long)
    assert torch.equal(images, data.images(first, torch.arange(3)))
    with torch.no_grad():
        expected = model.traced(model.encode(images), action)[1]
        assert_same_trace(run.trace(n=3), expected)
        assert_same_trace(run.trace(model.encode(images), action), expected)
    found = run.rollout(n=2, steps=3)
    whole, actions = run.task.first_episodes("validation", 2, 3)
    assert torch.equal(actions, data.action[:2, :3])
    with torch.no_grad():
        for e in range(2):
            slots = model.encode(whole[e, :1])
            for t in range(3):
                slots, trace = model.traced(slots, actions[e, t : t + 1])
                torch.testing.assert_close(found.slots[e, t], slots[0])
                assert torch.equal(found.trace.rule[e, t], trace.rule[0])
                true = model.encode(data.images(torch.tensor([e]), torch.tensor([t + 1])))
                torch.testing.assert_close(found.true[e, t], true[0])
    alone = run.rollout(whole[:, 0], actions)
    assert alone.true is None
    torch.testing.assert_close(alone.slots, found.slots)
    most = data.action.shape[1]
    assert run.rollout().slots.shape[:2] == (min(8, len(data.action)), most)
    with pytest.raises(UserError, match=f"steps: got 99, expected 1 to {most}, as many as an epi"):
        run.rollout(n=1, steps=99)
    with pytest.raises(UserError, match="rollout: expected images and actions, or neither"):
        run.rollout(images)


def test_trace_and_rollout_of_blocks(tmp_path):
    how = {"progress": False, **BLOCKS}
    assert_world_model(nps.train("blocks-fixed-nps-2", out=tmp_path / "nps", **how))
    gnn = nps.train("blocks-fixed-gnn", out=tmp_path / "gnn", **how)
    assert gnn.rollout(n=2).trace is None
    assert gnn.rollout(n=2).slots.shape == gnn.rollout(n=2).true.shape
    with pytest.raises(UserError, match=r"this model has no rules \(GNNTransition\)"):
        gnn.trace()


@pytest.mark.parametrize("continuous", [False, True])
def test_trace_and_rollout_of_own_data(tmp_path, continuous):
    np.savez(tmp_path / "my.npz", **arrays_of(continuous=continuous))
    changes = {"epochs": 1, "test_steps": 5, "progress": False, **OWN}
    run = nps.train("world-model", out=tmp_path / "mine", data=tmp_path / "my.npz", **changes)
    assert_world_model(run)
    with pytest.raises(UserError, match="episodes of train differ in length"):
        run.rollout(split="train")


def test_trace_and_rollout_of_digits(tmp_path):
    pytest.importorskip("sklearn")
    from tests.experiments.test_mnist import TINY

    run = nps.train("mnist", out=tmp_path / "nps", progress=False, **TINY)
    model, (images, operation) = run.model, run.examples(6)
    with torch.no_grad():
        expected = model(images, operation, return_trace=True)[1]
        assert_same_trace(run.trace(n=6), expected)
        assert_same_trace(run.trace(model.encode(images), operation), expected)
    found = run.rollout(n=3)
    pictures, chains = run.task.first_episodes("validation", 3, None)
    assert torch.equal(images[:4], pictures[0, :4])  # the first chain, pair by pair
    assert torch.equal(operation[:4], chains[0])
    with torch.no_grad():
        slot = model.encode(pictures[:, 0])
        for t in range(4):
            slot, trace = model.step(slot, chains[:, t], return_trace=True)
            torch.testing.assert_close(found.slots[:, t, 0], slot)
            assert torch.equal(found.trace.rule[:, t], trace.rule)
            torch.testing.assert_close(found.true[:, t, 0], model.encode(pictures[:, t + 1]))
    with pytest.raises(UserError, match="split: got 'train', expected validation or test"):
        run.trace(split="train")
    mlp = nps.train("mnist", out=tmp_path / "mlp", progress=False, model="mlp", **TINY)
    assert mlp.rollout(n=1).trace is None
    with pytest.raises(UserError, match=r"this model has no rules \(model mlp\)"):
        mlp.trace()


def test_trace_and_rollout_of_video(tmp_path):
    """Frame by frame: read what is seen or predicted, move, let the rules change the slots."""
    from tests.experiments.test_balls import TINY

    run = nps.train("balls", out=tmp_path / "nps", progress=False, **TINY)
    model = run.model
    with torch.no_grad():  # rules that do something, and let no slot grow to its limit
        model.interaction.rules.weight_out.normal_(std=0.1)
    frames, noise = run.examples(2, "test")
    whole, actions = run.task.first_episodes("test", 2, 3)
    assert torch.equal(frames, whole[:, :4])
    assert whole.shape[1] == 4 + 3
    assert actions.shape == (2, 3, 0)
    found, fired = run.rollout(n=2, steps=3, split="test"), run.trace(n=2, split="test")

    radius = run.config.radius

    def advance(start, present):
        moved = push(start, radius * model.move(in_radii(start, radius)))
        new, trace = model.interaction(
            in_radii(moved, radius), slot_mask=present, return_trace=True
        )
        return drift(in_radii(new, 1 / radius), start), trace

    with torch.no_grad():
        seen = model.reader.look_at(
            model.encoder(whole.transpose(0, 1).flatten(0, 1)).view(7, 2, -1, 4)
        )
        start = model.reader.begin(seen[0], 5)
        files = truly = start
        for t in range(6):
            shown = seen[t]
            if t >= 4:
                drawn = (255 * model.decoder(files).images.clamp(0, 1)).round().to(torch.uint8)
                features = model.encoder(drawn.permute(0, 2, 3, 1))
                shown = model.reader.look_at(features.unsqueeze(0))[0]
            files, trace = advance(*model.reader.read(shown, files, first=t == 0))
            truly, _ = advance(*model.reader.read(seen[t], truly, first=t == 0))
            if t < 4:
                assert torch.equal(fired.rule[:, t], trace.rule)
            if t >= 3:
                torch.testing.assert_close(found.slots[:, t - 3], files)
                assert torch.equal(found.trace.rule[:, t - 3], trace.rule)
                after = model.reader.read(seen[t + 1], truly, first=False).slots
                torch.testing.assert_close(found.true[:, t - 3], after)
    alone = run.rollout(frames, actions)
    assert alone.true is None
    torch.testing.assert_close(alone.slots, found.slots)
    assert run.rollout().slots.shape[:2] == (3, 1)  # of validation, the next frame alone
    assert run.trace(n=2, split="transfer").rule.shape == (2, 4, 3, 9)
    assert_same_trace(run.trace(frames, noise), fired)
    assert set(run.data) == {"train", "validation", "test", "transfer"}
    assert run.data["train"].position.shape[:3] == (8, 8, 4)
    with pytest.raises(UserError, match="split: got 'tset', expected one of train, validation, "):
        run.trace(n=2, split="tset")
    with pytest.raises(UserError, match="split: got 'transfer', expected validation or test"):
        run.rollout(split="transfer")
    with pytest.raises(UserError, match="n: got 4, expected 1 to 3, as many as test has"):
        run.trace(n=4, split="test")
    other = nps.train("balls-none", out=tmp_path / "none", progress=False, **TINY)
    assert other.rollout(n=1).trace is None
    with pytest.raises(UserError, match=r"this model has no rules \(nothing between its slots\)"):
        other.trace()


def test_nothing_is_written(folder):
    """A run of somebody else can be looked at, too."""
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    run = nps.load(folder, seed=0)
    run.trace(n=1)
    run.test()
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
