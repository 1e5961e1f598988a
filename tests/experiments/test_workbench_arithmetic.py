"""Coordinate arithmetic in the workbench, against a plain loop over its demonstrations."""

import itertools

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments.arithmetic import Arithmetic, ArithmeticTask, Config
from nps.experiments.arithmetic.drawing import PIXELS, draw, places
from nps.inspect.edits import Acted, Added, Edits, Forced, Placed, Scaled

SMALL = {"train_examples": 64, "validation_examples": 5, "test_examples": 5}


def bench_of(**changes):
    task = ArithmeticTask(Config(**{**SMALL, **changes}), torch.device("cpu"))
    return Arithmetic().workbench(task, task.make_model(0).eval())


@pytest.fixture(scope="module")
def bench():
    return bench_of()


def true_points(bench, playback, start):
    """What the names of the actions say, done one after another."""
    points, found = {"A": dict(zip("xy", start[0], strict=True))}, [np.array(start)]
    points["B"] = dict(zip("xy", start[1], strict=True))
    for action in playback.actions:
        changed, sign, by = bench.actions[action].split(" ")
        (name, axis), (other, along) = changed.split("."), by.split(".")
        points[name][axis] += points[other][along] * {"+=": 1, "-=": -1}[sign]
        found.append(np.array([[points[n][a] for a in "xy"] for n in "AB"]))
    return np.stack(found)


@torch.no_grad()
def imitated(bench, true):
    """The model's own points, and what fires, by the layer's own trace."""
    own, slots, rules = torch.tensor(true[:1], dtype=torch.float32), [true[0]], []
    for before, after in itertools.pairwise(true):
        shown = torch.tensor(np.concatenate([before, after], -1), dtype=torch.float32)
        own, trace = bench.model.layer(own, selection=shown[None], return_trace=True)
        slots.append(own[0].numpy())
        rules.append(trace.rule[0].numpy())
    return np.stack(slots), np.stack(rules)


@pytest.mark.parametrize("reading", ["any", "other"])
@pytest.mark.parametrize("model", ["nps", "routing"])
def test_a_playback_is_a_chain_that_the_model_imitates(model, reading):
    bench = bench_of(model=model, reading=reading)
    assert bench.count() == 5
    assert len(bench.actions) == (16 if reading == "any" else 8)
    for number in (0, 4):
        playback = bench.play(number)
        start = bench.task.truth["validation"].before[number].numpy()
        true = true_points(bench, playback, start)
        own, rules = imitated(bench, true)
        np.testing.assert_allclose(playback.slots, own, atol=1e-5)
        np.testing.assert_array_equal(playback.record.rule, rules)
        np.testing.assert_allclose(playback.error, np.square(own - true).mean((1, 2)), atol=1e-5)
        assert ((true >= 0) & (true < 1)).all()  # demonstrations as in training
        assert playback.predicted.shape == playback.true.shape == (9, PIXELS, PIXELS, 3)
        assert playback.right[0]
        assert len(playback.events) == playback.steps


def test_a_picture_shows_each_point_at_its_place():
    points = np.array([[0.2, 0.9], [0.7, 0.1]])
    picture = draw(points).astype(int)
    for (row, column), colour in zip(places(points), ((0, 114, 178), (213, 94, 0)), strict=True):
        near = np.abs(picture - colour).sum(-1) < 3
        found = np.argwhere(near).mean(0) + 0.5
        np.testing.assert_allclose(found / PIXELS, [row, column], atol=0.01)
    draw(np.array([[50.0, -3.0], [np.float32(1e6), 0.5]]))  # at the edge


EDITS = {
    "disabled": Edits(disabled=(1, 3)),
    "scaled": Edits(scaled=(Scaled(1, 3.0),)),
    "added": Edits(added=(Added(1, "y", 0.25), Added(2, "x", -0.5), Added(3, "x", 1.0))),
    "forced": Edits(forced=(Forced(5, 1, rule=2, context=0), Forced(6, 0, rule=-1))),
    "placed": Edits(placed=(Placed(4, 1, "x", 0.5), Placed(6, 0, "row", 0.25))),
    "acted": Edits(acted=(Acted(2, 3), Acted(7, 0))),
}


@pytest.mark.parametrize("kind", EDITS)
def test_only_the_steps_after_an_edit_are_rolled_out_again(bench, kind):
    edits, plain = EDITS[kind], bench.play(1)
    edited = bench.play(1, edits)
    fresh = bench_of().play(1, edits)
    for name in ("slots", "error", "true", "predicted"):
        np.testing.assert_array_equal(getattr(edited, name), getattr(fresh, name))
    np.testing.assert_array_equal(edited.record.rule, fresh.record.rule)
    first = edits.first_step()
    np.testing.assert_array_equal(edited.slots[:first], plain.slots[:first])
    assert not np.allclose(edited.slots, plain.slots) or not np.allclose(edited.true, plain.true)
    np.testing.assert_array_equal(bench.play(1).slots, plain.slots)  # nothing is left of it
    assert len(edited.record.calls) == edited.steps


def test_edits_do_what_they_say(bench):
    assert not np.isin(bench.play(1, EDITS["disabled"]).record.rule, (1, 3)).any()
    forced = bench.play(1, EDITS["forced"]).record
    assert (forced.rule[5, 0, 1], forced.context[5, 0, 1]) == (2, 0)
    assert (forced.rule[6] == -1).all()
    placed = bench.play(1, EDITS["placed"])
    assert placed.slots[4, 1, 0] == pytest.approx(0.5)
    assert placed.places[6, 0, 0] == pytest.approx(0.25)
    acted = bench.play(1, EDITS["acted"])
    assert (acted.actions[2], acted.actions[7]) == (3, 0)
    np.testing.assert_allclose(
        true_points(bench, acted, bench.task.truth["validation"].before[1].numpy())[-1],
        bench.episode(1, {2: 3, 7: 0}).points[-1],
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(forced=(Forced(8, 0, rule=1),)), "step"),
        (Edits(forced=(Forced(0, 2, rule=1),)), "slot"),
        (Edits(disabled=(4,)), "rule"),
        (Edits(acted=(Acted(0, 16),)), "action"),
        (Edits(placed=(Placed(0, 0, "z0", 1.0),)), "feature"),
        (Edits(added=(Added(0, "row", 1.0),)), "feature"),
    ],
)
def test_impossible_edits_are_refused(bench, edits, message):
    with pytest.raises(UserError, match=message):
        bench.play(0, edits)


def test_an_unknown_episode_is_refused(bench):
    with pytest.raises(UserError, match="episode"):
        bench.play(5)


def test_the_world_is_acted_in_and_the_model_follows(bench):
    world = bench.world(3)
    assert (world.now().step, world.now().right, world.now().rule) == (0, True, [])
    right = bench.keys["ArrowRight"][1]
    assert bench.actions[right] == "B.x += A.x"
    first = world.act(right)
    assert first.event == "x addition"
    before, after = bench.world(3).now().true, first.true
    assert (before != after).any()
    assert first.parted is not None  # an untrained model
    assert first.parted.rule == first.rule[0][first.parted.slot]
    later = world.act(0)
    assert (later.step, later.parted) == (2, first.parted)
    with pytest.raises(UserError, match="action"):
        world.act(16)
