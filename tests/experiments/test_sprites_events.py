"""What truly happens to sprites, and which slot shows them, as the workbench says."""

import re

import torch

from nps.experiments.sprites.workbench import happened, slots_of_sprites
from nps.worlds.sprites import Videos, make_videos, render


def test_events_are_births_deaths_and_bounces():
    """Where every sprite has the slot of its own number, events are those of the states."""
    videos = make_videos(20, 0, frames=30, bounce=True)
    told = dict.fromkeys(("birth", "death", "bounce"), 0)
    for number in range(20):
        one = Videos(*(part[number] for part in videos))
        identity, collided = one.identity.tolist(), one.collided.tolist()
        for step in range(29):
            event = happened(one, [str(n) for n in range(100)], step)
            before, after = (set(identity[t]) - {-1} for t in (step, step + 1))
            said = {kind: re.findall(rf"{kind} of ([\d and]+)", event) for kind in told}
            assert set(map(int, said["birth"])) == after - before
            assert set(map(int, said["death"])) == before - after
            pairs = {frozenset(map(int, pair.split(" and "))) for pair in said["bounce"]}
            assert pairs == {
                frozenset((identity[step][i], identity[step][j]))
                for i, row in enumerate(collided[step + 1])
                for j, hit in enumerate(row)
                if hit
            }
            for kind, found in said.items():
                told[kind] += len(found)
    assert min(told.values()) > 0


def test_a_sprite_has_the_slot_that_covers_it():
    one = make_videos(3, 0, frames=40).at(slice(2, 3))
    labels, identity = render(one, size=32).labels[0].long(), one.identity[0]
    sprites = 1 + int(identity.max())
    perfect = torch.tensor([4, 2, 0, 1])[labels]  # the places' slots; 4 is the background
    found = slots_of_sprites(labels, perfect, identity, sprites, 5).tolist()
    there = [n for n in range(sprites) if (identity == n).any()]
    assert len(there) > 3
    for number in range(sprites):
        place = number % 3
        assert found[number] == ((2, 0, 1)[place] if number in there else -1)
    upper = torch.arange(32)[:, None] < 16
    half = torch.where(upper, torch.where(labels > 0, 3, 4), perfect)  # another slot's
    found = slots_of_sprites(labels, half, identity, sprites, 5).tolist()
    assert set(found) <= {-1, 0, 1, 2, 3}
    nothing = torch.zeros_like(labels)  # one slot draws everything
    assert slots_of_sprites(labels, nothing, identity, sprites, 5).tolist() == [-1] * sprites
