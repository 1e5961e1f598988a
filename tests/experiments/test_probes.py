"""Linear probes: what they find, that chance is chance, and the change that raises a feature."""

import numpy as np
import pytest

from nps.experiments.world_models.probes import Probe, SlotProbes
from nps.experiments.world_models.workbench import centres


def some_slots(noise=0.0, count=600):
    """Slots that vary in 2 of 5 directions, and values that are linear in them."""
    draw = np.random.default_rng(0)
    values = draw.uniform(size=(count, 3, 2))
    slots = values @ draw.normal(size=(2, 5)) + 3
    return slots + noise * draw.normal(size=slots.shape), values


def test_what_is_linear_is_read():
    slots, values = some_slots()
    probe = Probe.fit(("row", "column"), slots, values)
    assert probe.usable
    assert probe.r2 == pytest.approx([1, 1], abs=1e-4)
    assert probe.read(slots) == pytest.approx(values, abs=1e-2)
    assert (np.abs(probe.chance) < 0.15).all()


def test_a_direction_raises_its_feature_by_one_and_no_other():
    slots, values = some_slots(noise=0.1)
    probe = Probe.fit(("row", "column"), slots, values)
    for number, name in enumerate(probe.names):
        change = probe.read(slots + probe.direction(name)) - probe.read(slots)
        assert change == pytest.approx(np.broadcast_to(np.eye(2)[number], change.shape))


def test_a_direction_stays_where_slots_are():
    """The plain pseudo-inverse would leave the plane that slots with equal noise vary around."""
    draw = np.random.default_rng(1)
    value = draw.normal(size=(2_000, 1, 1))
    wide = value + draw.normal(size=value.shape)
    probe = Probe.fit(("a",), np.concatenate([wide, wide - value], -1), value)
    assert probe.r2 == pytest.approx([1], abs=1e-3)
    # a = x - y. Where a is larger by 1, x is so and y is not; the pseudo-inverse is (.5, -.5).
    assert probe.direction("a") == pytest.approx([1, 0], abs=0.1)


def test_slots_that_show_the_same_in_their_own_ways_have_their_own_probes():
    slots, values = some_slots()
    slots[:, 1] *= -1
    slots[:, 2] = slots[:, 2, ::-1]
    assert not Probe.fit(("a", "b"), slots, values).usable
    probes = SlotProbes.fit(("a", "b"), slots, values)
    assert probes.usable
    assert probes.r2 == pytest.approx([1, 1], abs=1e-4)
    assert (probes.chance < 0.5).all()
    assert probes.read(slots) == pytest.approx(values, abs=2e-2)
    moved = slots.copy()
    moved[:, 1] += probes.slot_direction(1, "b")
    change = probes.read(moved) - probes.read(slots)
    assert change[:, 1] == pytest.approx(np.tile([0, 1], (len(slots), 1)))
    assert not change[:, [0, 2]].any()


def test_a_direction_for_all_slots_does_what_one_change_can():
    draw = np.random.default_rng(0)
    values = draw.uniform(size=(600, 3, 1))
    slots = values * draw.normal(size=(3, 5)) + 0.01 * draw.normal(size=(600, 3, 5))
    probes = SlotProbes.fit(("a",), slots, values)  # three equations, five unknowns
    change = probes.read(slots + probes.direction("a")) - probes.read(slots)
    assert change == pytest.approx(np.ones_like(change))


def test_noise_has_no_probe():
    draw = np.random.default_rng(0)
    probe = Probe.fit(("a",), draw.normal(size=(500, 2, 4)), draw.normal(size=(500, 2, 1)))
    assert not probe.usable
    assert probe.r2[0] < 0.1


def test_slots_without_values_do_not_count():
    slots, values = some_slots()
    whole = Probe.fit(("a", "b"), slots[:, :2], values[:, :2])
    values[:, 2] = np.nan
    assert Probe.fit(("a", "b"), slots, values).weight == pytest.approx(whole.weight)
    nothing = Probe.fit(("a", "b"), slots, np.full_like(values, np.nan))
    assert not nothing.usable
    assert not nothing.read(slots).any()


def test_values_that_never_change_have_no_probe():
    slots, values = some_slots()
    assert not Probe.fit(("a", "b"), slots, np.ones_like(values)).usable


def test_the_centre_of_a_map():
    import torch

    maps = torch.zeros(1, 3, 4, 8)
    maps[0, 0, 1, 6] = 1.0
    maps[0, 1, 0, :2] = 0.5
    assert centres(maps)[0, :2] == pytest.approx(np.array([[1.5 / 4, 6.5 / 8], [0.5 / 4, 1 / 8]]))
    assert np.isnan(centres(maps)[0, 2]).all()
