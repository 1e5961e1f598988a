"""Sprites-MOT: ways, births and deaths, bounces, images."""

import math

import pytest
import torch

from nps.worlds.sprites import COLOURS, make_videos, render
from nps.worlds.sprites.flying import CANVAS, MARGIN, SCALE, SIZE, SPEED, STREAMS, STRETCH, WAIT

LOW, HIGH = MARGIN, CANVAS - MARGIN


@pytest.fixture(scope="module")
def straight():
    return make_videos(2 * STREAMS + 3, seed=0, frames=100)


@pytest.fixture(scope="module")
def bouncing():
    return make_videos(STREAMS, seed=1, frames=60, bounce=True)


def lives(videos):
    """(video, number, place) of every sprite -> its frames and positions."""
    found = {}
    present, identity = videos.present.tolist(), videos.identity.tolist()
    position = videos.position.tolist()
    for b, frames in enumerate(present):
        for t, places in enumerate(frames):
            for o, here in enumerate(places):
                assert here == (identity[b][t][o] >= 0)
                if here:
                    found.setdefault((b, identity[b][t][o], o), []).append((t, position[b][t][o]))
    return found


def test_sprites_fly_straight_from_border_to_opposite_border(straight):
    whole = 0
    for seen in lives(straight).values():
        frames, places = [t for t, _ in seen], [p for _, p in seen]
        assert frames == list(range(frames[0], frames[-1] + 1))
        assert all(LOW - 1e-3 <= x <= HIGH + 1e-3 for place in places for x in place)
        if len(places) < 2:
            continue
        way = [after - before for before, after in zip(*places[:2], strict=True)]
        assert math.hypot(*way) == pytest.approx(SPEED, abs=1e-3)
        for k, place in enumerate(places):
            assert place == pytest.approx(
                [x + k * w for x, w in zip(places[0], way, strict=True)], abs=0.01
            )
        if frames[0] == 0 or frames[-1] == 99:
            continue
        whole += 1
        axis = 0 if min(places[0][0] - LOW, HIGH - places[0][0]) < 1e-3 else 1
        assert min(places[0][axis] - LOW, HIGH - places[0][axis]) < 1e-3  # born on a border
        steps = (CANVAS - 2 * MARGIN) / abs(way[axis])
        assert len(places) == math.floor(steps + 1e-6) + 1  # gone at the opposite one
        assert LOW <= places[0][1 - axis] + steps * way[1 - axis] <= HIGH
    assert whole > 500


def test_others_are_born_after_a_wait(straight):
    waits = []
    for places in straight.present.transpose(1, 2).flatten(0, 1).tolist():
        ends = [t for t in range(1, 100) if places[t - 1] and not places[t]]
        starts = [t for t in range(1, 100) if places[t] and not places[t - 1]]
        waits += [next(s for s in starts if s > end) - end for end in ends if starts[-1:] > [end]]
    assert min(waits) == WAIT
    later = torch.tensor(waits) - WAIT
    assert len(later) > 500
    for k in range(4):
        assert (later == k).float().mean() == pytest.approx(0.5 ** (k + 1), abs=0.05)


def test_sizes_shapes_and_colours(straight):
    width, height = straight.size[straight.present].unbind(-1)
    side, ratio = (width * height).sqrt() / SIZE, width / height
    for value, most in ((side, SCALE), (ratio, STRETCH)):
        assert 1 - most - 1e-5 <= value.min() < 1 - 0.9 * most
        assert 1 + 0.9 * most < value.max() <= 1 + most + 1e-5
    for kinds, number in ((straight.shape, 4), (straight.colour, 6)):
        counts = kinds[straight.present].bincount() / straight.present.sum()
        assert len(counts) == number
        assert counts.min() > 0.7 / number


def test_a_stream_goes_on_in_its_next_video(straight):
    before, after = straight.at(slice(STREAMS)), straight.at(slice(STREAMS, 2 * STREAMS))
    last, first = before.position[:, -1], after.position[:, 0]
    moved = (first - last).norm(dim=-1)
    both = before.present[:, -1] & after.present[:, 0] & (moved < 2 * SPEED)
    assert both.float().mean() > 0.5
    torch.testing.assert_close(moved[both], torch.full_like(moved[both], SPEED), rtol=0, atol=1e-3)
    assert (before.colour[:, -1] == after.colour[:, 0])[both].all()


def test_frames_further_on_change_none_before_them():
    plain, longer = (make_videos(STREAMS + 3, 3, frames=4, further=n) for n in (0, 3))
    for before, after in zip(plain, longer, strict=True):
        assert torch.equal(after[:, :4], before)
    # A stream's first video goes on as its second.
    assert torch.equal(longer.position[:3, 4:], plain.position[STREAMS:, :3])
    with pytest.raises(ValueError, match="further: got -1"):
        make_videos(2, 0, further=-1)


def test_the_same_from_the_same_seed():
    one, two, other = (make_videos(5, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one.position, other.position)


def test_bounces_keep_energy_and_momentum(bouncing):
    """Of sprites that live on, over every frame in which none is born or gone."""
    place, present = bouncing.position.double(), bouncing.present
    way = place[:, 1:] - place[:, :-1]
    lives_on = (bouncing.identity[:, 1:] == bouncing.identity[:, :-1]).all(-1)
    hits = bouncing.collided[:, 1:].any(-1).any(-1)
    before, after = way[:, :-1], way[:, 1:]
    calm = lives_on[:, 1:] & lives_on[:, :-1]
    around = calm[:, 1:] & calm[:, :-1] & hits[:, 1:-1] & ~hits[:, :-2] & ~hits[:, 2:]
    assert around.sum() > 20
    here = present[:, 2:-1].unsqueeze(-1)
    earlier, later = (torch.where(here, x, 0.0) for x in (before[:, :-1], after[:, 1:]))
    for law in (lambda v: v.sum(-2), lambda v: v.square().sum((-1, -2))):
        torch.testing.assert_close(law(earlier)[around], law(later)[around], rtol=0, atol=2e-3)


def test_sprites_that_bounce_do_not_cross(bouncing):
    gap = (bouncing.position.unsqueeze(-2) - bouncing.position.unsqueeze(-3)).norm(dim=-1)
    radius = bouncing.size.prod(-1).sqrt() / 2
    free = gap - radius.unsqueeze(-1) - radius.unsqueeze(-2)
    both = bouncing.present.unsqueeze(-1) & bouncing.present.unsqueeze(-2)
    apart = both & (free > 1e-3)
    stays = (bouncing.identity[:, 1:] == bouncing.identity[:, :-1]) & bouncing.present[:, 1:]
    stays = stays.unsqueeze(-1) & stays.unsqueeze(-2) & torch.ones(3, 3, dtype=torch.bool).triu(1)
    assert (free[:, 1:][stays & apart[:, :-1]] > -1e-3).all()
    assert bouncing.collided.any(-1).any(-1).float().mean() > 0.02


def test_images_are_those_of_a_plain_loop():
    videos, size = make_videos(4, seed=5, frames=3), 32
    drawn = render(videos, size=size)
    for b in range(4):
        for t in range(3):
            for row in range(size):
                for column in range(size):
                    label = 0
                    for o in range(3):
                        if not videos.present[b, t, o]:
                            continue
                        middle, extent = videos.position[b, t, o], videos.size[b, t, o] / 2
                        x = ((column + 0.5) * CANVAS / size - middle[0].item()) / extent[0].item()
                        y = ((row + 0.5) * CANVAS / size - middle[1].item()) / extent[1].item()
                        box = abs(x) < 1 and abs(y) < 1
                        shapes = {
                            0: x * x + y * y < 1,
                            1: box,
                            2: box and abs(x) < (1 + y) / 2,
                            3: abs(x) + abs(y) < 1,
                        }
                        if shapes[videos.shape[b, t, o].item()]:
                            label = o + 1
                    assert drawn.labels[b, t, row, column] == label
                    colour = COLOURS[videos.colour[b, t, label - 1]] if label else (0, 0, 0)
                    assert tuple(drawn.images[b, t, row, column].tolist()) == colour
    assert drawn.labels.unique().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("name", "value"), [("count", 0), ("frames", 0), ("sprites", 1.5)])
def test_bad_numbers_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        make_videos(**{"count": 2, "seed": 0, name: value})
