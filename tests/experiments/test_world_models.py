"""What world models share: episodes of unequal lengths, equal images, tables of what fires."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from nps.experiments import atari, blocks
from nps.experiments.atari import report as atari_report
from nps.experiments.blocks import report as blocks_report
from nps.experiments.world_models import inspect
from nps.experiments.world_models.episodes import numbered, transitions
from nps.experiments.world_models.pictures import SPACE, rollout_picture
from nps.experiments.world_models.task import settle
from nps.inspect.grids import BORDER, RED
from nps.inspect.rollouts import PredictedImages
from nps.models.contrastive import Moments, negative_moments
from nps.models.world_model import ContinuousActions
from nps.perception.extractors import Norm
from nps.rules import Trace


@dataclass
class Data:
    action: Tensor
    lengths: Tensor


@pytest.mark.parametrize(("experiment", "report"), [(atari, atari_report), (blocks, blocks_report)])
def test_every_preset_has_a_name_of_its_own_in_the_tables(experiment, report):
    names = {name.removesuffix("-float32") for name in report.LABELS}  # a flag, not a preset
    assert names == set(experiment.PRESETS)
    assert len(set(report.LABELS.values())) == len(report.LABELS)


def test_transitions_end_with_their_episode():
    data = Data(torch.zeros(3, 4), torch.tensor([5, 2, 3]))
    found = transitions(data)
    assert found.episode.tolist() == [0, 0, 0, 0, 1, 2, 2]
    assert found.time.tolist() == [0, 1, 2, 3, 0, 0, 1]


def test_negatives_stay_inside_episodes_of_unequal_lengths():
    lengths = torch.tensor([2, 7, 4])
    episode = torch.arange(600) % 3
    time = torch.arange(600) // 3 % lengths[episode]
    now, noise = Moments(episode, time), torch.rand(600, 2)
    same = negative_moments("episode", now, noise, 3, lengths)
    assert torch.equal(same.episode, episode[:300])
    assert (same.time != time[:300]).all()
    for number, length in enumerate(lengths.tolist()):
        assert set(same.time[same.episode == number].tolist()) == set(range(length))
    aligned = negative_moments("time-aligned", now, noise, 3, lengths)
    assert (aligned.episode != episode).all()
    late = time >= lengths[aligned.episode]
    assert 0 < late.sum() < 600
    assert torch.equal(aligned.time[~late], time[~late])
    assert torch.equal(aligned.time[late], lengths[aligned.episode][late] - 1)


def test_equal_lengths_are_the_same_as_one_length():
    now = Moments(torch.arange(40) % 5, torch.arange(40) % 6)
    noise = torch.rand(40, 2)
    for kind in ("episode", "time-aligned"):
        one = negative_moments(kind, now, noise, 5, 7)
        many = negative_moments(kind, now, noise, 5, torch.full((5,), 7))
        assert all(map(torch.equal, one, many))


def test_numbers_are_equal_for_equal_images_only():
    images = torch.randint(2, (50, 2, 2), dtype=torch.uint8)
    number = numbered(images)
    same = (images[:, None] == images).flatten(2).all(-1)
    assert torch.equal(number[:, None] == number, same)


def test_every_slot_gets_the_vector():
    action = torch.randn(4, 5, 2)
    encoded = ContinuousActions(2, 3)(action)
    assert encoded.shape == (4, 5, 3, 2)
    assert all(torch.equal(encoded[:, :, m], action) for m in range(3))
    with pytest.raises(ValueError, match="dim: got 0"):
        ContinuousActions(0, 3)


def test_what_fired_is_counted():
    """Two transitions, two stages, three slots: by hand."""
    rule = torch.tensor([[[0, -1, -1], [-1, -1, 1]], [[-1, 1, -1], [-1, 1, -1]]])
    context = torch.tensor([[[2, -1, -1], [-1, -1, 2]], [[-1, 0, -1], [-1, 1, -1]]])
    trace = Trace(rule, context, torch.zeros(2, 2, 3, 2), torch.zeros(2, 2, 3, 3))
    slots, rules, contexts = inspect.what_fired(trace).values()
    assert {k: v.tolist() for k, v in slots.items()} == {
        "slot 0": [1, 0], "slot 1": [0, 1], "slot 2": [1, 0],
    }  # fmt: skip
    assert {k: v.tolist() for k, v in rules.items()} == {"rule 0": [0.5, 0], "rule 1": [0.5, 1]}
    assert {k: v.tolist() for k, v in contexts.items()} == {
        "context 0": [0, 0.5], "context 1": [0, 0.5], "context 2": [1, 0],
    }  # fmt: skip
    assert inspect.shares(slots, torch.tensor([True, False])) == ["100", "0", "100"]
    assert inspect.shares(slots, torch.tensor([False, False])) == ["–", "–", "–"]


class Bright(nn.Module):
    """A world model's encoder alone: images of 2 x 2 pixels, normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = Norm(3, slope=1.0)
        self.other = nn.Dropout(0.5)

    def encode(self, images: Tensor) -> Tensor:
        return self.other(self.norm(images))


def test_settled_statistics_are_those_of_the_images():
    """As in one pass of training, whatever was there before; the model stays in evaluation."""
    model, images = Bright(), torch.rand(30, 2, 2, 3) + 5.0
    with torch.no_grad():
        model.norm.running_mean += 40.0
    lagging = model.eval().encode(images).detach()
    settle(model, images)
    assert not any(module.training for module in model.modules())
    assert model.norm.momentum == 0.1
    torch.testing.assert_close(model.norm.running_mean, images.mean((0, 1, 2)))
    torch.testing.assert_close(model.norm.running_var, images.flatten(0, 2).var(0))
    settled = model.encode(images)
    torch.testing.assert_close(settled.mean((0, 1, 2)), torch.zeros(3), atol=1e-5, rtol=0)
    assert lagging.mean() < -10


def test_wrong_predictions_are_framed_in_red():
    """True images above predicted ones; the first is given, and nothing stands below it."""
    true = torch.randint(250, (2, 4, 5, 6, 3), dtype=torch.uint8)
    right = torch.tensor([[True, False, True], [False, True, True]])
    picture = rollout_picture(PredictedImages(true, true[:, 1:].flip(1), right))
    height, width = 5 + 2 * BORDER, 6 + 2 * BORDER
    assert picture.shape == (2 * (2 * height + SPACE), 4 * width, 3)
    for e in range(2):
        for t in range(4):
            top, left = e * (2 * height + SPACE), t * width
            above = picture[top : top + height, left : left + width]
            below = picture[top + height : top + 2 * height, left : left + width]
            inside = (slice(BORDER, -BORDER), slice(BORDER, -BORDER))
            assert (above[inside] == true[e, t].numpy()).all()
            assert tuple(above[0, 0]) == (255, 255, 255)
            if t == 0:
                assert (below == 255).all()
            else:
                assert (below[inside] == true[e, 4 - t].numpy()).all()
                assert tuple(below[0, 0]) == ((255, 255, 255) if right[e, t - 1] else RED)
