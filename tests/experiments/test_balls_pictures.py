"""Pictures of bouncing balls: which rule they name, where arrows lead, what collides."""

import io

import numpy as np
import pytest
import torch

from nps.experiments.balls import pictures
from nps.experiments.balls.evaluation import predict
from nps.experiments.balls.firing import collisions_of_slots, firing_figure
from nps.experiments.balls.pictures import Bound, rollout_gif, strongest
from nps.rules import Trace
from tests.experiments.test_balls import Oracle, task_of

Image = pytest.importorskip("PIL.Image")


def trace_of(fired, frames=1, slots=4, stages=2):
    """One scene in which (stage, rule, primary, context) fired at each frame."""
    rule, context = (torch.full((1, frames, stages, slots), -1) for _ in range(2))
    for k, number, m, c in fired:
        rule[:, :, k, m], context[:, :, k, m] = number, c
    return Trace(rule, context, torch.zeros(1), torch.zeros(1))


@pytest.mark.parametrize(
    ("fired", "change", "expected"),
    [
        ([], [0, 0, 0, 0], None),
        ([(0, 5, 1, 2)], [0, 1, 0, 0], Bound(5, 1, 2)),
        # In parallel a rule fires on every slot: that of the slot that changes most.
        ([(0, 5, 0, 1), (0, 6, 1, 2), (0, 7, 2, 0)], [1, 3, 2, 0], Bound(6, 1, 2)),
        # Slot 3 draws nothing, and slot 2 is its own context: there is no arrow to draw.
        ([(0, 5, 0, 1), (0, 6, 2, 2), (1, 7, 3, 0)], [1, 3, 2, 9], Bound(5, 0, 1)),
        ([(0, 6, 2, 2), (1, 7, 3, 0)], [1, 3, 2, 9], Bound(7, 3, 0)),
        # Twice on the same slot: the first stage.
        ([(0, 5, 0, 1), (1, 6, 0, 2)], [1, 0, 0, 0], Bound(5, 0, 1)),
    ],
)
def test_the_rule_that_is_named_changes_its_slot_most(fired, change, expected):
    amounts = torch.tensor([[change]], dtype=torch.float)
    assert strongest(trace_of(fired), amounts, 0, 0, visible=[0, 1, 2]) == expected
    assert strongest(None, amounts, 0, 0, [0, 1, 2]) is None


def white_arrow(data: bytes, frame: int) -> np.ndarray:
    """Rows and columns, in pixels of the world, of what is pure white in the second image."""
    return white_pixels(data, frame, pictures.SIDE + 8)


def white_pixels(data: bytes, frame: int, left: int) -> np.ndarray:
    """The same of the image that begins at some column of the screen."""
    moving = Image.open(io.BytesIO(data))
    moving.seek(frame)
    shown = np.asarray(moving.convert("L"))
    side, top = pictures.SIDE, 24
    image = shown[top : top + side, left : left + side]
    return np.stack((image > 250).nonzero()) * 32 / side


def test_the_arrow_leads_from_the_context_to_the_changed_slot():
    """Also if the slots have changed places: pixels count, not numbers."""
    task = task_of(size=32)
    part = next(task.parts("test", 5, rollout=True)).first(2)
    images, labels = task.draw_frames(part.scenes)
    predicted = predict(task.config, Oracle(task, splits=("test",)), part, images)
    fired = trace_of([(0, 4, 0, 1)], frames=7, slots=5)
    both = Trace(*(x.expand(2, *x.shape[1:]) for x in fired))
    change = torch.rand(2, 7, 5)
    told = predicted._replace(trace=both)
    data = rollout_gif(images[:, 1:], told, change, seen=4, scene=1)
    moving = Image.open(io.BytesIO(data))
    assert moving.n_frames == 7
    assert moving.size[0] >= 3 * pictures.SIDE
    for frame in (0, 3, 6):
        arrow = white_arrow(data, frame)
        ends = [(labels[1, frame + 1] == ball).nonzero().float().mean(0).numpy() for ball in (1, 2)]
        for end in ends:
            nearest = np.abs(arrow - (end + 0.5)[:, None]).max(0).min()
            assert nearest < 1.5
        middle, half = np.mean(ends, 0) + 0.5, np.ptp(ends, axis=0) / 2
        assert (np.abs(arrow - middle[:, None]).max(1) < half + 2).all()
    none = rollout_gif(images[:, 1:], predicted, change, seen=4, scene=1)
    assert white_arrow(none, 3).size == 0


def test_arrows_of_small_changes_are_faint_and_collisions_have_rings():
    task = task_of(size=32, test_scenes=20)
    part = next(task.parts("transfer", 9, rollout=True))
    scene = int(part.scenes.collided[:, 1:8].flatten(1).sum(1).argmax())
    images, _ = task.draw_frames(part.scenes)
    predicted = predict(task.config, Oracle(task, splits=("transfer",)), part, images)
    fired = trace_of([(0, 4, 0, 1)], frames=7, slots=9)
    told = predicted._replace(trace=Trace(*(x.expand(20, *x.shape[1:]) for x in fired)))
    change = torch.linspace(0.1, 0.7, 7)[None, :, None].expand(20, 7, 9)
    film = (images[:, 1:], told, change)
    data = rollout_gif(*film, seen=4, scene=scene, loud=0.45, scenes=part.scenes)
    plain = rollout_gif(*film, seen=4, scene=scene)
    assert [white_arrow(data, t).size > 0 for t in range(7)] == [False] * 4 + [True] * 3
    assert all(white_arrow(plain, t).size > 0 for t in range(7))
    hits = part.scenes.collided[scene, 1:8].any(-1)
    assert hits.any()
    for t in range(7):
        ringed = white_pixels(data, t, left=0)
        assert (ringed.size > 0) == bool(hits[t].any())
        places = part.scenes.position[scene, t + 1, hits[t]].flip(-1).numpy() * 3.2
        radii = part.scenes.radius[scene, hits[t]].numpy() * 3.2 + pictures.RING_APART
        for y, x in ringed.T:
            far = np.abs(np.hypot(*(places - (y, x)).T) - radii)
            assert far.min() < 0.6


@pytest.mark.parametrize("rules", [1, 3])
def test_the_firing_figure_names_contexts_of_a_single_rule_and_rules_of_several(rules, monkeypatch):
    written = []
    axes = pytest.importorskip("matplotlib.axes")
    monkeypatch.setattr(
        axes.Axes, "text", lambda self, x, y, text, **how: written.append((x, y, text, how))
    )
    rule, context = torch.tensor([[[0, -1, rules - 1]]]), torch.tensor([[[2, -1, 1]]])
    trace = Trace(rule, context, torch.zeros(1, 1, 3, rules), torch.zeros(1))
    change, collided = torch.tensor([[0.2, 0.0, 0.9]]), torch.zeros(1, 3, 3, dtype=torch.bool)
    assert firing_figure(trace, change, collided, 1, loud=0.5).startswith(b"\x89PNG")
    numbers = {(x, y): (text, how.get("weight")) for x, y, text, how in written if "size" in how}
    shown = ("2", "1") if rules == 1 else ("0", "2")
    assert numbers == {(0.5, 0): (shown[0], None), (0.5, 2): (shown[1], "bold")}
    written.clear()
    firing_figure(trace, change, collided, 1)  # without a threshold
    assert not any("weight" in how for *_, how in written)


def test_collisions_of_balls_are_those_of_the_slots_that_show_them():
    collided = torch.zeros(2, 3, 3, dtype=torch.bool)
    collided[1, 0, 2] = collided[1, 2, 0] = collided[0, 0, 1] = collided[0, 1, 0] = True
    found = collisions_of_slots(collided, torch.tensor([3, -1, 1]), slots=4)
    assert found.nonzero().tolist() == [[1, 1, 3], [1, 3, 1]]  # no slot shows ball 1
