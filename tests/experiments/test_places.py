"""Places of slots: none for those that cannot be told apart."""

import numpy as np

from nps.experiments.world_models.places import if_any, told_apart


def test_slots_at_one_place_have_none():
    places = np.array([
        [[0.1, 0.3], [0.1, 0.305], [0.7, 0.3], [np.nan, np.nan]],
        [[0.1, 0.3], [0.1, 0.35], [0.7, 0.3], [0.2, 0.2]],
    ])  # fmt: skip
    found = told_apart(places)
    assert np.isnan(found[0, [0, 1, 3]]).all()
    np.testing.assert_array_equal(found[0, 2], places[0, 2])
    np.testing.assert_array_equal(found[1], places[1])


def test_no_place_at_all():
    same = np.full((4, 3, 2), 0.25)
    assert if_any(told_apart(same)) is None
    assert if_any(same) is same
