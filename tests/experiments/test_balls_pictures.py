"""Moving pictures of bouncing balls: which rule they name, and where their arrow leads."""

import io

import numpy as np
import pytest
import torch

from nps.experiments.balls import pictures
from nps.experiments.balls.evaluation import predict
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
    moving = Image.open(io.BytesIO(data))
    moving.seek(frame)
    shown = np.asarray(moving.convert("L"))
    side, top = pictures.SIDE, 24
    image = shown[top : top + side, side + 8 : 2 * side + 8]
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
