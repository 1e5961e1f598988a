"""Sprites-MOT: the loss against a plain loop, the protocol on perfect and poor masks, commands."""

import dataclasses
import json

import pytest
import torch

import nps
from nps.errors import UserError
from nps.experiments.sprites import PRESETS, QUICK, Config, Sprites, SpritesTask
from nps.experiments.sprites import evaluation as evaluating
from nps.experiments.sprites.evaluation import FIRST, by_colour, measure, straight_on, summary
from nps.experiments.sprites.headline import verdict
from nps.experiments.sprites.report import METRICS, write_report
from nps.experiments.sprites.watching import AHEAD, Watched, as_floats, segments, watch
from nps.inspect.report import Table
from nps.training.config import from_json, to_json
from nps.training.task import Batch
from nps.worlds.sprites import COLOURS, render
from tests.test_cli import call
from tests.training.tools import assert_resumed_equals_whole

CPU = torch.device("cpu")
TINY = {
    "size": 8,
    "slots": 3,
    "latent_dim": 3,
    "channels": 2,
    "memory_dim": 4,
    "rule_hidden_dim": 4,
    "first_refinements": 2,
    "refinements": 1,
    "frames": 2,
    "video_frames": 6,
    "batch_size": 4,
    "epochs": 1,
    "validate_every": 1,
    "train_videos": 4,
    "validation_videos": 3,
    "test_videos": 3,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]


def task_of(**changes):
    return SpritesTask(Config(**{**TINY, **changes}), CPU)


def batch_of(*index, progress=0.3, phase="explore"):
    noise = torch.zeros(len(index), 0)
    return Batch(torch.tensor(index), noise, torch.tensor(progress), phase)


@pytest.mark.parametrize("name", [n for n, p in PRESETS.items() if p.config.model == "op3"])
def test_every_preset_builds_round_trips_and_steps(name):
    config = PRESETS[name].config
    assert from_json(Config, to_json(config)) == config
    task = SpritesTask(dataclasses.replace(config, **TINY), CPU)
    loss, parts = task.loss(task.make_model(0), batch_of(0, 5, 11))
    loss.backward()
    assert set(parts) == {"pixels", "divergence"}
    assert loss.isfinite()


def test_the_papers_settings():
    config = PRESETS["sprites"].config
    assert (config.rules, config.stages, config.rule_dim, config.key_dim) == (10, 3, 64, 32)
    assert (config.slots, config.beta, config.batch_size, config.clip_norm) == (5, 0.01, 16, 5.0)
    assert (config.frames, config.video_frames) == (5, 10)
    model = SpritesTask(PRESETS["sprites-op3"].config, CPU).make_model(0)
    assert sum(p.numel() for p in model.parameters()) == 876_305
    assert set(QUICK) <= set(PRESETS)


def test_clips_are_cut_out_of_videos():
    task = task_of()
    videos = task.videos("train")
    clips = task.training_clips(batch_of(0, 5, 11))
    images = render(videos, size=8).images
    for clip, (video, start) in zip(clips, ((0, 0), (1, 2), (3, 4)), strict=True):
        assert torch.equal(clip, images[video, start : start + 2])
    assert task.examples == 12


def test_the_loss_weighs_the_steps_of_the_schedule(monkeypatch):
    task = task_of(frames=3)
    model = task.make_model(0)
    torch.manual_seed(5)
    loss, parts = task.loss(model, batch_of(0, 5))
    torch.manual_seed(5)
    frames = as_floats(task.training_clips(batch_of(0, 5)))
    model.train()
    moments = list(model(frames, ["refine", "refine", "move", "refine", "move", "refine"], 3))
    weights = [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    expected = sum(w * m.loss.total for w, m in zip(weights, moments, strict=True)) / 5.5
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(parts["pixels"], moments[-1].loss.pixels)


def test_choices_have_no_noise_once_they_settle():
    task = task_of(settle_from=0.5)
    model = task.make_model(0)
    assert [task.phase(x) for x in (0.0, 0.5)] == ["explore", "settle"]
    task.loss(model, batch_of(0, phase="settle"))
    assert model.training
    assert not model.dynamics.interaction.training
    task.loss(model, batch_of(0, phase="explore"))
    assert model.dynamics.interaction.training


def test_watching_asks_after_each_frame():
    """What is drawn after the last refinement of a frame, and after moves from there."""
    task = task_of()
    model = task.make_model(0).eval()
    part = next(iter(task.batches("test")))
    frames = as_floats(render(part.videos, size=8).images)
    watched = watch(model, frames, part.noise, task.config)
    assert {h: x.shape[1] for h, x in watched.ahead.items()} == {1: 5, 3: 3}
    with torch.no_grad():
        state = model.begin(3, 3, part.noise)
        for t in range(6):
            for _ in range(1 if t else 2):
                drawn = model.draw(state)
                state = model.refine(
                    state, drawn, model.loss(state, drawn, frames[:, t]), frames[:, t]
                )
            drawn = model.draw(state)
            assert torch.equal(watched.segments[:, t], segments(drawn))
            torch.testing.assert_close(watched.images[:, t], (drawn.masks * drawn.colours).sum(1))
            later = state
            for h in range(1, min(3, 5 - t) + 1):
                later, _ = model.move(later)
                drawn = model.draw(later)
                if h in AHEAD:
                    assert torch.equal(watched.ahead[h][:, t], segments(drawn))
                if h == 1:
                    image = (drawn.masks * drawn.colours).sum(1)
                    torch.testing.assert_close(watched.expected[:, t], image)
            state, _ = model.move(state)


def test_true_masks_have_a_perfect_score(monkeypatch):
    task = task_of(video_frames=10, size=64, test_videos=20, slots=4)
    part = next(iter(task.batches("test")))
    images, labels = render(part.videos, size=64)
    frames = as_floats(images)
    other = torch.tensor([3, 1, 0, 2])  # slots are not ordered as sprites are
    truth = other[labels.long()]

    def as_it_is(*_):
        ahead = {h: truth[:, h:] for h in AHEAD}
        return Watched(truth, frames, ahead, frames[:, 1:])

    monkeypatch.setattr(evaluating, "watch", as_it_is)
    metrics = summary(measure(task.config, None, part))
    for prefix in ("", "ahead1_", "ahead3_"):
        assert metrics[f"{prefix}mota"] == metrics[f"{prefix}motp"] == 100.0
    assert metrics["mse"] == metrics["ahead1_mse"] == 0.0
    assert -100 < metrics["copy3_mota"] < metrics["copy1_mota"] < 60
    assert 40 < metrics["colour_mota"] < 95
    assert metrics["copy1_mse"] > 0.005


def test_predictions_are_scored_on_the_frames_that_they_are_of(monkeypatch):
    """Ahead 3: the frames from 3 on, of what was predicted from frame 0 on."""
    task = task_of(size=16)
    part = next(iter(task.batches("test")))
    seen = {}

    def noted(name, labels, predicted, sprites, slots):
        seen[name] = labels.shape[1], predicted.shape[1], predicted.flatten()[0].item()
        return {}

    _, labels = render(part.videos, size=16)
    numbered = torch.arange(6).view(1, 6, 1, 1).expand(3, 6, 16, 16)
    ahead = {h: numbered[:, h:] for h in AHEAD}
    frames = as_floats(render(part.videos, size=16).images)
    watched = Watched(numbered, frames, ahead, frames[:, 1:])
    monkeypatch.setattr(evaluating, "watch", lambda *_: watched)
    monkeypatch.setattr(evaluating, "tracked", noted)
    measure(task.config, None, part)
    assert seen[""] == (4, 4, FIRST)
    assert seen["ahead1_"] == (4, 4, 2)
    assert seen["ahead3_"] == (3, 3, 3)
    assert seen["copy3_"] == (3, 3, labels[0, 0, 0, 0].item())


def test_sprites_that_fly_straight_are_where_straight_on_says():
    task = task_of(video_frames=10, test_videos=30)
    videos = task.videos("test")
    labels, expected = render(videos, size=64).labels, straight_on(videos, 2, 64)
    known = (videos.identity[:, 1:-2] >= 0) & (videos.identity[:, :-3] == videos.identity[:, 1:-2])
    stays = videos.identity[:, 3:] == videos.identity[:, 1:-2]
    whole = (known & stays | ~videos.present[:, 1:-2] & ~videos.present[:, 3:]).all(-1)
    assert whole.sum() > 50
    assert (labels[:, 3:][whole] == expected[:, 1:-2][whole]).float().mean() > 0.9999


def test_segments_by_colour():
    images = torch.tensor([(0, 0, 0), *COLOURS], dtype=torch.uint8).view(1, 1, 1, 7, 3)
    found = by_colour(images).flatten().tolist()
    assert found[0] == 0
    assert sorted(found) == list(range(7))


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"mota": 60.0, "ahead1_mota": 50.0}, "no better than colours alone"),
        ({"mota": 95.0, "ahead1_mota": 50.0}, "and are told apart where they will be"),
        ({"mota": 95.0, "ahead1_mota": 10.0}, "is not known better than where they were"),
    ],
)
def test_verdicts(metrics, says):
    floors = {"colour_mota": 80.0, "copy1_mota": 20.0, "copy3_mota": -60.0, "ahead3_mota": 0.0}
    assert says in verdict({**floors, **metrics})


def test_commands_from_training_to_the_report(tmp_path):
    for name in ("sprites", "sprites-op3"):
        run = str(tmp_path / "runs" / name / "seed-0")
        call("train", name, "--out", run, *FLAGS)
        assert "MOTA" in call("eval", run)[0]
    assert "MOTA" in call("inspect", run)[0]
    tested = json.loads((tmp_path / "runs/sprites/seed-0/test.json").read_text())
    out, _ = call("table", str(tmp_path / "runs"))
    assert "leaderboard: SCALOR" in out
    whole, ahead = (
        part for part in write_report(tmp_path / "runs", Sprites()).parts if isinstance(part, Table)
    )
    assert [row[0] for row in whole.rows[:2]] == ["OP3", "OP3 with sequential NPS"]
    assert all(len(row) == 1 + len(METRICS) for row in whole.rows)
    assert whole.rows[1][1] == f"{tested['mota']:.1f}"
    assert [row[0] for row in ahead.rows[-2:]] == ["floor: what was there", "floor: straight on"]


def test_a_trained_model_is_traced(tmp_path):
    for name in ("sprites", "sprites-op3"):
        call("train", name, "--out", str(tmp_path / name), *FLAGS)
    trace = nps.load(tmp_path / "sprites").trace(n=2)
    assert trace.rule.shape == (2, 5, 3, 3)  # videos, moves, stages, slots
    assert ((trace.rule >= 0).sum(-1) == 1).all()  # sequential: one slot a stage
    with pytest.raises(UserError, match=r"no rules \(Pairwise between its slots"):
        nps.load(tmp_path / "sprites-op3").trace(n=2)


def test_stopped_and_resumed_it_ends_the_same(tmp_path):
    """With noise in latents and in choices: bit for bit."""
    assert_resumed_equals_whole(tmp_path, lambda: task_of(epochs=2), stops=(1, 4), last=6)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interaction", "gnn"),
        ("slots", 0),
        ("size", 4),
        ("frames", 1),
        ("frames", 7),
        ("video_frames", 3),
        ("beta", -1.0),
        ("bounce", 2),
        ("settle_from", 1.5),
        ("data_seed", -1),
    ],
)
def test_bad_settings_are_refused(field, value):
    with pytest.raises(ValueError, match=field):
        Config(**{**TINY, field: value})
