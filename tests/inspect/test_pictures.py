"""Pictures that go into a log come back as they were, to half a level of grey."""

import json

import numpy as np

from nps.inspect.pictures import LEVELS, pack, unpack


def test_round_trip_through_json_to_half_a_level():
    pictures = np.random.default_rng(0).random((2, 3, 8, 8))
    back = unpack(json.loads(json.dumps(pack(pictures))))
    assert back.shape == pictures.shape
    assert np.abs(back - pictures).max() <= 0.5 / LEVELS + 1e-6
    assert np.array_equal(unpack(pack(back)), back)  # nothing is lost twice


def test_values_beyond_grey_are_black_and_white():
    assert unpack(pack(np.array([[-1.0, 2.0]]))).tolist() == [[0.0, 1.0]]


def test_mostly_black_pictures_are_small():
    pictures = np.zeros((60, 64, 64))
    pictures[:, 20:40, 30:34] = 0.8
    assert len(pack(pictures)["grey"]) < 3_000
