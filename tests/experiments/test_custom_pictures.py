"""Pictures of world models of one's own episodes: roll-outs, slots, curves, and their pages."""

import numpy as np
import pytest
import torch

from nps.experiments.custom.inspect import curves_figure, inspect_own
from nps.experiments.custom.pictures import firings, fitted, newest, notes, rollout_figure
from nps.experiments.custom.presets import PRESETS
from nps.experiments.custom.readout import fit_readout
from nps.experiments.custom.steps import predict_steps
from nps.inspect import figures, strips
from nps.inspect.report import Figure, Table, Text
from nps.jobs import processes
from nps.rules import Trace
from tests.experiments.test_custom import FLAGS, arrays_of, task_of
from tests.test_cli import call

PNG = b"\x89PNG"


def test_a_linear_read_out_is_the_linear_map():
    slots = torch.randn(200, 3, 4)
    weight, offset = torch.randn(12, 30), torch.randn(30)
    pixels = slots.flatten(1) @ weight + offset
    readout = fit_readout(slots, pixels)
    fresh = torch.randn(50, 3, 4)
    torch.testing.assert_close(readout(fresh), fresh.flatten(1) @ weight + offset, atol=0.1, rtol=0)
    assert readout.explained(fresh, fresh.flatten(1) @ weight + offset) > 0.999
    assert readout(torch.randn(2, 5, 3, 4)).shape == (2, 5, 30)


def test_a_read_out_of_slots_that_know_nothing_explains_nothing():
    slots, pixels = torch.randn(400, 2, 3), torch.rand(400, 20)
    assert abs(fit_readout(slots, pixels).explained(torch.randn(99, 2, 3), pixels[:99])) < 0.1
    same = fit_readout(torch.ones(9, 2, 3), pixels[:9])  # all slots equal: the mean image
    torch.testing.assert_close(same(torch.ones(1, 2, 3))[0], pixels[:9].mean(0))


def test_what_fired_is_named_stage_by_stage():
    rule = torch.tensor([[[0, -1, -1], [-1, 2, 1]]])
    context = torch.tensor([[[2, -1, -1], [-1, 0, 1]]])
    trace = Trace(rule, context, torch.zeros(1, 2, 3, 3), torch.zeros(1, 2, 3, 3))
    assert firings(trace) == ["r0: 0←2", "r2: 1←0", "r1: 2←1"]


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("transition", ["snps", "pnps", "gnn"])
def test_notes_are_those_of_the_roll_out(tmp_path, transition, continuous):
    np.savez(tmp_path / "my.npz", **arrays_of(continuous=continuous))
    task = task_of(tmp_path / "my.npz", transition=transition, slots=3)
    model = task.make_model(0).eval()
    data = task.sets["test"]
    slots, actions = task.encoded(model, data, [0])[0, 0], data.action[0]
    found = notes(model, slots, actions)
    assert len(found) == len(actions)
    with torch.no_grad():
        for step, note in enumerate(found):
            action, *fired = note.split("\n")
            if continuous:
                expected = " ".join(f"{value:.1f}" for value in actions[step].tolist())
            else:
                expected = str(int(actions[step]))
            assert action == f"a {expected}"
            if transition == "gnn":
                assert fired == []
            else:
                slots_now, trace = model.traced(slots[None], actions[step][None])
                assert fired[:4] == firings(trace)[:4]
                slots = slots_now[0]


KINDS = {
    "one slot": {"slots": 1},
    "parallel": {"transition": "pnps", "slots": 9},
    "gnn": {"transition": "gnn"},
    "slot attention": {"extractor": "slot-attention"},
}


@pytest.mark.parametrize("kind", [*KINDS, "vectors", "floats", "grey"])
def test_all_kinds_of_models_and_data_are_shown(tmp_path, kind):
    arrays = arrays_of(continuous=kind == "vectors")
    if kind == "floats":
        arrays["obs"] = (arrays["obs"] / 255).astype(np.float32)
    if kind == "grey":
        arrays["obs"] = arrays["obs"][..., :1]
    np.savez(tmp_path / "my.npz", **arrays)
    task = task_of(tmp_path / "my.npz", **KINDS.get(kind, {}))
    parts = inspect_own(task, task.make_model(0).eval())
    verdict, table, *_ = parts
    assert isinstance(verdict, Text)
    assert isinstance(table, Table)
    assert table.columns[:2] == ["Steps", "Predicted"]
    drawn = {part.name: part for part in parts if isinstance(part, Figure)}
    assert set(drawn) == {"rollouts", "slots"}
    assert all(part.image.startswith(PNG) for part in drawn.values())
    assert "no decoder" in drawn["rollouts"].caption
    assert ("first 8 of 9 slots" in drawn["slots"].caption) == (kind == "parallel")


def test_the_picture_shows_what_was_counted(tmp_path, monkeypatch):
    np.savez(tmp_path / "my.npz", **arrays_of((31,) * 9))
    task = task_of(tmp_path / "my.npz")
    model = task.make_model(0).eval()
    shown = []
    monkeypatch.setattr(
        "nps.experiments.custom.pictures.strips", lambda drawn: shown.extend(drawn) or PNG
    )
    inspect_own(task, model)
    steps = predict_steps(model, task.rollouts)
    numbers = [int(strip.name.removeprefix("roll-out ")) for strip in shown]
    assert numbers == sorted(numbers)
    assert len(numbers) == min(3, len(task.rollouts.lengths))
    for e, strip in zip(numbers, shown, strict=True):
        length = int(task.rollouts.lengths[e])
        episode, time = torch.full((length,), e), torch.arange(length)
        assert (strip.true == task.rollouts.images(episode, time).numpy()).all()
        assert (strip.right == (steps.credit[e, : length - 1] > 0).numpy()).all()
        equal = (strip.predicted == strip.true[1:]).reshape(length - 1, -1).all(1)
        assert (equal == strip.right).all()
        assert strip.decoded.shape == strip.true.shape
        assert len(strip.notes) == length - 1


@pytest.mark.parametrize("channels", [1, 3])
def test_of_stacked_frames_the_newest_is_drawn(tmp_path, channels):
    arrays = arrays_of()
    np.savez(tmp_path / "my.npz", **{**arrays, "obs": arrays["obs"][..., :channels]})
    task = task_of(tmp_path / "my.npz", frames=3)
    data = task.rollouts
    episode, time = torch.zeros(2, dtype=torch.long), torch.tensor([0, 1])
    frames = arrays["obs"][int(data.start[0]) : int(data.start[0]) + 2, :, :, :channels]
    assert (newest(task, data.images(episode, time)).numpy() == frames).all()
    figure = rollout_figure(task, model := task.make_model(0).eval(), predict_steps(model, data))
    assert "Of stacked frames only the newest is drawn" in figure[0].caption


def test_the_read_out_is_fitted_on_training_images_only(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of())
    task = task_of(tmp_path / "my.npz")
    model, seen = task.make_model(0).eval(), []
    encode = model.encode
    model.encode = lambda images: seen.append(images) or encode(images)
    fitted(task, model)
    train = task.sets["train"]
    known = {
        train.images(torch.tensor([e]), torch.tensor([t]))[0].numpy().tobytes()
        for e, length in enumerate(train.lengths.tolist())
        for t in range(length)
    }
    assert {image.numpy().tobytes() for images in seen for image in images} <= known


def test_images_that_are_not_square_keep_their_shape():
    def strip(steps):
        images = np.zeros((steps + 1, 10, 30, 3), np.uint8)
        right = np.arange(steps) % 2 == 0
        return strips.Strip("one", images, images[1:], images, right, ["a 1"] * steps)

    assert strips.strips([strip(2), strip(5)]).startswith(PNG)
    assert strips.slot_maps(np.zeros((2, 10, 30, 3), np.uint8), np.ones((2, 3, 1, 3))).startswith(
        PNG
    )


def test_curves_of_several_seeds(monkeypatch):
    log = [
        {"epoch": 1, "loss": 0.5},
        {"epoch": 2, "loss": 0.4, "validation": {"loss": 0.6, "score": 0.6}},
    ]
    drawn = {}
    monkeypatch.setattr(figures, "means_over", lambda panels, *_: drawn.update(panels) or PNG)
    (figure,) = curves_figure({"NPS": [log, log[:1]]})
    assert figure.name == "curves"
    assert {epoch: list(seeds) for epoch, seeds in drawn["training"]["NPS"].items()} == {
        1: [0.5, 0.5], 2: [0.4],
    }  # fmt: skip
    assert list(drawn["validation"]["NPS"]) == [2]
    assert curves_figure({"NPS": [[]]}) == []
    monkeypatch.setattr(figures, "available", lambda: False)
    assert curves_figure({"NPS": [log]}) == []


def test_inspect_writes_one_page(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of())
    folder = tmp_path / "mine"
    flags = [f"--data={tmp_path / 'my.npz'}", f"--out={folder}", "--epochs=1", *FLAGS]
    call("train", "world-model", *flags)
    out, _ = call("inspect", str(folder))
    assert str(folder / "report.html") in out
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64") == 3
    assert page.index("Predicted") < page.index("H@1")
    for name in ("rollouts", "slots", "curves"):
        assert (folder / f"figures/{name}.png").read_bytes().startswith(PNG)
    assert "report.html" in {path.name for path in folder.iterdir()}
    call("train", "world-model", *flags, "--fresh")
    assert "report.html" not in {path.name for path in folder.iterdir()}


def test_the_report_of_all_models_shows_pictures_of_each(tmp_path, monkeypatch):
    np.savez(tmp_path / "my.npz", **arrays_of())
    data = f"--data={tmp_path / 'my.npz'}"
    for preset in PRESETS:
        call("train", preset, data, f"--out={tmp_path}/out/{preset}/seed-0", "--epochs=1", *FLAGS)
    monkeypatch.setattr(processes, "run_jobs", lambda jobs, workers: None)  # they are trained
    out, _ = call("run", "world-model", data, f"--out={tmp_path}/out")
    assert "Report with figures" in out
    page = (tmp_path / "out/report.html").read_text()
    assert "world-model-gnn, seed 0" in page
    found = {path.name for path in (tmp_path / "out/figures").iterdir()}
    assert found == {"curves.png"} | {
        f"{preset}-{name}.png" for preset in PRESETS for name in ("rollouts", "slots")
    }
