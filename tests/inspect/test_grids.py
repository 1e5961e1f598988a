"""Pictures as arrays: every pixel by a loop."""

import numpy as np
import pytest

from nps.inspect.grids import (
    BORDER,
    CELL,
    DARKER,
    GREY,
    LIGHTER,
    RED,
    difference,
    grey,
    grid,
    to_bytes,
    usage_picture,
)


def test_a_grid_is_that_of_a_loop():
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (2, 3, 4, 5, 3), dtype=np.uint8)
    wrong = np.array([[True, False, False], [False, True, True]])
    picture = grid(images, wrong)
    height, width = 4 + 2 * BORDER, 5 + 2 * BORDER
    assert picture.shape == (2 * height, 3 * width, 3)
    for y in range(picture.shape[0]):
        for x in range(picture.shape[1]):
            (r, i), (c, j) = divmod(y, height), divmod(x, width)
            inside = 0 <= i - BORDER < 4 and 0 <= j - BORDER < 5
            border = RED if wrong[r, c] else (255, 255, 255)
            expected = images[r, c, i - BORDER, j - BORDER] if inside else border
            assert tuple(picture[y, x]) == tuple(expected)


def test_a_table_is_darker_where_a_rule_is_used_more():
    picture = usage_picture([[0, 4, 0], [1, 1, 2], [0, 0, 0]])
    size = CELL + 2 * BORDER
    assert picture.shape == (3 * size, 3 * size, 3)
    middles = picture[size // 2 :: size, size // 2 :: size, 0]
    assert middles.tolist() == [[255, 0, 255], [191, 191, 128], [255, 255, 255]]
    assert (picture[::size] == GREY).all()


def test_floats_become_bytes_and_bytes_stay():
    assert to_bytes(np.array([-1.0, 0.0, 0.5, 1.0, 7.0])).tolist() == [0, 0, 128, 255, 255]
    images = np.arange(6, dtype=np.uint8)
    assert to_bytes(images) is images
    assert grey(np.array([[0.0, 1.0]])).tolist() == [[[0] * 3, [255] * 3]]


def test_a_difference_is_as_strong_as_its_largest_change():
    before = grey(np.array([[0.5, 0.5, 0.5, 0.5]]))
    after = grey(np.array([[0.5, 0.9, 0.1, 0.7]]))
    found = difference(before, after)
    assert found[0, 0].tolist() == [255, 255, 255]
    assert found[0, 1].tolist() == LIGHTER.tolist()
    assert found[0, 2] == pytest.approx(DARKER, abs=3)
    assert found[0, 3] == pytest.approx((255 + LIGHTER) / 2, abs=4)
    assert difference(before, before) is None
    assert difference(before, before + np.uint8(3)) is None
