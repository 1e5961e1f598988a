"""Films: frames, formats, sizes, and errors."""

import dataclasses
import io

import numpy as np
import pytest

from nps.errors import UserError
from nps.inspect.films import animate, missing
from tests.viewer.fake import CELL, SIDE, FakeWorkbench

Image = pytest.importorskip("PIL.Image")

SIZE = SIDE * CELL


@pytest.fixture(scope="module")
def play():
    return FakeWorkbench(steps=5).play(0)


def frames_of(data):
    film = Image.open(io.BytesIO(data))
    for n in range(film.n_frames):
        film.seek(n)
        yield np.asarray(film.convert("RGB"))


@pytest.mark.parametrize("format", ["gif", "webp", "apng"])
def test_every_frame_is_in_the_film(play, format):
    film = animate(play, format=format)
    found = list(frames_of(film.data))
    assert len(found) == 6
    scale = round(224 / SIZE)
    for t, frame in enumerate(found):
        left = frame[18 : 18 + SIZE * scale, : SIZE * scale]
        middle = left[scale // 2 :: scale, scale // 2 :: scale]
        off = np.abs(middle.astype(int) - play.true[t]).max(-1)
        assert off.max() <= (0 if format != "gif" else 40)
    assert len({frame.tobytes() for frame in found}) == 6
    assert f"data:image/{'png' if format == 'apng' else format};base64" in film._repr_html_()
    assert format in repr(film)


def test_files(play, tmp_path):
    film = animate(play, tmp_path / "film.webp")
    assert (tmp_path / "film.webp").read_bytes() == film.data
    assert film.format == "webp"
    assert animate(play, tmp_path / "film.png").format == "apng"
    assert animate(play, tmp_path / "film.dat", "gif").format == "gif"
    assert film.save(tmp_path / "again.webp").read_bytes() == film.data


def test_speed(play):
    slow, fast = (Image.open(io.BytesIO(animate(play, fps=fps).data)) for fps in (2, 10))
    assert (slow.info["duration"], fast.info["duration"]) == (500, 100)


def test_playbacks_that_have_less_to_show(play):
    bare = dataclasses.replace(
        play, predicted=None, right=None, places=None, masks=None, record=None, events=()
    )
    assert len(list(frames_of(animate(bare).data))) == 6
    lost = dataclasses.replace(play, places=np.full_like(play.places, np.nan))
    assert len(list(frames_of(animate(lost).data))) == 6


def test_what_cannot_be_made(play, tmp_path):
    with pytest.raises(UserError, match="format: got 'avi', expected one of gif, webp, apng, mp4"):
        animate(play, tmp_path / "film.avi")
    with pytest.raises(UserError, match="fps: got 0"):
        animate(play, fps=0)
    long = dataclasses.replace(play, true=np.zeros((3_000, 2, 2, 3), np.uint8))
    with pytest.raises(UserError, match="3000 frames"):
        animate(long)
    assert list(tmp_path.iterdir()) == []


def test_mp4(play, monkeypatch):
    if missing("mp4"):
        with pytest.raises(UserError, match="mp4 needs ffmpeg"):
            animate(play, format="mp4")
    else:
        assert animate(play, format="mp4").data[4:8] == b"ftyp"
    monkeypatch.setattr("nps.inspect.films._ffmpeg", lambda: "/bin/false")
    assert missing("mp4") is None
    with pytest.raises(RuntimeError, match="ffmpeg"):
        animate(play, format="mp4")


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("nps.inspect.films._ffmpeg", lambda: None)
    assert missing("gif") is None
    assert missing("mp4") == "mp4 needs ffmpeg: install it, or pip install imageio-ffmpeg"
    monkeypatch.setattr("nps.inspect.films.find_spec", lambda name: None)
    assert "films need Pillow: pip install" in missing("gif")
