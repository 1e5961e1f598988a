"""GIF files: the images as they are, the arrow where it belongs, the times that were asked for."""

import io

import numpy as np
import pytest

from nps.inspect.animations import BAR, GAP, SCALE, Arrow, Scene, gif

Image = pytest.importorskip("PIL.Image")

DARK, BLUE = np.zeros((50, 50, 3), np.uint8), np.full((50, 50, 3), (0, 0, 255), np.uint8)


def frames(data: bytes) -> list:
    animation = Image.open(io.BytesIO(data))
    shown = []
    for n in range(animation.n_frames):
        animation.seek(n)
        shown.append((np.asarray(animation.convert("RGB")), animation.info["duration"]))
    return shown


def test_images_stand_side_by_side_for_their_time():
    data = gif(
        [Scene([DARK, BLUE], [None, None], "one", 500), Scene([BLUE, DARK], [None] * 2, "two", 900)]
    )
    (first, early), (second, late) = frames(data)
    assert (early, late) == (500, 900)
    width = 50 * SCALE
    assert first.shape[1] == 2 * width + GAP
    assert (first[: 50 * SCALE, :width] == 0).all()
    assert (first[: 50 * SCALE, width + GAP :] == (0, 0, 255)).all()
    assert (second[: 50 * SCALE, :width] == (0, 0, 255)).all()


@pytest.mark.parametrize(("right", "colour"), [(True, (255, 255, 255)), (False, (255, 60, 60))])
def test_an_arrow_leads_from_the_context_to_the_pushed_block(right, colour):
    arrow = Arrow((10, 10), (10, 40), right)
    ((shown, _),) = frames(gif([Scene([DARK], [arrow], "", 100)]))
    drawn = (np.abs(shown[: 50 * SCALE].astype(int) - colour).max(-1) < 8).nonzero()
    rows, columns = drawn[0] / SCALE, drawn[1] / SCALE
    assert rows.mean() == pytest.approx(10.5, abs=0.5)
    assert columns.min() == pytest.approx(10.5, abs=1)
    assert columns.max() == pytest.approx(40.5, abs=1)
    head, tail = columns > 37.5, columns < 35
    assert np.ptp(rows[head]) > np.ptp(rows[tail])


def test_titles_and_labels_leave_the_images_where_they_belong():
    labels = {"7": (10.0, 40.0)}
    plain = Scene([BLUE, DARK], [Arrow((10, 10), (10, 40)), None], "text", 100)
    titled = plain._replace(titles=("left", "right"), labels=labels)
    ((first, _),), ((second, _),) = (frames(gif([scene], scale=4)) for scene in (plain, titled))
    assert first.shape == (4 * 50 + BAR, 2 * 4 * 50 + GAP, 3)
    assert second.shape[0] == first.shape[0] + BAR
    below = second[BAR:].astype(int)
    changed = (np.abs(below - first).max(-1) > 30)[: 4 * 50].nonzero()
    rows, columns = changed[0] / 4, (changed[1] - 4 * 50 - GAP) / 4
    assert rows.mean() == pytest.approx(10.5, abs=0.7)  # the label, in the last image
    assert columns.mean() == pytest.approx(40.5, abs=0.7)
    for left in (0, 4 * 50 + GAP):
        assert second[:BAR, left : left + 40].min() < 100  # a title above each image
