"""Falling towers in the workbench, against the model's own roll-out and the world's pictures."""

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments.stacks import Config, Stacks, StacksTask
from nps.experiments.stacks.falls import COLOURS
from nps.experiments.stacks.painting import PIXELS, empty_room, paint, spread
from nps.inspect.edits import Acted, Added, Edits, Forced, Placed, Scaled
from nps.models.rpin import LATENT
from nps.worlds import stacks
from nps.worlds.stacks import BOX, KINDS, PALETTE
from tests.experiments.test_stacks import TINY, data  # noqa: F401, a fixture

RULES = {"zero_start": False, "null_handicap": 20.0}
MODELS = {
    "pnps": {"residual": True, **RULES},
    "snps": {"interaction": "snps", "stages": 2, "rules": 3, **RULES},
    "cin": {"interaction": "cin"},
    "none": {"interaction": "none", "residual": True},
}


def bench_of(name, **changes):
    config = Config(**{**TINY, **MODELS[name], **changes})
    task = StacksTask(config, torch.device("cpu"))
    return Stacks().workbench(task, task.make_model(0).eval())


@pytest.fixture(scope="module")
def bench(data):  # noqa: F811
    return bench_of("pnps")


@torch.no_grad()
def predicted(bench, number):
    """What the model's own `unroll` gives for a validation tower and the likeliest latent."""
    tower = bench.task.episodes["validation"].at(slice(number, number + 1))
    picture = stacks.render(tower.shapes(0), tower.colour, pixels=bench.task.config.pixels)
    slots = bench.model.encode(bench.model.backbone(picture), stacks.boxes(tower.position[:, 0]))
    options = {"return_trace": True}
    return bench.model.unroll(slots, torch.zeros(1, LATENT), 5, **options)


@pytest.mark.parametrize("name", MODELS)
def test_a_playback_is_the_models_own_roll_out(name):
    bench = bench_of(name)
    playback, whole = bench.play(1), predicted(bench, 1)
    boxes = whole.boxes[0, :, :, :2].flip(-1).clamp(0, 1).numpy()
    np.testing.assert_allclose(playback.places[1:], boxes, atol=1e-5)
    tower = bench.task.episodes["validation"].at(slice(1, 2))
    true = stacks.centres(tower.position[0, :6]).numpy()
    np.testing.assert_allclose(playback.places[0], true[0, :, ::-1].clip(0, 1), atol=1e-6)
    error = 1000 * ((whole.boxes[0, :, :, :2].numpy() - true[1:]) ** 2).sum(-1).mean(-1)
    np.testing.assert_allclose(playback.error, [0, *error], rtol=1e-4, atol=1e-5)
    if whole.trace is None:
        assert playback.record is None
    else:
        np.testing.assert_array_equal(playback.record.rule, whole.trace.rule[0])
        np.testing.assert_array_equal(playback.record.context, whole.trace.context[0])
    for t in (0, 5):
        drawn = stacks.render(tower.shapes(t), tower.colour, pixels=PIXELS, samples=1)
        np.testing.assert_array_equal(playback.true[t], drawn[0].numpy())
    for slot, name in enumerate(playback.slot_names):
        colour, kind = name.split(" ")
        assert COLOURS.index(colour) == tower.colour[0, slot]
        assert KINDS.index(kind) == tower.kind[0, slot]


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_frames_drawn_at_once_are_those_drawn_one_by_one(name):
    bench = bench_of(name)
    fall = bench.episode(1, {})
    states = bench.roll(fall, Edits()).states
    whole = bench.frames(fall, states, 0)
    later = [*whole[:2], *bench.frames(fall, states[2:], 2)]
    for step, state in enumerate(states):
        alone = bench.frame(fall, state, step)
        for frame in (whole[step], later[step]):
            np.testing.assert_array_equal(frame.true, alone.true)
            np.testing.assert_array_equal(frame.slots, alone.slots)
            np.testing.assert_allclose(frame.places, alone.places, atol=1e-6)
            np.testing.assert_allclose(frame.error, alone.error, rtol=1e-5)
            for part in ("predicted", "masks"):
                one, other = (getattr(x, part).astype(int) for x in (frame, alone))
                assert np.abs(one - other).max() <= 1


def test_boxes_and_masks_are_painted_where_they_are():
    mask = torch.zeros(2, 28, 28)
    mask[0, :14] = 1.0  # the upper half of a box
    mask[1, 10:18] = 1.0
    boxes = torch.tensor([[0.5, 0.4, BOX, BOX], [0.2, 0.7, 0.2, 0.1]])
    shares = spread(mask, boxes).numpy()
    along = (np.arange(PIXELS) + 0.5) / PIXELS
    inside = np.abs(along - 0.5) < BOX / 2 - 0.01
    upper = (along > 0.4 - BOX / 2 + 0.01) & (along < 0.39)
    assert (shares[0][np.ix_(upper, inside)] > 0.99).all()
    assert shares[0][along > 0.41].max() == 0
    rows = shares[1].sum(1)
    assert (rows @ along / rows.sum()) == pytest.approx(0.7, abs=0.01)
    picture = paint(torch.from_numpy(shares), torch.tensor([2, 4])).numpy()
    room = empty_room(torch.device("cpu")).numpy()
    np.testing.assert_array_equal(picture[shares.sum(0) == 0], room[shares.sum(0) == 0])
    assert (picture[shares[0] > 0.999] == PALETTE[2]).all()


EDITS = {
    "disabled": Edits(disabled=(1,)),
    "scaled": Edits(scaled=(Scaled(0, 4.0), Scaled(1, 4.0))),
    "added": Edits(added=(Added(0, "way down", 0.1), Added(1, "row", 0.1))),
    "forced": Edits(forced=(Forced(2, 1, rule=-1), Forced(3, 0, rule=1, context=2))),
    "placed": Edits(placed=(Placed(3, 2, "row", 0.25), Placed(3, 2, "column", 0.75))),
}


@pytest.mark.parametrize("kind", EDITS)
def test_only_the_steps_after_an_edit_are_rolled_out_again(bench, kind):
    edits, plain = EDITS[kind], bench.play(0)
    edited, fresh = bench.play(0, edits), bench.roll(bench.episode(0, {}), edits)
    np.testing.assert_array_equal(edited.slots, np.stack([f.slots for f in fresh.frames]))
    np.testing.assert_array_equal(edited.record.rule, fresh.record.rule)
    first = edits.first_step()
    np.testing.assert_array_equal(edited.slots[:first], plain.slots[:first])
    assert not np.allclose(edited.slots[first:], plain.slots[first:], rtol=1e-3)
    np.testing.assert_array_equal(bench.play(0).slots, plain.slots)


def test_a_box_is_set_to_a_place(bench):
    edited = bench.play(0, EDITS["placed"])
    np.testing.assert_allclose(edited.places[3, 2], [0.25, 0.75], atol=1e-4)
    size = [slots @ bench._box[0][2:].T for slots in (edited.slots[3], bench.play(0).slots[3])]
    np.testing.assert_allclose(*size, atol=1e-4)  # as it was


@pytest.mark.parametrize("name", ["pnps", "snps"])
def test_what_the_layer_reads_moves_boxes_as_it_says(name):
    """Against the model itself, from a slot where nothing is cut off at zero."""
    bench = bench_of(name)
    model, known = bench.model, "way down" if name == "pnps" else "row"
    read = torch.randn(1, 8, 7, 7)
    change = torch.from_numpy(bench.layer_direction(known)).float().view(1, 8, 7, 7)
    with torch.no_grad():
        rows = [
            model.box((100.0 + model.predict(x)).relu().flatten(1))[0, :2]
            for x in (read, read + 0.1 * change)
        ]
    np.testing.assert_allclose(rows[1] - rows[0], [0.0, 0.1], atol=1e-4)
    found = bench.layer_features(np.stack([read.flatten(1), (read + 0.1 * change).flatten(1)]))
    at = [bench.feature_names.index(known)]
    np.testing.assert_allclose((found[1] - found[0])[0, at], 0.1, atol=1e-4)
    assert np.isnan(bench.layer_features(read.flatten(1).numpy())).any() == (name == "pnps")


def test_events_are_contacts_and_landings(bench):
    tower, names = bench.task.episodes["validation"], bench.play(2).slot_names
    said = bench.play(2).events
    for step, event in enumerate(said):
        parts = set(event.split(", ")) - {""}
        expected = set()
        for i, name in enumerate(names):
            colour = name.split(" ")[0]
            if tower.grounded[2, step + 1, i] and not tower.grounded[2, step, i]:
                expected.add(f"{colour} lands")
            for j in range(i + 1, 3):
                if tower.touched[2, step + 1, i, j] and not tower.touched[2, step, i, j]:
                    expected.add(f"{colour} meets {names[j].split(' ')[0]}")
        assert parts == expected


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (Edits(acted=(Acted(0, 0),)), "no discrete actions"),
        (Edits(placed=(Placed(0, 0, "row", 0.5),)), "step 0"),
        (Edits(placed=(Placed(2, 0, "way down", 0.5),)), "no such feature"),
        (Edits(placed=(Placed(2, 0, "colour", 0.5),)), "feature"),
        (Edits(forced=(Forced(0, 3, rule=0),)), "slot"),
    ],
)
def test_impossible_edits_are_refused(bench, edits, message):
    with pytest.raises(UserError, match=message):
        bench.play(0, edits)
