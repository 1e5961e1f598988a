"""Slots with a place: against the same written out, and what has to hold for any features."""

import math

import pytest
import torch

from nps.perception.places import PlacedReader, Seen, cell_centres, drift, in_radii, push

SIDE = 8


def make(**changes):
    torch.manual_seed(0)
    return PlacedReader(4, 6, 5, side=SIDE, **changes).eval()


def seen_of(reader, features):
    return reader.look_at(features[None])[0]


def test_a_round_written_out():
    reader = make(extent=0.5, first_iterations=2)
    with torch.no_grad():
        for p in reader.parameters():
            p.normal_(std=0.5)
    features, slots = torch.randn(2, SIDE**2, 5), torch.randn(2, 3, 6)
    ours = reader.read(seen_of(reader, features), slots, first=False).slots
    x, sigma = reader.norm_features(features), reader.log_window.exp().item()
    for b in range(2):
        scores = torch.zeros(4, SIDE**2)
        scores[3] = reader.background(x[b]).squeeze(-1)
        for m, slot in enumerate(slots[b]):
            query = reader.query(reader.norm_slots(slot)) / 6**0.5
            for n in range(SIDE**2):
                row, column = (2 * i / SIDE - 1 + 1 / SIDE for i in divmod(n, SIDE))
                far = (column - slot[0]) ** 2 + (row - slot[1]) ** 2
                scores[m, n] = query @ reader.key(x[b, n]) - far / (2 * sigma**2)
        share = scores.softmax(0)
        for m, slot in enumerate(slots[b]):
            weights = share[m] / (1 + share[m].sum())
            moved = sum(
                w * (g - slot[:2]) for w, g in zip(weights, cell_centres(SIDE), strict=True)
            )
            update = torch.cat([weights @ reader.value(x[b]), slot[:2] + moved, 10 * moved])
            new = torch.nn.GRUCell.forward(reader.gru, update[None], slot[None])[0]
            new = new + reader.mlp(reader.norm_mlp(new))
            finer = weights.sum() * reader.refine(new)
            moved = moved + finer[:2]
            velocity = slot[2:4] + reader.gain / 0.5 * (moved + finer[2:])
            expected = torch.cat([slot[:2] + moved, velocity, new[4:]])
            torch.testing.assert_close(ours[b, m], expected, rtol=1e-4, atol=1e-5)
    first = reader.read(seen_of(reader, features), slots, first=True).slots  # two rounds
    assert torch.equal(first[..., 2:4], slots[..., 2:4])  # a start says nothing of velocity


def test_a_slot_that_follows_a_spot_has_its_velocity():
    """Features show the foreground alone; the spot moves by the same way in every frame."""
    reader = make(extent=0.6)
    slots, ways = reader.begin(spot_at(-0.5, -0.3), 1), []
    for t in range(5):
        spot = spot_at(-0.5 + 0.15 * t, -0.3 + 0.1 * t)
        slots = reader.read(spot, slots, first=t == 0).slots
        ways.append(0.5 * slots[0, 0, 2:4])
        slots = drift(slots, slots)
    assert ways[0].tolist() == [0.0, 0.0]
    torch.testing.assert_close(ways[-1], torch.tensor([0.15, 0.1]), atol=0.03, rtol=0)


def spot_at(column, row):
    """A spot of foreground, brightest in the middle, that is otherwise without features."""
    far = (cell_centres(SIDE) - torch.tensor([column, row])).norm(dim=-1)
    nothing = torch.zeros(1, SIDE**2, 6)
    return Seen(nothing, nothing, (40.0 * (far - 0.4))[None])


def test_pushed_slots_drift_and_stay_inside():
    slots = torch.randn(3, 4, 7)
    slots[0, 0] = torch.tensor([0.2, -0.9, 0.1, -0.5, 1.0, 2.0, 3.0])
    pushed = push(slots, torch.tensor([0.3, 0.0]).expand(3, 4, 2))
    assert torch.equal(pushed[..., [0, 1, 4, 5, 6]], slots[..., [0, 1, 4, 5, 6]])
    after = drift(pushed, slots)
    torch.testing.assert_close(after[0, 0], torch.tensor([0.4, -1.0, 0.4, -0.5, 1.0, 2.0, 3.0]))
    assert after[..., :2].abs().max() <= 1
    moved = slots.clone()
    moved[..., :2] += 5.0  # a rule cannot take a slot elsewhere
    assert torch.equal(drift(moved, slots), drift(slots, slots))


def test_motion_in_radii_and_back():
    slots = torch.randn(2, 3, 6)
    scaled = in_radii(slots, 0.2)
    torch.testing.assert_close(scaled[..., :4], 5 * slots[..., :4])
    assert torch.equal(scaled[..., 4:], slots[..., 4:])
    torch.testing.assert_close(in_radii(scaled, 1 / 0.2), slots)


def foreground(spots):
    """The background's claim: strong everywhere but in the given cells."""
    claim = torch.full((1, SIDE, SIDE), 6.0)
    for row, column in spots:
        claim[0, row, column] = -6.0
    return claim.flatten(1)


@pytest.mark.parametrize("training", [True, False])
def test_slots_start_on_different_spots_of_the_foreground(training):
    reader = make(extent=0.3).train(training)
    spots = [(1, 1), (1, 6), (6, 1), (5, 5)]
    for _ in range(20):
        places = reader.first_places(foreground(spots), 4)
        cells = {
            (round((y + 1) * 4 - 0.5), round((x + 1) * 4 - 0.5)) for x, y in places[0].tolist()
        }
        assert cells == set(spots)


def test_no_slot_starts_next_to_another_while_others_are_free():
    reader = make(extent=0.3)
    blob = [(1, 1), (1, 2), (2, 1), (2, 2), (6, 6)]
    places = reader.first_places(foreground(blob), 2)[0]
    assert (places[0] - places[1]).norm() > 1.0


@pytest.mark.parametrize("claim", [2.0, 200.0])
def test_a_spare_slot_starts_somewhere_else(claim):
    """More slots than there is foreground, whose background claims what it can."""
    reader = make(extent=0.3)
    places = reader.first_places(foreground([(1, 1), (6, 6)]) * claim / 6, 4)[0]
    assert len({tuple(place) for place in places.tolist()}) == 4


def test_starts_are_repeatable_in_evaluation_and_vary_in_training():
    reader = make()
    claim = torch.randn(3, SIDE**2)
    assert torch.equal(reader.first_places(claim, 5), reader.first_places(claim, 5))
    reader.train()
    assert not torch.equal(reader.first_places(claim, 5), reader.first_places(claim, 5))


def test_a_slot_that_sees_nothing_goes_on_as_it_went():
    reader = make()
    nothing = Seen(
        torch.zeros(1, SIDE**2, 6), torch.zeros(1, SIDE**2, 6), torch.full((1, SIDE**2), 30.0)
    )
    torch.nn.init.normal_(reader.refine.weight)
    slots = torch.randn(1, 3, 6).clamp(-0.9, 0.9)
    after = reader.read(nothing, slots, first=False).slots
    torch.testing.assert_close(after[..., :4], slots[..., :4], atol=1e-6, rtol=0)


def test_a_slot_goes_to_what_it_sees_near_it():
    """One spot of foreground: the near slot moves towards it, the far one does not."""
    reader = make(extent=0.3)
    claim = foreground([(4, 4), (4, 5), (5, 4), (5, 5)])
    seen = Seen(torch.zeros(1, SIDE**2, 6), torch.zeros(1, SIDE**2, 6), claim)
    spot = torch.tensor([0.25, 0.25])
    slots = torch.zeros(1, 2, 6)
    slots[0, 0, :2], slots[0, 1, :2] = torch.tensor([0.1, 0.1]), torch.tensor([-0.9, -0.9])
    after, present = reader.read(seen, slots, first=True)
    assert present.tolist() == [[True, False]]  # the far one sees nothing
    after = after[0, :, :2]
    assert (after[0] - spot).norm() < 0.5 * math.hypot(0.15, 0.15)
    assert (after[1] - slots[0, 1, :2]).norm() < 0.05


def test_slots_are_a_set():
    reader = make()
    seen, slots, order = (
        seen_of(reader, torch.randn(2, SIDE**2, 5)),
        torch.randn(2, 7, 6),
        [3, 1, 6, 0, 2, 5, 4],
    )
    straight, permuted = (reader.read(seen, x, first=True).slots for x in (slots, slots[:, order]))
    torch.testing.assert_close(straight[:, order], permuted)


def test_every_parameter_learns():
    reader = make().train()
    frames = reader.look_at(torch.randn(2, 8, SIDE**2, 5))
    slots = reader.begin(frames[0], 4)
    for t, seen in enumerate(frames):
        slots = reader.read(seen, slots, first=t == 0).slots
    (slots * torch.randn_like(slots)).sum().backward()
    for name, parameter in reader.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"slot_dim": 4}, "slot_dim: got 4"),
        ({"extent": 0.0}, "extent: got"),
        ({"side": 0}, "side: got 0"),
    ],
)
def test_bad_settings_are_named(changes, match):
    sizes = {"slots": 4, "slot_dim": 6, "feature_dim": 5, "side": SIDE}
    with pytest.raises(ValueError, match=match):
        PlacedReader(**{**sizes, **changes})
