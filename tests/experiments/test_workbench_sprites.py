"""Sprites-MOT in the workbench, against what the task itself makes of a video and its states."""

import re

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments.sprites import Config, Sprites, SpritesTask
from nps.experiments.sprites.watching import as_floats, unseen, watch, watch_moments
from nps.inspect.edits import Acted, Added, Edits, Forced, Placed, Scaled
from nps.inspect.grids import to_bytes
from nps.inspect.observations import observe
from nps.models.tracker import Tracker
from nps.perception.places import in_radii
from tests.experiments.test_sprites import TINY as OP3
from tests.experiments.test_sprites_tracker import TINY
from tests.test_cli import call

TRACKER = {**TINY, "model": "tracker", "size": 32, "zero_start": False}
SEEN, UNSEEN = 6, 2
MODELS = {
    "op3-snps": {**OP3, "stages": 2, "rules": 3},
    "op3-pnps": {**OP3, "interaction": "pnps", "stages": 1, "rules": 2, "bounce": True},
    "op3": {**OP3, "interaction": "op3"},
    "op3-none": {**OP3, "interaction": "none"},
    "tracker-snps": {**TRACKER, "stages": 2, "rules": 3, "bounce": True},
    "tracker-pnps": {**TRACKER, "interaction": "pnps", "stages": 1, "rules": 2},
    "tracker-attention": {**TRACKER, "interaction": "attention"},
    "tracker-gnn": {**TRACKER, "interaction": "gnn"},
    "tracker-none": {**TRACKER, "interaction": "none"},
}


def bench_of(name, *, watchful=True, **changes):
    config = Config(**{**MODELS[name], "frames": UNSEEN, "video_frames": SEEN, **changes})
    task = SpritesTask(config, torch.device("cpu"))
    model = task.make_model(0).eval()
    if isinstance(model, Tracker) and watchful:  # untrained, its slots see next to nothing
        torch.nn.init.constant_(model.reader.background.bias, -5.0)
    return Sprites().workbench(task, model)


@pytest.fixture(scope="module", params=["op3-snps", "tracker-snps"])
def bench(request):
    return bench_of(request.param)


def inputs_of(bench, number):
    frames, noise = bench.task.first_inputs("validation", number + 1)
    return frames[number:], noise[number:]


def bytes_of(images):
    """(T, 3, H, W) as frames of a playback."""
    return to_bytes(images.movedim(1, -1).numpy()).astype(int)


@torch.no_grad()
def gone_on(bench, number):
    """Frames and components that are drawn after all frames were seen."""
    model, (frames, noise) = bench.model, inputs_of(bench, number)
    if isinstance(model, Tracker):
        watching = model(frames)
        slots, present, drawn = watching.expected[:, -1:], watching.present[:, -1:], []
        for _ in range(UNSEEN):
            drawn.append(model.show(slots, present))
            slots = model.go_on(slots, present)
        return torch.cat([d.images[0] for d in drawn]), torch.cat([d.masks[0] for d in drawn])
    moments = watch_moments(model, as_floats(frames), noise, bench.task.config)
    drawn = unseen(model, moments[-1].state, UNSEEN)
    images = torch.cat([(d.masks * d.colours).sum(1) for d in drawn])
    return images, torch.cat([d.masks.squeeze(2) for d in drawn])


@pytest.mark.parametrize("name", MODELS)
def test_a_playback_is_what_the_task_makes_of_the_video(name):
    bench = bench_of(name)
    playback, (frames, noise) = bench.play(1), inputs_of(bench, 1)
    assert playback.steps == SEEN + UNSEEN - 1
    np.testing.assert_array_equal(playback.true[:SEEN], frames[0].numpy())
    watched = watch(bench.model, as_floats(frames), noise, bench.task.config)
    images, masks = gone_on(bench, 1)
    expected = torch.cat([watched.images[0, :1], watched.expected[0], images])
    assert np.abs(playback.predicted - bytes_of(expected)).max() <= 1
    error = (expected.movedim(1, -1).numpy() - playback.true / 255.0) ** 2
    np.testing.assert_allclose(playback.error, error.mean((1, 2, 3)), rtol=1e-4)
    shown = to_bytes(masks[:, : len(playback.slot_names)].numpy()).astype(int)
    assert np.abs(playback.masks[SEEN:] - shown).max() <= 1
    assert bench.drags == name.startswith("tracker")
    if isinstance(bench.model, Tracker):
        read = bench.model(frames).read[0].detach().numpy()
        np.testing.assert_allclose(playback.slots[:SEEN], read, atol=1e-5)
    if bench.layer is None:
        assert playback.record is None
        return
    trace = bench.task.trace(bench.model, frames, noise)
    moves = SEEN - 1
    np.testing.assert_array_equal(playback.record.rule[:moves], trace.rule[0, :moves])
    np.testing.assert_array_equal(playback.record.context[:moves], trace.context[0, :moves])
    assert len(playback.record.rule) == playback.steps


def test_videos_go_on_where_those_of_validation_end():
    bench = bench_of("op3-none", validation_videos=70)  # more than run side by side
    known, ours = bench.task.videos("validation"), bench.videos
    for before, after in zip(known, ours, strict=True):
        torch.testing.assert_close(after[:, :SEEN], before, rtol=0, atol=0)
    # The first videos' streams go on in the last ones.
    torch.testing.assert_close(ours.position[:6, SEEN:], known.position[64:, :UNSEEN])


EDITS = {
    "disabled": Edits(disabled=(0,)),
    "scaled": Edits(scaled=(Scaled(0, 3.0), Scaled(1, 3.0), Scaled(2, 3.0))),
    "added": Edits(added=tuple(Added(rule, "feature", 0.1) for rule in range(3))),
    "forced": Edits(forced=(Forced(3, 1, stage=1, rule=-1), Forced(5, 0, rule=2, context=1))),
    "placed": Edits(placed=(Placed(SEEN - 1, 2, "feature", 0.25),)),
}


def edits_of(bench, kind):
    """Of a feature that the bench has, and where something fires."""
    edits, known = EDITS[kind], bench.feature_names[2]
    if kind == "added":
        return Edits(added=tuple(Added(e.rule, known, e.amount) for e in edits.added))
    if kind == "placed":
        return Edits(placed=tuple(Placed(e.step, e.slot, known, e.value) for e in edits.placed))
    return edits


@pytest.mark.parametrize("kind", EDITS)
def test_only_the_steps_after_an_edit_are_rolled_out_again(bench, kind):
    edits, plain = edits_of(bench, kind), bench.play(0)
    edited, fresh = bench.play(0, edits), bench.roll(bench.episode(0, {}), edits)
    np.testing.assert_array_equal(edited.slots, np.stack([f.slots for f in fresh.frames]))
    drawn = np.stack([frame.predicted for frame in fresh.frames])
    np.testing.assert_array_equal(edited.predicted, drawn)
    np.testing.assert_array_equal(edited.record.rule, fresh.record.rule)
    first = edits.first_step()
    np.testing.assert_array_equal(edited.slots[:first], plain.slots[:first])
    assert not np.allclose(edited.slots[first:], plain.slots[first:])
    np.testing.assert_array_equal(bench.play(0).slots, plain.slots)


def test_a_feature_is_set_and_the_others_stay(bench):
    plain, edited = bench.play(0), bench.play(0, edits_of(bench, "placed"))
    at = SEEN - 1
    changed = plain.features[at].copy()
    changed[2, 2] = 0.25
    np.testing.assert_allclose(edited.features[at], changed, atol=1e-6)
    assert not np.allclose(edited.features[at + 1, 2], plain.features[at + 1, 2])


def test_what_the_layer_reads_are_the_slots():
    """OP3's exactly, as its rules read them; of the tracker, in radii."""
    playback = bench_of("op3-snps").play(0)
    np.testing.assert_array_equal(playback.record.before[:, 0], playback.slots[:-1])
    bench = bench_of("tracker-snps")
    slots = np.random.default_rng(0).uniform(-1, 1, (3, 5, 8)).astype(np.float32)
    read = in_radii(torch.from_numpy(slots), bench.model.radius).numpy()
    np.testing.assert_allclose(bench.layer_features(read), bench.features(slots), atol=1e-6)
    for index, name in enumerate(bench.feature_names):
        raised = bench.layer_features(read + 0.3 * bench.layer_direction(name))
        change = 0.3 * np.eye(len(bench.feature_names))[index]
        np.testing.assert_allclose(raised - bench.features(slots), change + 0 * raised, atol=1e-6)


def test_a_slot_alone_is_drawn_as_it_is_in_the_next_frame():
    """Where nothing interacts, all slots of OP3 together are the frame that is expected."""
    bench = bench_of("op3-none")
    playback = bench.play(0)
    alone = [bench.picture(playback.slots[-2], m).astype(int) for m in range(3)]
    assert np.abs(sum(alone) - playback.predicted[-1]).max() <= 3


def test_events_name_slots():
    bench = bench_of("tracker-none")
    bench._slot_of_sprite = lambda number: np.arange(100) % 3
    told = [event for number in range(3) for event in bench.play(number).events if event]
    assert told
    assert all(re.fullmatch(r"(birth|death|bounce) of [0-2].*", event) for event in told)
    unknown = [event for number in range(3) for event in bench_of("op3").play(number).events]
    assert any(event.endswith("of ?") for event in unknown)  # an untrained model tracks none


def test_slots_that_see_nothing_have_no_place_and_no_rules():
    playback = bench_of("tracker-pnps", watchful=False).play(0)
    absent = np.isnan(playback.places).any(-1)[:-1]
    assert absent.any()
    assert (playback.record.rule[:, 0][absent] == -1).all()
    assert playback.masks[1:][absent].max() == 0


def test_rules_can_be_described(bench):
    found = observe(bench, 2)
    assert found.primary.shape == (2 * 7 * 2 * 3, len(bench.feature_names))
    assert np.isfinite(found.primary).all()


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(acted=(Acted(0, 0),)), "no discrete actions"),
        (Edits(forced=(Forced(7, 0, rule=0),)), "step"),
        (Edits(forced=(Forced(0, 0, stage=2, rule=0),)), "stage"),
        (Edits(placed=(Placed(0, 3, "z1", 0.5),)), "slot"),
        (Edits(placed=(Placed(0, 0, "colour", 0.5),)), "feature"),
    ],
)
def test_impossible_edits_are_refused(bench, edits, message):
    edits = Edits(**{**vars(edits), "placed": tuple(named(bench, e) for e in edits.placed)})
    with pytest.raises(UserError, match=message):
        bench.play(0, edits)


def named(bench, edit):
    """Of a feature of the bench, if it is one."""
    known = edit.feature if edit.feature != "z1" else bench.feature_names[1]
    return Placed(edit.step, edit.slot, known, edit.value)


@pytest.mark.parametrize("name", ["op3-none", "tracker-none"])
def test_without_rules_slots_can_be_set_and_rules_not(name):
    bench = bench_of(name)
    with pytest.raises(UserError, match="no rules"):
        bench.play(0, Edits(disabled=(0,)))
    edited = bench.play(0, edits_of(bench, "placed"))
    assert not np.allclose(edited.slots[SEEN:], bench.play(0).slots[SEEN:])


@pytest.mark.parametrize("preset", ["sprites", "sprites-op3", "sprites-tracker-pnps"])
def test_trained_runs_are_frozen_into_a_page(tmp_path, preset):
    sizes = TINY if "tracker" in preset else OP3
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in sizes.items()]
    call("train", preset, "--out", str(tmp_path / preset), *flags)
    page = tmp_path / "page.html"
    call("inspect", str(tmp_path / preset), "--html", str(page), "--episode=1")
    assert "validation video 1" in page.read_text()
