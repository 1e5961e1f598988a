"""Digits in the workbench, against the program's own composition through pictures."""

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments.mnist import Mnist
from nps.experiments.mnist.compose import through_pictures, true_pictures
from nps.experiments.mnist.config import Config
from nps.experiments.mnist.task import MnistTask
from nps.experiments.mnist.workbench import SHAPE, shape
from nps.inspect.counterfactual import what_if
from nps.inspect.edits import Acted, Edits, Forced, Placed, Scaled
from nps.inspect.explanations import explain
from nps.inspect.grids import grey

pytest.importorskip("sklearn")

TINY = {
    "world": "digits",
    "slot_dim": 12,
    "hidden_dim": 8,
    "train_examples": 40,
    "validation_examples": 10,
    "test_examples": 10,
    "batch_size": 20,
}


def bench_of(**changes):
    task = MnistTask(Config(**{**TINY, **changes}), torch.device("cpu"))
    return Mnist().workbench(task, task.make_model(0).eval())


@pytest.fixture(scope="module")
def bench():
    return bench_of(image_selects=False, self_context=False)


@torch.no_grad()
def composed(bench, rules, number):
    """The pictures that a chain of rules makes of a digit, by `compose.py`."""
    first = torch.from_numpy(bench.play(number).true[:1, :, :, 0] / np.float32(255))
    steps = torch.tensor(rules).unsqueeze(-1)
    return through_pictures(bench.model, first, steps)[:, 0].numpy()


@pytest.mark.parametrize("model", ["nps", "authors", "mlp"])
def test_a_playback_goes_from_picture_to_picture(model):
    bench = bench_of(model=model)
    assert bench.count() == 10
    playback = bench.play(3)
    chain = bench.task.truth["validation"][3]
    np.testing.assert_array_equal(playback.actions, chain)
    assert playback.events == tuple(bench.actions[i] for i in chain)
    first = bench.episode(3, {}).pictures[:1]
    true = true_pictures(first, chain.unsqueeze(-1), bench.task.matrices)[:, 0].numpy()
    np.testing.assert_array_equal(playback.true[1:], grey(true))
    assert (playback.record is None) == (model == "mlp") == (not bench.rule_names)
    if model == "nps":  # the rule that fires, and on which slot, is read from the record
        assert (playback.record.rule >= 0).sum() == playback.steps
    if model == "mlp":  # which gets the operation in place of a rule
        predicted = composed(bench, chain.tolist(), 3)
        np.testing.assert_array_equal(playback.predicted[1:], grey(predicted))
        error = np.square(predicted - true).mean((1, 2))
        np.testing.assert_allclose(playback.error[1:], error, rtol=1e-4)


def test_forced_rules_draw_what_composition_draws(bench):
    rules = [2, 0, 3, 3]
    forced = tuple(Forced(step, 0, rule=rule) for step, rule in enumerate(rules))
    playback = bench.play(1, Edits(forced=forced))
    np.testing.assert_array_equal(playback.record.rule[:, 0, 0], rules)
    np.testing.assert_array_equal(playback.predicted[1:], grey(composed(bench, rules, 1)))


def test_operations_are_exchanged_and_chains_made_longer(bench):
    acted = (Acted(1, 3), *(Acted(4 + i, i % 4) for i in range(6)))
    playback = bench.play(2, Edits(acted=acted))
    chain = bench.task.truth["validation"][2].tolist()
    chain[1] = 3
    assert playback.actions.tolist() == [*chain, 0, 1, 2, 3, 0, 1]
    assert playback.slots.shape == (11, 2, 12)
    np.testing.assert_array_equal(playback.predicted[0], playback.true[0])
    assert len(playback.record.calls) == 10
    plain = bench.play(2)
    np.testing.assert_array_equal(playback.predicted[:2], plain.predicted[:2])
    longer = what_if(bench, 2, edits=Edits(acted=acted[1:3]))
    np.testing.assert_array_equal(longer.after.predicted[:5], plain.predicted)
    assert (longer.after.steps, longer.first_difference, longer.changed_firings) == (6, 5, 0)


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(acted=(Acted(5, 0),)), "step: got 5, expected 0 to 3"),
        (Edits(acted=tuple(Acted(4 + i, 0) for i in range(7))), "step: got 10"),
        (Edits(acted=(Acted(0, 4),)), "action"),
        (Edits(placed=(Placed(0, 0, "colour", 0.5),)), "feature"),
        (Edits(forced=(Forced(0, 0, rule=4),)), "rule"),
    ],
)
def test_impossible_edits_are_refused(bench, edits, message):
    with pytest.raises(UserError, match=message):
        bench.play(0, edits)


def test_a_model_without_rules_has_none_to_scale():
    with pytest.raises(UserError, match="no rules"):
        bench_of(model="mlp").play(0, Edits(scaled=(Scaled(0, 2.0),)))


def test_the_shape_of_a_picture():
    picture = np.zeros((64, 64))
    picture[10:20, 30:50] = 0.7
    row, column, height, width = shape(picture[None])[0]
    assert (row, column) == (pytest.approx(15 / 64), pytest.approx(40 / 64))
    expected = [np.std(np.arange(size) / 64) for size in (10, 20)]
    assert [height, width] == pytest.approx(expected)


class Ink(torch.nn.Module):
    """In place of an encoder: a slot whose first numbers tell the shape of the ink."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mix", torch.eye(4, 12) + 0.1 * torch.arange(48.0).view(4, 12).cos())

    def forward(self, images):
        found = torch.from_numpy(shape(images.numpy())).float()
        return found @ self.mix


def test_what_can_be_read_of_a_slot_is_probed_and_set():
    # Operations change nothing, and so do rules, which read the image slot alone.
    reading = {"image_selects": False, "self_context": False}
    bench = bench_of(train_examples=400, rotation=0.0, shift=0.0, **reading)
    bench.model.encoder = Ink()
    for parameter in bench.model.layer.rules.parameters():
        torch.nn.init.zeros_(parameter)
    assert bench.feature_names == SHAPE
    assert bench.drags
    playback = bench.play(0)
    true = shape(playback.true[:1, :, :, 0].astype(float))
    np.testing.assert_allclose(playback.features[0, 0], true[0], atol=1e-3)
    assert np.isnan(playback.features[:, 1]).all()  # the operation's slot
    moved = bench.play(0, Edits(placed=(Placed(2, 0, "row", 0.25), Placed(2, 0, "column", 0.75))))
    np.testing.assert_allclose(moved.features[2, 0, :2], [0.25, 0.75], atol=1e-6)
    np.testing.assert_allclose(moved.features[2, 0, 2:], playback.features[2, 0, 2:], atol=1e-6)
    np.testing.assert_allclose(moved.places[2, 0], [0.25, 0.75], atol=1e-6)
    assert (moved.predicted[3] != playback.predicted[3]).any()
    np.testing.assert_array_equal(moved.predicted[:3], playback.predicted[:3])
    with pytest.raises(UserError, match="slot"):
        bench.play(0, Edits(placed=(Placed(2, 1, "row", 0.25),)))


def test_without_a_probe_the_numbers_of_the_slot_are_shown():
    bench = bench_of()
    bench.model.encoder = torch.nn.Sequential(torch.nn.Flatten(1), torch.nn.Linear(64 * 64, 12))
    for parameter in bench.model.encoder.parameters():
        torch.nn.init.zeros_(parameter)
    assert bench.feature_names == tuple(f"z{i}" for i in range(12))
    assert not bench.drags
    playback = bench.play(0)
    np.testing.assert_array_equal(playback.features[:, 0], playback.slots[:, 0])
    picture = playback.predicted[2, :, :, 0].astype(float)
    np.testing.assert_allclose(playback.places[2, 0], shape(picture[None])[0, :2], atol=0.01)
    slots = bench.play(0, Edits(placed=(Placed(1, 0, "z3", 2.5),))).slots
    assert slots[1, 0].tolist() == [0, 0, 0, 2.5, *[0] * 8]


def test_the_world_transforms_the_digit_and_the_model_follows(bench):
    world = bench.world(12)  # more than there are digits
    np.testing.assert_array_equal(world.now().true, bench.play(2).true[0])
    (up,) = bench.keys["ArrowUp"]
    moment = world.act(up)
    assert moment.event == "translate_up"
    rows = [shape(x[None, :, :, 0].astype(float))[0, 0] for x in (world.now().true, moment.true)]
    assert rows[0] == rows[1] < shape(bench.play(2).true[:1, :, :, 0].astype(float))[0, 0]
    forced = tuple(Forced(0, 0, rule=max(stage)) for stage in moment.rule)
    drawn = bench.play(2, Edits(forced=forced)).predicted[1]
    np.testing.assert_array_equal(moment.imagined, drawn)
    with pytest.raises(UserError, match="action"):
        world.act(-1)


def test_why_shows_the_image_before_and_after_a_step(bench):
    play = bench.play(0)
    found = explain(bench, play, 1, 0)
    assert np.array_equal(found.pictures[0], play.predicted[1])
    assert np.array_equal(found.pictures[1], play.predicted[2])
    assert explain(bench, play, 1, 1).pictures is None
