"""The tracker on Sprites-MOT: its loss and masks against plain versions of them, commands."""

import dataclasses
import json

import pytest
import torch

import nps
from nps.errors import UserError
from nps.experiments.sprites import PRESETS, QUICK, Config, Sprites, SpritesTask
from nps.experiments.sprites.pictures import rows_of
from nps.experiments.sprites.report import LABELS
from nps.experiments.sprites.watching import AHEAD, as_bytes, as_floats, watch
from nps.interactions import GNN, Attention
from nps.models.tracker import Tracker
from nps.rules import ParallelNPS, SequentialNPS
from nps.training.config import from_json, to_json
from nps.training.task import Batch
from nps.worlds.sprites import render
from tests.test_cli import call
from tests.training.tools import assert_resumed_equals_whole

CPU = torch.device("cpu")
TINY = {
    "size": 16,
    "slots": 3,
    "latent_dim": 4,
    "channels": 4,
    "memory_dim": 8,
    "rule_hidden_dim": 4,
    "first_refinements": 2,
    "frames": 3,
    "video_frames": 6,
    "batch_size": 4,
    "epochs": 1,
    "validate_every": 1,
    "train_videos": 4,
    "validation_videos": 3,
    "test_videos": 3,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
TRACKERS = [name for name, preset in PRESETS.items() if preset.config.model == "tracker"]
BETWEEN = {
    "sprites-tracker": SequentialNPS,
    "sprites-tracker-pnps": ParallelNPS,
    "sprites-tracker-attention": Attention,
    "sprites-tracker-gnn": GNN,
    "sprites-tracker-none": type(None),
}


def task_of(**changes):
    return SpritesTask(Config(**{"model": "tracker", "zero_start": True, **TINY, **changes}), CPU)


def batch_of(*index, progress=0.3, phase="explore"):
    return Batch(torch.tensor(index), torch.zeros(len(index), 0), torch.tensor(progress), phase)


@pytest.mark.parametrize("name", TRACKERS)
def test_every_preset_builds_round_trips_and_steps(name):
    config = PRESETS[name].config
    assert from_json(Config, to_json(config)) == config
    assert config.bounce == ("bounce" in name)
    assert name in LABELS
    task = SpritesTask(dataclasses.replace(config, **TINY), CPU)
    model = task.make_model(0)
    assert isinstance(model, Tracker)
    assert type(model.interaction) is BETWEEN[name.replace("-bounce", "")]
    loss, parts = task.loss(model, batch_of(0, 5, 7))
    loss.backward()
    assert set(parts) == {"mse", "next_mse", "disagreement", "area"}
    assert loss.isfinite()


def test_the_short_version_is_of_the_tracker_too():
    assert {"sprites-tracker", "sprites-tracker-none"} <= set(QUICK)
    for name, changes in QUICK.items():
        assert dataclasses.replace(PRESETS[name].config, **changes).size == 32


def test_the_loss_is_of_frames_seen_and_expected():
    task = task_of(expectation=0.5, disagreement=0.7, area=0.1)
    model = task.make_model(0)
    for progress, weight in ((0.0, 0.0), (0.25, 0.5), (0.9, 1.0)):
        batch = batch_of(0, 5, progress=progress)
        torch.manual_seed(5)
        loss, parts = task.loss(model, batch)
        torch.manual_seed(5)
        images = task.training_clips(batch)
        frames = as_floats(images)
        model.train()
        watching = model(images)
        seen = [model.decoder(watching.read[:, t], watching.present[:, t]) for t in range(3)]
        later = [model.decoder(watching.expected[:, t], watching.present[:, t]) for t in range(2)]
        now = sum((s.images - frames[:, t]).square().mean() for t, s in enumerate(seen)) / 3
        then = sum((s.images - frames[:, t + 1]).square().mean() for t, s in enumerate(later)) / 2
        apart = sum(s.disagreement.mean() for s in seen) / 3
        apart += 0.5 * sum(s.disagreement.mean() for s in later) / 2
        shares = torch.stack([s.masks[:, :3].mean((-1, -2)) for s in seen])
        area = (shares + 1e-3).sqrt().sum(-1).mean()
        torch.testing.assert_close(parts["mse"], now)
        torch.testing.assert_close(parts["next_mse"], then)
        torch.testing.assert_close(parts["disagreement"], apart)
        torch.testing.assert_close(loss, 3 * (now + 0.5 * then) + 0.7 * apart + 0.1 * weight * area)


def test_watching_asks_after_each_frame():
    """What is drawn of each frame, and what is expected one and three frames later."""
    task = task_of()
    model = task.make_model(0).eval()
    part = next(iter(task.batches("test")))
    images = render(part.videos, size=16).images
    watched = watch(model, as_floats(images), part.noise, task.config)
    assert {h: x.shape[1] for h, x in watched.ahead.items()} == {1: 5, 3: 3}
    assert torch.equal(as_bytes(as_floats(images)), images)
    with torch.no_grad():
        for t in range(6):
            watching = model(images[:, : t + 1])  # what comes later does not matter
            slots, present = watching.read[:, t], watching.present[:, t]
            drawn = model.decoder(slots, present)
            assert torch.equal(watched.segments[:, t], drawn.masks.argmax(1))
            torch.testing.assert_close(watched.images[:, t], drawn.images)
            for h in range(1, min(3, 5 - t) + 1):
                slots, _ = model.advance(slots, present)
                drawn = model.decoder(slots, present)
                if h in AHEAD:
                    assert torch.equal(watched.ahead[h][:, t], drawn.masks.argmax(1))
                if h == 1:
                    torch.testing.assert_close(watched.expected[:, t], drawn.images)


def test_the_background_is_no_slot_and_black():
    task = task_of()
    assert task.config.segments == 4
    assert Config().segments == Config().slots
    part = next(iter(task.batches("test")))
    images = render(part.videos, size=16).images
    watched = watch(task.make_model(0).eval(), as_floats(images), part.noise, task.config)
    segments = torch.arange(4).view(1, 1, 2, 2).expand(3, 6, 2, 2)
    rows = rows_of(
        images[:, :, :2, :2],
        watched._replace(segments=segments, images=watched.images[..., :2, :2]),
    )
    black = (rows[:, 2] == 0).all(-1)
    assert black[..., 1, 1].all()
    assert not black[..., 0, :].any()


def test_choices_have_no_noise_once_they_settle():
    task = task_of(settle_from=0.5)
    model = task.make_model(0)
    task.loss(model, batch_of(0, phase="settle"))
    assert model.training
    assert not model.interaction.training


def test_commands_from_training_to_the_report(tmp_path):
    """Two steps of each."""
    for name in BETWEEN:
        run = str(tmp_path / "runs" / name / "seed-0")
        call("train", name, "--out", run, *FLAGS)
        assert "MOTA" in call("eval", run)[0]
    assert "MOTA" in call("inspect", run)[0]
    figures = tmp_path / "runs/sprites-tracker-none/seed-0/figures"
    assert (figures / "tracking.gif").read_bytes().startswith(b"GIF")
    assert (figures / "tracking.png").read_bytes().startswith(b"\x89PNG")
    tested = json.loads((tmp_path / "runs/sprites-tracker/seed-0/test.json").read_text())
    assert tested["interaction_parameters"] > 0
    out, _ = call("table", str(tmp_path / "runs"))
    assert all(LABELS[name] in " ".join(out.split()) for name in BETWEEN)


def test_a_trained_model_is_traced(tmp_path):
    for name in ("sprites-tracker", "sprites-tracker-gnn"):
        call("train", name, "--out", str(tmp_path / name), *FLAGS)
    trace = nps.load(tmp_path / "sprites-tracker").trace(n=2)
    assert trace.rule.shape == (2, 6, 3, 3)  # videos, frames, stages, slots
    with pytest.raises(UserError, match=r"no rules \(GNN between its slots"):
        nps.load(tmp_path / "sprites-tracker-gnn").trace(n=2)


def test_stopped_and_resumed_it_ends_the_same(tmp_path):
    """With noise in first places and in choices: bit for bit."""
    assert_resumed_equals_whole(tmp_path, lambda: task_of(epochs=3), stops=(1, 4), last=6)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("interaction", {"interaction": "op3"}),
        ("model", {"model": "sort"}),
        ("feature_stride", {"feature_stride": 3}),
        ("size", {"size": 18}),
        ("latent_dim", {"latent_dim": 2}),
        ("latent_dim", {"latent_dim": 5, "interaction": "attention"}),
        ("channels", {"channels": 1}),
        ("extent", {"extent": 0.0}),
        ("expectation", {"expectation": -1.0}),
        ("area", {"area": -1.0}),
    ],
)
def test_bad_settings_are_refused(field, changes):
    with pytest.raises(ValueError, match=field):
        Config(**{"model": "tracker", **TINY, **changes})


def test_the_experiment_knows_its_presets():
    assert set(TRACKERS) <= set(Sprites.presets)
    assert len(TRACKERS) == 10
