"""Births and deaths: free slots take up what no other slot explains, and let go of what is gone."""

import math

import pytest
import torch

from nps.perception.births import APART, BirthReader
from nps.perception.places import LITTLE, Seen, cell_centres, drift

SIDE, SLOTS = 16, 4
EXTENT = 0.2


@pytest.fixture
def reader():
    torch.manual_seed(0)
    return BirthReader(SLOTS, 6, 5, side=SIDE, extent=EXTENT).eval()


def frame(*spots, radius=0.2):
    """Foreground of discs at these places, everything else is background; features say no more."""
    grid = cell_centres(SIDE)
    far = torch.full((SIDE**2,), 9.0)
    for spot in spots:
        far = torch.minimum(far, (grid - torch.tensor(spot)).norm(dim=-1))
    nothing = torch.zeros(1, SIDE**2, 6)
    return Seen(nothing, nothing, (60.0 * (far - radius)).clamp(-8.0, 8.0)[None])


def follow(reader, frames):
    """Slots and who is present, after each frame."""
    slots, told = reader.begin(frames[0], SLOTS), []
    with torch.no_grad():
        for t, seen in enumerate(frames):
            slots, present = reader.read(seen, slots, first=t == 0)
            told.append((slots[0], present[0]))
            slots = drift(slots, slots)
    return told


def nearest(slots, spot):
    far = (slots[:, :2] - torch.tensor(spot)).norm(dim=-1)
    return far.argmin().item(), far.min().item()


def test_one_slot_for_each_object_and_the_others_are_free(reader):
    (slots, present), *_ = follow(reader, [frame((-0.5, -0.4), (0.5, 0.3))])
    assert present.sum() == 2
    for spot in ((-0.5, -0.4), (0.5, 0.3)):
        m, far = nearest(slots, spot)
        assert present[m]
        assert far < 0.1


def test_an_empty_picture_has_no_slots_that_see(reader):
    told = follow(reader, [frame()] * 3)
    assert not any(present.any() for _, present in told)


def test_a_birth_takes_a_free_slot_and_leaves_the_others(reader):
    first, second = (-0.5, -0.4), (0.5, 0.3)
    told = follow(reader, [frame(first)] * 2 + [frame(first, second)] * 2)
    (before, seen_before), (after, seen_after) = told[1], told[2]
    old, _ = nearest(before, first)
    new, far = nearest(after, second)
    assert not seen_before[new]
    assert seen_after[new]
    assert new != old == nearest(after, first)[0]
    assert far < 0.15
    assert after[new, 2:4].tolist() == [0.0, 0.0]  # one frame does not tell a velocity
    assert seen_after.sum() == told[3][1].sum() == 2
    assert nearest(told[3][0], second)[0] == new


def test_a_death_frees_its_slot_for_the_next_birth(reader):
    """With one slot more than objects at a time, and more objects one after another than slots."""
    spots = [(-0.6, -0.6), (0.6, 0.6), (-0.6, 0.6), (0.6, -0.6), (0.0, 0.0), (-0.6, -0.6)]
    frames = [frame(*spots[i : i + 2]) for i in range(5) for _ in range(2)]
    told = follow(reader, frames)
    for i in range(5):
        slots, present = told[2 * i + 1]
        assert present.sum() == 2
        found = {nearest(slots, spot)[0] for spot in spots[i : i + 2]}
        assert len(found) == 2
        assert all(present[m] for m in found)
    # Who lived on kept its slot.
    for i in range(4):
        at = [nearest(told[t][0], spots[i + 1])[0] for t in (2 * i + 1, 2 * i + 2)]
        assert at[0] == at[1]


def test_reseeding_written_out(reader):
    """Slot by slot: the clearest feature that is not near any slot that is not free."""
    torch.manual_seed(1)
    seen = Seen(*[torch.zeros(3, SIDE**2, 6)] * 2, 3.0 * torch.randn(3, SIDE**2) + 7.0)
    slots, free = torch.rand(3, SLOTS, 6) * 2 - 1, torch.rand(3, SLOTS) < 0.6
    new, born = reader.reseed(seen, slots, free)
    grid = cell_centres(SIDE).tolist()
    for b in range(3):
        taken = [slots[b, m, :2].tolist() for m in range(SLOTS) if not free[b, m]]
        for m in range(SLOTS):
            shares = []
            for n, cell in enumerate(grid):
                share = 1 / (1 + math.exp(seen.background[b, n]))
                for place in taken:
                    near = (math.dist(place, cell) / (APART * EXTENT)) ** 4
                    share *= 1 - math.exp(-near)
                shares.append(share)
            best = max(range(len(grid)), key=shares.__getitem__)
            assert born[b, m] == (free[b, m] and shares[best] > 0.5)
            if born[b, m]:
                taken.append(grid[best])
                torch.testing.assert_close(new[b, m, :2], torch.tensor(grid[best]))
                torch.testing.assert_close(new[b, m, 2:4], torch.zeros(2))
                assert torch.equal(new[b, m, 4:], reader.state)
            else:
                assert torch.equal(new[b, m], slots[b, m])
    assert 0 < born.sum() < free.sum()


def test_in_training_one_slot_starts_in_any_case(reader):
    """Also while everything is taken for background."""
    seen = frame()
    seen = seen._replace(background=torch.full_like(seen.background, 5.0))
    _, born = reader.train().reseed(
        seen, torch.zeros(1, SLOTS, 6), torch.ones(1, SLOTS, dtype=torch.bool), first=True
    )
    assert born.all()  # the others wait
    with torch.no_grad():
        assert reader.shares(seen, reader.begin(seen, SLOTS)).sum() < LITTLE


def test_what_a_newborn_becomes_has_a_gradient(reader):
    reader.zero_grad()
    features = torch.randn(1, 1, SIDE**2, 5)
    seen = reader.look_at(features)[0]._replace(background=frame((0.4, 0.4)).background)
    slots = torch.zeros(1, SLOTS, 6)
    slots[..., 0] = -0.8
    reader.read(seen, slots, first=False).slots.square().sum().backward()
    assert reader.state.grad.abs().sum() > 0
