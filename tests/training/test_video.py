"""Video fits: recurrence, convolutions, dropout, from every source, resumed bit for bit."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

from nps.training import checkpoint
from nps.training.batches import Batches
from nps.training.data import AHEAD
from nps.training.log import png
from nps.training.optimiser import learning_rates
from nps.training.run import Run
from nps.training.signals import Interrupted
from tests.training.tools import files
from tests.training.video import CONFIG, FRAMES, SIZE, SOURCES, STEPS, VideoTask, go, render

CPU = torch.device("cpu")
LAST = f"checkpoints/step-{STEPS:08d}"
GROUPS = ("model", "best", "ema", "optimizer")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of an uninterrupted training."""
    folder = tmp_path_factory.mktemp("whole")
    go(folder, VideoTask("made"))
    return files(folder)


def assert_same_end(folder, whole):
    ours = files(folder)
    assert ours["metrics.jsonl"] == whole["metrics.jsonl"]
    for name in (*(f"{group}.safetensors" for group in GROUPS), "state.json"):
        assert ours[f"{LAST}/{name}"] == whole[f"{LAST}/{name}"], name


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_trains_the_same_and_resumes_exactly(tmp_path, whole, source):
    """Stopped in the middle of an epoch, at its end, and twice."""
    for stops in ([], [7], [10], [3, 13]):
        folder = tmp_path / f"parts-{len(stops)}-{sum(stops)}"
        for stop in stops:
            with pytest.raises(Interrupted):
                go(folder, VideoTask(source), stop_at=stop)
        go(folder, VideoTask(source))
        assert_same_end(folder, whole)


@pytest.mark.parametrize("source", SOURCES)
def test_a_killed_training_resumes_exactly(tmp_path, whole, source):
    """SIGKILL in the third epoch: two epochs are saved, the log may be ahead of them."""
    command = [sys.executable, "-m", "tests.training.video", str(tmp_path), source]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while checkpoint.steps(tmp_path / "checkpoints")[-1:] < [10]:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert checkpoint.steps(tmp_path / "checkpoints")[-1] < STEPS
    reported = go(tmp_path, VideoTask(source))
    assert "resuming after step" in reported[0]
    assert_same_end(tmp_path, whole)
    sessions = Run(tmp_path).provenance()
    assert [s["to_step"] for s in sessions] == [0, STEPS]  # the first never came to its end


def test_it_learns_and_draws(tmp_path):
    image = pytest.importorskip("PIL.Image")
    task = VideoTask("made")
    go(tmp_path, task, draw_every=2)
    rows = Run(tmp_path).metrics()
    assert [row["epoch"] for row in rows if "validation" in row] == [2, 4]
    assert rows[-1]["error"] < 0.8 * rows[0]["error"]
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["error"] - 0.01 * rows[-1]["contrast"])
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == ["prediction-epoch-0002.png", "prediction-epoch-0004.png"]
    model = task.make_model(0).eval()
    model.load_state_dict(checkpoint.newest(tmp_path / "checkpoints", print).weights("last"))
    with torch.no_grad():
        expected = task.draw(model)["prediction"]
    assert expected.shape == (2 * SIZE, (FRAMES - 1) * SIZE)
    assert np.array_equal(np.asarray(image.open(tmp_path / "figures" / drawn[-1])), expected)


def test_pictures_can_be_drawn_more_often_than_validated(tmp_path):
    go(tmp_path, VideoTask("made"), draw_every=1)
    assert len(list((tmp_path / "figures").iterdir())) == 4
    assert sum("validation" in row for row in Run(tmp_path).metrics()) == 2


def test_seeds_train_one_after_the_other(tmp_path):
    """Each as its single run, bit for bit; the second goes on where it was stopped."""
    with pytest.raises(Interrupted):
        go(tmp_path / "all", VideoTask("made"), (0, 1), stop_at=12)  # the first seed's step 12
    assert not (tmp_path / "all/seed-1/metrics.jsonl").exists()
    reported = go(tmp_path / "all", VideoTask("made"), (0, 1))
    reported += go(tmp_path / "fresh", VideoTask("made"), (0, 1))
    assert "2 seeds train one after the other: this task cannot be stacked" in reported
    for seed in (0, 1):
        go(tmp_path / f"alone-{seed}", VideoTask("made"), (seed,))
        alone = files(tmp_path / f"alone-{seed}")
        assert_same_end(tmp_path / f"all/seed-{seed}", alone)
        assert_same_end(tmp_path / f"fresh/seed-{seed}", alone)


def test_equals_a_plain_loop_in_torch(tmp_path):
    """AdamW, warm-up, cosine, clipping and the moving average as anyone would write them."""
    go(tmp_path, VideoTask("made"))
    task = VideoTask("made")
    model = task.make_model(0)
    average = [p.detach().clone() for p in model.parameters()]
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=CONFIG.weight_decay)
    batches = Batches(task.data, CONFIG.batch_size, 0, [0], CPU)
    for step in range(STEPS):
        batches.prepare(step)  # seeds torch's generators
        index = batches.order(0, step // 5)[step % 5]
        loss, _ = task.loss(model, _Batch(task.data.examples(index, {})))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CONFIG.clip_norm)
        for group in optimiser.param_groups:
            group["lr"] = float(learning_rates(CONFIG, STEPS)[step])
        optimiser.step()
        decay = min(0.9, (1 + step) / (10 + step))
        for kept, now in zip(average, model.parameters(), strict=True):
            kept.mul_(decay).add_(now.detach(), alpha=1 - decay)
    saved = checkpoint.newest(tmp_path / "checkpoints", print)
    for (name, now), kept in zip(model.named_parameters(), average, strict=True):
        torch.testing.assert_close(saved.tensors["model"][name], now.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(saved.weights("last")[name], kept, rtol=1e-4, atol=1e-5)


class _Batch:
    def __init__(self, data):
        self.data = data


def test_the_average_is_what_is_validated_and_kept_as_the_best(tmp_path):
    task = VideoTask("made")
    go(tmp_path, task)
    saved, rows = checkpoint.newest(tmp_path / "checkpoints", print), Run(tmp_path).metrics()
    model = task.make_model(0).eval()
    scores = {}
    for group in ("model", "ema", "best"):
        model.load_state_dict(saved.tensors[group])
        scores[group] = task.evaluate(model, "validation")["score"]
    assert scores["ema"] == pytest.approx(rows[-1]["validation"]["score"])
    assert scores["best"] == pytest.approx(
        min(r["validation"]["score"] for r in (rows[1], rows[3]))
    )
    assert abs(scores["model"] - scores["ema"]) > 1e-5


def test_a_stream_reads_ahead_into_buffers_that_never_move():
    task, made = VideoTask("streamed"), VideoTask("made").data
    batches = Batches(task.data, 4, 0, [3], CPU)
    places = set()
    for step in range(12):  # into the third epoch
        batches.prepare(step)
        index, _, buffers = batches.at(torch.tensor([step]))
        places.add(buffers["frames"].data_ptr())
        assert torch.equal(buffers["frames"][0], made.examples(index[0], {})["frames"])
    deadline = time.monotonic() + 10
    while len(task.reads) < 12 + AHEAD:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    batches.close()
    assert len(places) == 1
    orders = [batches.order(3, epoch)[i].tolist() for epoch in range(3) for i in range(5)]
    assert task.reads == orders[: 12 + AHEAD]


def test_an_error_while_reading_reaches_the_loop(tmp_path):
    task = VideoTask("streamed")

    def fail(indices):
        raise OSError("the disk is gone")

    task.data.read = fail
    with pytest.raises(OSError, match="the disk is gone"):
        go(tmp_path, task)


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_png_is_read_back_by_another_program(tmp_path, shape):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    (tmp_path / "it.png").write_bytes(png(pixels))
    assert np.array_equal(np.asarray(image.open(tmp_path / "it.png")), pixels)
    assert png(png(pixels)) == png(pixels)


def test_a_picture_that_cannot_be_drawn_costs_no_training(tmp_path, whole, monkeypatch):
    def draw(task, model):
        raise RuntimeError("no ink")

    monkeypatch.setattr(VideoTask, "draw", draw)
    reported = go(tmp_path, VideoTask("made"))
    assert_same_end(tmp_path, whole)
    assert any("no pictures of epoch" in line and "no ink" in line for line in reported)


@pytest.mark.parametrize("wrong", [b"GIF89a", np.zeros((4, 4)), np.zeros((4, 4, 2), np.uint8)])
def test_other_pictures_are_refused(wrong):
    with pytest.raises(ValueError, match="picture: got"):
        png(wrong)


def test_tensorboard_has_validation_numbers_and_pictures(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    go(tmp_path, VideoTask("made"), tensorboard=True, draw_every=2)
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert set(board.Tags()["scalars"]) == {
        *("loss", "error", "contrast"),
        *("validation/score", "validation/mse", "validation/worst"),
    }
    logged = [row["validation"]["mse"] for row in Run(tmp_path).metrics() if "validation" in row]
    assert [e.value for e in board.Scalars("validation/mse")] == pytest.approx(logged)
    images = board.Images("prediction")
    assert [e.step for e in images] == [10, 20]
    stored = (tmp_path / "figures/prediction-epoch-0004.png").read_bytes()
    assert images[-1].encoded_image_string == stored
    assert (images[-1].height, images[-1].width) == (2 * SIZE, (FRAMES - 1) * SIZE)


def test_the_toy_moves():
    clip = render(VideoTask("made").held_out[:1])[0]
    assert clip.shape == (FRAMES, SIZE, SIZE)
    assert not torch.allclose(clip[0], clip[-1])
