"""What can be read of slots of video: places in the picture."""

import numpy as np
import pytest
import torch

from nps.experiments.video_slots import READABLE, as_bytes, middles, own_places, readable, unit
from nps.perception.places import FASTEST


def test_the_middle_of_what_a_slot_draws():
    masks = np.zeros((4, 32, 32), np.float32)
    masks[0, 4:8, 24:32] = 1.0
    masks[1, 2:4, 2:4] = 0.9  # less than four pixels of ink
    masks[2] = 0.4  # nowhere more than half
    masks[3] = 1.0
    places = middles(masks)
    np.testing.assert_allclose(places[0], [6 / 32, 28 / 32])
    assert np.isnan(places[1:3]).all()
    np.testing.assert_allclose(places[3], [0.5, 0.5])


def test_places_and_velocities_are_shares_of_the_picture():
    slots = np.array([[-1.0, 0.5, 1.0, -0.2, 7.0], [1.4, 0.0, 0.0, 0.0, 0.0]])
    found = dict(zip(READABLE, readable(slots)[0], strict=True))
    assert found == pytest.approx(
        {
            "column": 0.0,
            "row": 0.75,
            "velocity across": FASTEST / 2,
            "velocity down": -0.1 * FASTEST,
        }
    )
    np.testing.assert_allclose(own_places(slots), [[0.75, 0.0], [0.5, 1.0]])  # in the picture
    for index in range(4):
        change = readable(slots + unit(index, 5, placed=True)) - readable(slots)
        np.testing.assert_allclose(change, np.tile(np.eye(4)[index], (2, 1)), atol=1e-12)
    np.testing.assert_array_equal(unit(4, 5, placed=False), np.eye(5)[4])


def test_pictures_as_bytes():
    image = torch.tensor([[[0.0]], [[0.5]], [[1.2]]])
    np.testing.assert_array_equal(as_bytes(image), [[[0, 128, 255]]])
