"""The workbench of blocks: roll-outs under edits, what is read of slots, the true world beside."""

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments import EXPERIMENTS
from nps.experiments.blocks.workbench import BlocksWorkbench
from nps.experiments.world_models.unrolling import unroll
from nps.inspect.edits import Acted, Added, Edits, Forced, Placed, Scaled
from nps.inspect.playback import first_difference
from nps.models.transitions import Identity
from nps.worlds.blocks import Outcome, render
from nps.worlds.blocks.dynamics import GRID
from tests.experiments.knowing import Sees, knowing
from tests.experiments.test_blocks import task_of

FIXED = {"mode": "fixed-palette", "slot_dim": 4, "train_episodes": 40, "train_steps": 6}
KINDS = {
    "sequential": {"transition": "snps", "rules": 3, "stages": 2},
    "parallel": {"transition": "pnps", "rules": 3, "action": "numbered", "selection": "mlp"},
    "gnn": {"transition": "gnn"},
    "attention": {"transition": "attention"},
    "identity": {"transition": "identity"},
    "slot attention": {"extractor": "slot-attention", "rules": 2, "train_episodes": 8},
}
WITH_RULES = ("sequential", "parallel", "slot attention")


def bench_of(**changes: object) -> BlocksWorkbench:
    task = task_of(**{**FIXED, **changes})
    bench = EXPERIMENTS["blocks"].workbench(task, task.make_model(0).eval())
    assert isinstance(bench, BlocksWorkbench)
    return bench


def knows(transition=None) -> BlocksWorkbench:
    return BlocksWorkbench(task_of(**FIXED), knowing(transition))


@pytest.mark.parametrize("kind", KINDS)
def test_a_playback_is_the_roll_out_of_the_validation_episode(kind):
    bench = bench_of(**KINDS[kind])
    data, model = bench.task.sets["validation"], bench.model
    play = bench.play(2)
    true = render(data.state(torch.full((11,), 2), torch.arange(11)))
    assert (play.true == true.numpy()).all()
    assert play.actions.tolist() == data.action[2].tolist()
    with torch.no_grad():
        first = model.encode(true[:1])
        rolled = model.rollout(first, data.action[2:3])[0]
        error = (torch.cat([first, rolled]) - model.encode(true)).square().sum((1, 2))
    assert np.allclose(play.slots[1:], rolled, atol=1e-6)
    assert np.allclose(play.error, error, rtol=1e-3, atol=1e-6)
    assert play.right[0]
    same = (play.true == play.predicted).reshape(11, -1).all(1)
    assert (play.right == same).all()
    assert play.masks.shape[:2] == (11, 5)
    assert play.features.shape == (11, 5, len(play.feature_names))
    if kind not in WITH_RULES:
        assert play.record is None
        return
    _, trace = model.traced(torch.from_numpy(play.slots[:-1]), data.action[2])
    assert (play.record.rule == trace.rule.numpy()).all()
    assert (play.record.context == trace.context.numpy()).all()
    assert np.allclose(play.record.rule_scores, trace.rule_scores.detach(), atol=1e-4)


@pytest.mark.parametrize("kind", ["sequential", "parallel"])
@pytest.mark.parametrize(
    "edits",
    [
        Edits(disabled=(0, 1, 2)),
        Edits(scaled=tuple(Scaled(i, 0.5) for i in range(3)), forced=(Forced(4, 1, rule=0),)),
        Edits(added=tuple(Added(i, "z1", 0.3) for i in range(3))),
        Edits(forced=(Forced(3, 1, rule=1),)),
        Edits(placed=(Placed(5, 2, "z0", 0.7),)),
        Edits(acted=(Acted(6, 24),)),
    ],
)
def test_only_steps_from_the_first_edit_on_are_predicted_again(kind, edits):
    bench = bench_of(**KINDS[kind])
    bench.__dict__["probe"] = None  # of an untrained model it may be good by chance
    plain, edited = bench.play(0), bench.play(0, edits)
    scene = bench.scene(0, edits)
    whole = unroll(bench, torch.from_numpy(plain.slots[0]), scene.actions, edits)
    assert (edited.slots == whole.slots.numpy()).all()
    assert (edited.record.rule == whole.record.rule).all()
    assert np.array_equal(edited.record.update, whole.record.update)
    first = edits.first_step()
    assert (edited.slots[:first] == plain.slots[:first]).all()
    assert (edited.record.before[:first] == plain.record.before[:first]).all()
    if edits.forced:
        assert all(edited.record.rule[f.step, 0, f.slot] == f.rule for f in edits.forced)
    else:
        assert not np.allclose(edited.slots[-1], plain.slots[-1])
    assert (bench.play(0).slots == plain.slots).all()  # nothing is left behind


def test_a_disabled_rule_never_fires():
    bench = bench_of(**KINDS["sequential"])
    used = np.unique(bench.play(0).record.rule[bench.play(0).record.rule >= 0])
    edited = bench.play(0, Edits(disabled=(int(used[0]),)))
    assert used[0] not in edited.record.rule
    with bench.layer.rules.disabled(int(used[0])), torch.no_grad():
        start = torch.from_numpy(edited.slots[:1])
        rolled = bench.model.rollout(start, torch.from_numpy(edited.actions[None]))
    assert np.allclose(rolled[0], edited.slots[1:], atol=1e-6)


def test_a_placed_feature_has_its_value_before_the_step():
    bench = bench_of(**KINDS["gnn"])
    bench.__dict__["probe"] = None
    edited = bench.play(1, Edits(placed=(Placed(5, 2, "z0", 0.7), Placed(5, 2, "z3", -0.2))))
    assert edited.features[5, 2] == pytest.approx([0.7, *bench.play(1).slots[5, 2, 1:3], -0.2])


# -- a model that sees and knows everything -------------------------------------------------------


def test_a_knowing_model_is_right_and_its_slots_can_be_read():
    bench = knows()
    play = bench.play(0)
    assert bench.probe.r2 == pytest.approx([1, 1], abs=1e-4)
    assert (bench.probe.chance < 0.2).all()
    assert play.right.all()
    assert not play.error.any()
    assert play.slot_names == tuple(f"block {m}" for m in range(5))
    positions = bench.task.sets["validation"].positions[0].numpy()
    assert play.places * GRID == pytest.approx(positions + 0.5, abs=0.01)
    assert play.feature_names == ("row", "column")
    assert bench.drags
    assert bench.keys["ArrowUp"] == [1, 6, 11, 16, 21]
    assert bench.actions[6] == "block 1 north"
    lights = play.masks.reshape(*play.masks.shape[:2], 5, 10, 5, 10).sum((3, 5), dtype=int)
    for t, m in np.ndindex(11, 5):
        assert lights[t, m].argmax() == positions[t, m] @ [GRID, 1]


@pytest.mark.parametrize("episode", range(6))
def test_events_are_what_moved(episode):
    play = knows().play(episode)
    for t, event in enumerate(play.events):
        before, after = play.slots[t : t + 2]
        changed = {m for m in range(5) if (before[m] != after[m]).any()}
        if event == "nothing":
            assert not changed
        elif event == "free":
            assert changed == {play.actions[t] // 5}
        else:
            word, pair = event.split()
            assert word == "push"
            pusher, pushed = map(int, pair.split("→"))
            assert changed == {pusher, pushed}
            assert pusher == play.actions[t] // 5


def test_the_truth_follows_another_action():
    bench = knows()
    action = next(
        a
        for a in range(25)
        if bench.scene(0, Edits(acted=(Acted(4, a),))).events[4] == "free"
        and a != bench.play(0).actions[4]
    )
    edited, plain = bench.play(0, Edits(acted=(Acted(4, action),))), bench.play(0)
    assert edited.right.all()
    assert edited.events[4] == "free"
    assert edited.actions[4] == action
    assert (edited.true[:5] == plain.true[:5]).all()
    assert (edited.true[5] != plain.true[5]).any()
    assert first_difference(plain, edited) == 5


def test_a_block_is_dragged_in_the_true_world_too():
    bench = knows()
    positions = bench.task.sets["validation"].positions[0, 3]
    taken = set(map(tuple, positions.tolist()))
    row, column = next(c for c in np.ndindex(GRID, GRID) if c not in taken)
    place = [Placed(3, 2, "row", (row + 0.5) / GRID), Placed(3, 2, "column", (column + 0.5) / GRID)]
    edited = bench.play(0, Edits(placed=tuple(place)))
    assert edited.places[3, 2] * GRID == pytest.approx([row + 0.5, column + 0.5], abs=0.01)
    assert edited.right.all()
    assert (edited.true[3] != bench.play(0).true[3]).any()
    row, column = positions[0].tolist()  # where block 0 is: the true block stays
    place = [Placed(3, 2, "row", (row + 0.5) / GRID), Placed(3, 2, "column", (column + 0.5) / GRID)]
    onto = bench.play(0, Edits(placed=tuple(place)))
    assert (onto.true == bench.play(0).true).all()
    assert not onto.right[3]


class Mirrored(Sees):
    """Slot 1 shows its block with the signs of row and column changed."""

    def forward(self, images):
        slots = super().forward(images)
        slots[:, 1, :2] *= -1
        return slots


def test_a_slot_that_shows_its_block_in_its_own_way_is_dragged_too():
    bench = knows(Identity())
    bench.model.encoder = Mirrored()
    positions = bench.task.sets["validation"].positions[0, 0].tolist()
    row, column = next(c for c in np.ndindex(GRID, GRID) if [*c] not in positions)
    place = [Placed(0, 1, "row", (row + 0.5) / GRID), Placed(0, 1, "column", (column + 0.5) / GRID)]
    edited = bench.play(0, Edits(placed=tuple(place)))
    assert edited.right[0]
    assert edited.slots[0, 1, :2] == pytest.approx([-row, -column], abs=0.05)
    assert (edited.true[0] != bench.play(0).true[0]).any()


def test_without_an_action_to_stay():
    bench = bench_of(**KINDS["gnn"], stay=False)
    assert len(bench.actions) == 20
    assert bench.actions[4] == "block 1 north"
    assert {bench.actions[a] for a in bench.keys["ArrowLeft"]} == {
        f"block {b} west" for b in range(5)
    }
    events = {event.split()[0] for e in range(6) for event in bench.play(e).events}
    assert events <= {"free", "push", "nothing"}


# -- play -----------------------------------------------------------------------------------------


def test_a_knowing_model_never_parts_from_the_world():
    world, draw = knows().world(3), np.random.default_rng(0)
    for t in range(40):
        moment = world.act(int(draw.integers(25)))
        assert (moment.step, moment.right, moment.parted) == (t + 1, True, None)
        assert (moment.true == moment.imagined).all()
        assert moment.error == 0
    assert moment.rule == []


def test_a_model_in_which_nothing_moves_parts_with_the_first_move():
    world = knows(Identity()).world(0)
    now = world.now()
    assert (now.step, now.right, now.event) == (0, True, "")
    for action in range(25):
        moment = world.act(action)
        if moment.event != "nothing":
            break
        assert moment.right
    assert not moment.right
    assert moment.parted.slot == action // 5
    assert moment.parted.step == moment.step
    assert moment.parted.rule is None
    assert (moment.imagined == now.true).all()
    assert world.act(0).parted == moment.parted
    assert (knows().world(0).now().true == now.true).all()  # the seed decides


def test_the_rule_at_fault_is_named():
    bench = bench_of(**KINDS["parallel"])
    world = bench.world(1)
    for action in (1, 6, 11, 16, 21, 3, 8, 13):
        moment = world.act(action)
        if moment.parted:
            break
    assert moment.parted.rule == moment.rule[-1][moment.parted.slot]
    assert len(moment.rule[0]) == len(moment.context[0]) == 5


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        (Edits(acted=(Acted(10, 0),)), "step: got 10, expected 0 to 9"),
        (Edits(acted=(Acted(0, 25),)), "action: got 25, expected 0 to 24"),
        (Edits(placed=(Placed(0, 5, "row", 0.5),)), "slot: got 5, expected 0 to 4"),
        (Edits(placed=(Placed(0, 1, "colour", 0.5),)), "feature: got 'colour', expected one of"),
        (Edits(disabled=(0,)), "this model has no rules"),
    ],
)
def test_edits_that_do_not_fit_are_refused(edits, words):
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        knows().play(0, edits)


def test_episodes_and_actions_that_are_not_there_are_refused():
    bench = knows()
    with pytest.raises(UserError, match="episode: got 6, expected 0 to 5"):
        bench.play(bench.count())
    with pytest.raises(UserError, match="action: got -1, expected 0 to 24"):
        bench.world(0).act(-1)


def test_it_opens_with_a_push():
    assert knows().opening == 0  # there is none
    task = task_of(**FIXED)
    data = task.sets["validation"]
    outcome = data.outcome.clone()
    outcome[1, -1] = outcome[3, 2] = outcome[4, 0] = Outcome.PUSH  # nothing is seen after the first
    task.sets["validation"] = data._replace(outcome=outcome)
    assert BlocksWorkbench(task, knowing(None)).opening == 3


def test_models_with_one_encoder_have_comparable_errors():
    one, same, other = (bench_of(transition=kind) for kind in ("identity", "identity", "gnn"))
    assert one.encoder == same.encoder
    with torch.no_grad():
        next(other.model.encoder.parameters()).add_(1.0)
    assert one.encoder != other.encoder


def test_marks_stand_in_the_middles_of_cells():
    bench = knows()
    assert "R² on held-out images: row 1.00, column 1.00" in bench.reading
    slots = bench.play(0).slots + 0.1 * bench.direction("row")  # read beside the cell
    cells = bench.places(slots, torch.zeros(())) * GRID - 0.5
    assert cells == pytest.approx(np.round(cells), abs=1e-6)
