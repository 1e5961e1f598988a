"""Play with towers, against the Gymnasium environment and the model's own roll-out."""

import sys

import gymnasium
import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments.stacks import play
from nps.experiments.stacks.painting import PIXELS
from nps.models.rpin import LATENT
from nps.viewer import answers
from nps.viewer.session import Session
from nps.worlds import stacks
from nps.worlds.stacks import Shapes
from nps.worlds.stacks.physics import FALLING
from tests.experiments.test_stacks import TINY, data  # noqa: F401, a fixture
from tests.experiments.test_workbench_stacks import bench_of

WAIT = 0
RIGHT, LEFT, AWAY, NEARER = range(4)
HALF = 0.5**0.5
VELOCITY = {
    RIGHT: (2 * HALF, -2 * HALF, 0),
    LEFT: (-2 * HALF, 2 * HALF, 0),
    AWAY: (2 * HALF, 2 * HALF, 0),
    NEARER: (-2 * HALF, -2 * HALF, 0),
}
SEED = 3


def push(shape, direction):
    return 1 + 4 * shape + direction


@pytest.fixture(scope="module")
def bench(data):  # noqa: F811
    return bench_of("pnps")


class Tower:
    """The environment, and what its camera sees in the workbench's size."""

    def __init__(self, seed):
        self.env = gymnasium.make("nps.worlds.environments:nps/Tower-v0", falls=True).unwrapped
        self.env.reset(seed=seed)

    def act(self, action):
        if action:
            shape, direction = divmod(action - 1, 4)
            self.env.world.push(shape, VELOCITY[direction])
        self.env.step(0)

    @property
    def shapes(self):
        tower, world = self.env.tower, self.env.world
        parts = (tower.kind.astype(int), tower.size.astype(np.float32))
        return Shapes(*(torch.tensor(x)[None] for x in (*parts, world.position, world.rotation)))

    @property
    def centres(self):
        return stacks.centres(torch.from_numpy(self.env.world.position)).numpy()

    def picture(self, pixels=PIXELS, samples=1):
        colour = torch.from_numpy(self.env.tower.colour.astype(int))[None]
        return stacks.render(self.shapes, colour, pixels=pixels, samples=samples)


@torch.no_grad()
def imagined(bench, tower, steps):
    """What the model's own `unroll` makes of the picture of a tower: centres, and its trace."""
    model = bench.model
    boxes = stacks.boxes(torch.from_numpy(tower.env.world.position)[None])
    slots = model.encode(model.backbone(tower.picture(TINY["pixels"], 2)), boxes)
    found = model.unroll(slots, torch.zeros(1, LATENT), steps, return_trace=True)
    return found.boxes[0, :, :, :2].numpy(), found.trace


def test_the_true_world_is_the_environments_tower(bench):
    world, tower = bench.world(SEED), Tower(SEED)
    moments = [world.now()]
    np.testing.assert_array_equal(moments[0].true, tower.picture()[0].numpy())
    for action in (WAIT, push(0, RIGHT), push(2, AWAY), WAIT, push(1, LEFT), push(1, NEARER), WAIT):
        tower.act(action)
        moments.append(world.act(action))
        np.testing.assert_array_equal(moments[-1].true, tower.picture()[0].numpy())
    assert [moment.step for moment in moments] == list(range(8))
    names = [stacks.KINDS[kind] for kind in tower.env.tower.kind]
    assert [name.split(" ")[1] for name in world.slot_names] == names
    assert (bench.world(SEED).now().true == moments[0].true).all()
    assert not (bench.world(SEED + 1).now().true == moments[0].true).all()


def test_towers_that_stand_are_drawn_again(bench):
    """Of the environment, towers of some seeds stand in spite of their broken level."""
    stands = 0
    for seed in range(6, 10):
        world, tower = bench.world(seed), Tower(seed)
        same = np.array_equal(world.now().true, tower.picture()[0].numpy())
        speeds = [[], []]
        for _ in range(31):
            for simulator, found in zip((world._simulator, tower.env.world), speeds, strict=True):
                simulator.frame()
                found.append(simulator.top_speed)
        ours, first = (max(found) > FALLING for found in speeds)
        assert ours
        assert same == first
        stands += not first
    assert stands


@pytest.mark.parametrize("direction", [RIGHT, LEFT, AWAY, NEARER])
def test_shapes_are_pushed_as_the_camera_sees_it(bench, direction):
    """The top shape, against the same frame without a push."""
    pushed, left_alone = bench.world(SEED), bench.world(SEED)
    action = push(2, direction)
    assert pushed.actions[action].startswith(f"push {pushed.slot_names[2]} ")
    assert action in bench.keys[("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown")[direction]]
    moments = [pushed.act(action), left_alone.act(WAIT)]
    centres = [world._fall.centres[-1, 2].numpy() for world in (pushed, left_alone)]
    column, row = centres[0] - centres[1]
    across = {RIGHT: 1, LEFT: -1}.get(direction, 0)
    up = {AWAY: 1, NEARER: -1}.get(direction, 0)
    assert np.sign(np.round(column, 2)) == across
    assert np.sign(np.round(-row, 3)) == up if up else abs(row) < 0.01
    assert not (moments[0].true == moments[1].true).all()


@pytest.mark.parametrize("name", ["pnps", "snps", "cin"])
def test_the_model_goes_on_by_itself_until_they_part(name, data, monkeypatch):  # noqa: F811
    bench, steps = bench_of(name), 9  # more than `test_frames`
    tower = Tower(SEED)
    centres, trace = imagined(bench, tower, steps)
    away = []
    for t in range(steps):
        tower.act(WAIT)
        away.append(np.linalg.norm(centres[t] - tower.centres, axis=-1))
    # The step that is farthest from the truth is to be the one at which they part.
    peak = int(np.argmax([far.max() for far in away]))
    before = max((far.max() for far in away[:peak]), default=0.0)
    monkeypatch.setattr(play, "APART", (before + away[peak].max()) / 2)
    world = bench.world(SEED)
    now = world.now()
    assert (now.right, now.error, now.rule, now.parted, now.looked) == (True, 0.0, [], None, 0)
    np.testing.assert_array_equal(now.imagined, now.true)
    for t in range(steps):
        moment = world.act(WAIT)
        np.testing.assert_allclose(
            moment.places, centres[t, :, ::-1].clip(0.0, 1.0), atol=1e-5, rtol=1e-4
        )
        expected = 1000 * np.square(away[t]).sum() / 3
        assert moment.error == pytest.approx(expected, rel=1e-3)
        assert moment.right == (away[t].max() < play.APART)
        assert (moment.parted is not None) == (t >= peak)
        rule = [] if trace is None else trace.rule[0, t].tolist()
        assert moment.rule == rule
    slot = int(away[peak].argmax())
    assert (moment.parted.step, moment.parted.slot) == (peak + 1, slot)
    if trace is None:
        assert moment.parted.rule is None
    else:
        fired = trace.rule[0, : peak + 1, :, slot].flatten()
        fired = fired[fired >= 0].tolist()
        assert moment.parted.rule == (fired[-1] if fired else -1)


def test_after_a_push_the_model_looks_again(bench, monkeypatch):
    monkeypatch.setattr(play, "APART", 1e-6)
    world, tower = bench.world(SEED), Tower(SEED)
    assert world.act(WAIT).parted.step == 1
    moment = world.act(push(1, RIGHT))
    assert (moment.step, moment.looked, moment.parted, moment.right) == (2, 2, None, True)
    assert (moment.rule, moment.error) == ([], 0.0)
    np.testing.assert_array_equal(moment.imagined, moment.true)
    assert moment.event.startswith("the model looks again")
    for action in (WAIT, push(1, RIGHT)):
        tower.act(action)
    centres, trace = imagined(bench, tower, 2)
    for t in range(2):
        moment = world.act(WAIT)
        np.testing.assert_allclose(moment.places, centres[t, :, ::-1].clip(0.0, 1.0), atol=1e-5)
        assert moment.rule == trace.rule[0, t].tolist()
    assert (moment.looked, moment.parted.step) == (2, 3)


def test_what_truly_happens_is_told(bench):
    """Until everything lies on the floor."""
    world, tower = bench.world(SEED), Tower(SEED)
    before, said = tower.env.world.touching(), set()
    for _ in range(12):
        tower.env.touched = tower.env.world.frame()
        after, event = tower.env.touched, world.act(WAIT).event
        landed = [i for i in range(3) if after[i, 3] and not before[i, 3]]
        met = sum(after[i, j] and not before[i, j] for i in range(3) for j in range(i))
        assert event.count("lands") == len(landed)
        assert event.count("meets") == met
        for i in landed:
            assert f"{world.slot_names[i].split(' ')[0]} lands" in event
        said |= set(event.split(" "))
        before = after
    assert "lands" in said


def test_impossible_actions_and_seeds_are_refused(bench):
    world = bench.world(0)
    for action in (-1, 13):
        with pytest.raises(UserError, match=f"action: got {action}, expected 0 to 12"):
            world.act(action)
    assert world.now().step == 0
    with pytest.raises(UserError, match="seed: got -1"):
        bench.world(-1)


class Run:
    """What the viewer needs of a run."""

    experiment, preset, folder, seed, metrics = "stacks", "tiny", None, 0, ()

    def __init__(self, bench):
        self.workbench, self.model = bench, bench.model


def test_the_viewer_is_told_what_shapes_and_actions_are_called(bench):
    session = Session([Run(bench)])
    (model,) = answers.models(session, {})["models"]
    assert model["plays"]
    assert len(model["actions"]) == 13
    started = answers.world_start(session, {"model": 0, "seed": SEED})
    shapes = bench.world(SEED).slot_names
    assert started["slots"] == list(shapes)
    assert started["actions"][push(1, AWAY)] == f"push {shapes[1]} away"
    acted = answers.world_act(session, {"world": started["world"], "action": push(0, LEFT)})
    assert acted["moment"]["looked"] == 1


def test_without_mujoco_everything_but_play_works(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError, match=r"need the extra: .*\[stacks\]"):
        bench.world(0)
    session = Session([Run(bench)])
    (model,) = answers.models(session, {})["models"]
    assert not model["plays"]
    assert "[stacks]" in model["needs"]
    assert answers.play(session, {"model": 0, "episode": 1})["steps"] == TINY["test_frames"]
    with pytest.raises(UserError, match="need the extra"):
        answers.world_start(session, {"model": 0, "seed": 0})
