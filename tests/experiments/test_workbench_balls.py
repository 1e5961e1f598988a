"""Balls in the workbench, against the model's own roll-out and the states of the scenes."""

import re

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments.balls import Balls, BallsTask, Config
from nps.experiments.balls.evaluation import matched
from nps.inspect.edits import Acted, Added, Edits, Forced, Placed, Scaled
from nps.inspect.grids import to_bytes
from nps.perception.places import in_radii
from tests.experiments.test_balls import TINY

MODELS = {
    "snps": {"stages": 2, "rules": 3, "presence": False},  # untrained slots see nothing
    "pnps": {"interaction": "pnps", "rules": 2},
    "scoff": {"model": "scoff", "interaction": "attention", "area": 0.0},
    "gnn": {"interaction": "gnn"},
    "none": {"interaction": "none", "places": False},
}


def bench_of(**changes):
    # Not zero_start: at first rules would change nothing.
    config = Config(**{**TINY, "size": 16, "zero_start": False, **changes})
    task = BallsTask(config, torch.device("cpu"))
    torch.manual_seed(0)
    return Balls().workbench(task, task.make_model(0).eval())


@pytest.fixture(scope="module")
def bench():
    return bench_of(**MODELS["snps"])


@torch.no_grad()
def predicted(bench, number):
    """What the model's own forward pass gives for a validation scene."""
    scene, config = bench.episode(number, {}), bench.task.config
    options = {"steps": scene.steps, "slots": config.slots, "noise": scene.noise[None]}
    options["return_trace"] = True
    return bench.model(scene.images[None, : config.seen_frames], **options)


@pytest.mark.parametrize("name", MODELS)
def test_a_playback_is_the_models_own_roll_out(name):
    bench = bench_of(**MODELS[name])
    playback, whole = bench.play(1), predicted(bench, 1)
    drawn = to_bytes(whole.images[0].movedim(1, -1).numpy())
    assert playback.steps == 7  # 4 frames are seen, 3 are not
    assert np.abs(playback.predicted[1:].astype(int) - drawn.astype(int)).max() <= 1
    np.testing.assert_allclose(playback.slots[:-1], whole.read[0].numpy(), atol=1e-4)
    masks = to_bytes(whole.masks[0, :, : len(playback.slot_names)].numpy())
    assert np.abs(playback.masks[1:].astype(int) - masks.astype(int)).max() <= 1
    if whole.trace is None:
        assert playback.record is None
    else:
        np.testing.assert_array_equal(playback.record.rule, whole.trace.rule[0])
        np.testing.assert_array_equal(playback.record.context, whole.trace.context[0])
    error = (whole.images[0].movedim(1, -1).numpy() - playback.true[1:] / 255) ** 2
    np.testing.assert_allclose(playback.error[1:], error.mean((1, 2, 3)), rtol=1e-4)
    assert bench.drags == (name not in ("scoff", "none"))


def test_scenes_go_on_where_those_of_validation_end(bench):
    known, ours = bench.task.scenes("validation"), bench.scenes
    frames = known.position.shape[1]
    torch.testing.assert_close(ours.position[:, :frames], known.position)
    assert ours.position.shape[1] == frames + bench.task.config.rollout_frames
    images, _ = bench.task.draw_frames(known.at(slice(2, 3)))
    np.testing.assert_array_equal(bench.play(2).true[:frames], images[0].numpy())


EDITS = {
    "disabled": Edits(disabled=(0,)),
    "scaled": Edits(scaled=(Scaled(0, 3.0), Scaled(1, 3.0), Scaled(2, 3.0))),
    "added": Edits(added=tuple(Added(rule, "velocity down", 0.05) for rule in range(3))),
    "forced": Edits(forced=(Forced(3, 1, stage=1, rule=-1), Forced(5, 0, rule=2, context=3))),
    "placed": Edits(placed=(Placed(5, 2, "row", 0.25), Placed(5, 2, "column", 0.75))),
}


@pytest.mark.parametrize("kind", EDITS)
def test_only_the_steps_after_an_edit_are_rolled_out_again(bench, kind):
    edits, plain = EDITS[kind], bench.play(0)
    edited, fresh = bench.play(0, edits), bench.roll(bench.episode(0, {}), edits)
    np.testing.assert_array_equal(edited.slots, np.stack([f.slots for f in fresh.frames]))
    drawn = np.stack([frame.predicted for frame in fresh.frames])
    np.testing.assert_array_equal(edited.predicted, drawn)
    np.testing.assert_array_equal(edited.record.rule, fresh.record.rule)
    first = edits.first_step()
    np.testing.assert_array_equal(edited.slots[:first], plain.slots[:first])
    assert not np.allclose(edited.slots[first:], plain.slots[first:])
    np.testing.assert_array_equal(bench.play(0).slots, plain.slots)


def test_a_slot_is_set_to_a_place_and_goes_on_from_there(bench):
    edited = bench.play(0, EDITS["placed"])
    at = [bench.feature_names.index(name) for name in ("row", "column")]
    np.testing.assert_allclose(edited.features[5, 2, at], [0.25, 0.75], atol=1e-6)
    np.testing.assert_allclose(edited.places[5, 2], [0.25, 0.75], atol=1e-6)
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(edited.slots[5, others], bench.play(0).slots[5, others])


def test_the_layer_reads_places_in_radii(bench):
    slots = np.random.default_rng(0).uniform(-1, 1, (3, 5, 8)).astype(np.float32)
    read = in_radii(torch.from_numpy(slots), bench.model.radius).numpy()
    found = bench.layer_features(read)
    np.testing.assert_allclose(found, bench.features(slots), atol=1e-6)
    for index, name in enumerate(bench.feature_names):
        raised = bench.layer_features(read + 0.3 * bench.layer_direction(name))
        expected = np.zeros(4)
        expected[index] = 0.3
        np.testing.assert_allclose(raised - found, np.broadcast_to(expected, (3, 5, 4)), atol=1e-6)


def test_events_name_the_slots_that_show_the_balls():
    """Where every ball has the slot of its own number, events are those of the states."""
    bench = bench_of(**MODELS["snps"], validation_scenes=12, rollout_frames=20)
    for number in range(12):
        bench._slot_of_ball = lambda number: np.arange(4)
        events = bench.play(number).events
        hits, walls = bench.scenes.collided[number], bench.scenes.bounced[number]
        for step, event in enumerate(events):
            told = {tuple(map(int, pair)) for pair in re.findall(r"of (\d) and (\d)", event)}
            true = {(i, j) for i, j in hits[step + 1].nonzero().tolist() if i < j}
            assert told == true
            said = [int(ball) for ball in re.findall(r"bounce of (\d)", event)]
            assert said == walls[step + 1].nonzero().flatten().tolist()


def test_the_slot_of_a_ball_is_that_of_the_evaluation():
    bench = bench_of(**MODELS["snps"])
    part = next(bench.task.parts("validation", 5, rollout=False))._replace(rollout=True)
    part = part._replace(scenes=bench.scenes, noise=part.noise)
    _, labels = bench.task.draw_frames(bench.scenes)
    for number in range(3):
        one = part._replace(
            scenes=bench.scenes.at(slice(number, number + 1)), noise=part.noise[number, None]
        )
        rolled = predicted(bench, number)
        _, expected = matched(bench.task.config, one, rolled, labels[number, None])
        assert bench._slot_of_ball(number).tolist() == expected[0].tolist()


def test_slots_that_see_nothing_have_no_place_and_no_rules():
    playback = bench_of(**MODELS["pnps"]).play(0)
    absent = np.isnan(playback.places).any(-1)[:-1]
    assert absent.any()
    assert (playback.record.rule[:, 0][absent] == -1).all()


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(acted=(Acted(0, 0),)), "no discrete actions"),
        (Edits(forced=(Forced(7, 0, rule=0),)), "step"),
        (Edits(forced=(Forced(0, 0, stage=2, rule=0),)), "stage"),
        (Edits(placed=(Placed(0, 5, "row", 0.5),)), "slot"),
        (Edits(placed=(Placed(0, 0, "z1", 0.5),)), "feature"),
    ],
)
def test_impossible_edits_are_refused(bench, edits, message):
    with pytest.raises(UserError, match=message):
        bench.play(0, edits)
