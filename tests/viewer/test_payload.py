"""What travels: arrays, frames in sheets, numbers, and JSON as JavaScript writes it."""

import base64
import dataclasses
import io
import json
import shutil
import subprocess

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.inspect.playback import Playback
from nps.viewer import payload, sheets
from nps.viewer.cache import Cache
from nps.viewer.png import png
from tests.viewer.fake import FakeWorkbench


def unpacked(text: str, kind: str, *shape: int):
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


def opened(image: bytes):
    """The pixels of a PNG as Pillow reads them."""
    pillow = pytest.importorskip("PIL.Image")
    return np.asarray(pillow.open(io.BytesIO(image)))


@pytest.fixture(scope="module")
def playback() -> Playback:
    return FakeWorkbench(slots=4, rules=6, steps=70, stages=2).play(1)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 3), (64, 2, 3), (7, 300), (2, 2, 3)])
def test_pictures_are_read_back_by_another_library(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    np.testing.assert_array_equal(opened(png(pixels)), pixels)
    turned = pixels[::-1, ::-1]  # not contiguous
    np.testing.assert_array_equal(opened(png(turned)), turned)


def test_frames_are_tiled_in_sheets(playback):
    assert sheets.count(playback) == 2
    height, width = playback.true.shape[1:3]
    for t, frame in enumerate(playback.predicted):
        if t % 64 == 0:
            pixels = opened(sheets.sheet(playback, "predicted", t // 64))
            assert pixels.shape == (height * (8 if t == 0 else 1), width * 8, 3)
        row, column = divmod(t % 64, 8)
        tile = pixels[row * height : (row + 1) * height, column * width : (column + 1) * width]
        np.testing.assert_array_equal(tile, frame)
    with pytest.raises(UserError, match="sheet: got 2, expected 0 to 1"):
        sheets.sheet(playback, "true", 2)


def test_masks_have_a_row_for_each_frame_and_a_column_for_each_slot(playback):
    pixels = opened(sheets.sheet(playback, "masks", 1))
    assert pixels.shape == (7 * 12, 4 * 12)
    np.testing.assert_array_equal(pixels[2 * 12 : 3 * 12, 12:24], playback.masks[66, 1])


def test_a_playback_as_json(playback):
    found = json.loads(json.dumps(payload.of_playback(playback), allow_nan=False))
    sizes = {"steps": 70, "stages": 2, "slots": 4, "rules": 6, "height": 48, "width": 48}
    assert found.items() >= sizes.items()
    assert found["mask"] == [12, 12]
    np.testing.assert_array_equal(unpacked(found["rule"], "<i2", 70, 2, 4), playback.record.rule)
    np.testing.assert_array_equal(
        unpacked(found["context"], "<i2", 70, 2, 4), playback.record.context
    )
    np.testing.assert_array_equal(unpacked(found["places"], "<f4", 71, 4, 2), playback.places)
    np.testing.assert_array_equal(unpacked(found["features"], "<f4", 71, 4, 2), playback.features)
    np.testing.assert_allclose(found["error"], playback.error, rtol=1e-5)
    assert found["right"] == playback.right.tolist()
    assert found["actions"] == playback.actions.tolist()
    assert len(found["events"]) == 70


def test_what_a_model_does_not_have_is_null(playback):
    bare = dataclasses.replace(
        playback, record=None, masks=None, places=None, right=None, actions=None, events=(),
        predicted=None, error=np.full(71, np.nan),
    )  # fmt: skip
    found = json.loads(json.dumps(payload.of_playback(bare), allow_nan=False))
    absent = ("rule", "context", "places", "right", "actions", "mask")
    assert all(found[name] is None for name in absent)
    assert found["error"] == [None] * 71
    assert found["events"] == [""] * 70
    assert not found["predicted"]
    assert found["rules"] == found["stages"] == 0


def test_too_many_features_are_cut(playback, monkeypatch):
    monkeypatch.setattr(payload, "MOST_FEATURES", 71 * 4 * 4)
    found = payload.of_playback(playback)
    assert found["feature_names"] == ["row"]
    np.testing.assert_array_equal(
        unpacked(found["features"], "<f4", 71, 4), playback.features[..., 0]
    )


def test_numbers():
    values = [1.0, np.inf, -np.inf, np.nan, 1 / 3]
    assert payload.numbers(np.array(values)) == [1.0, None, None, None, 0.333333]
    nested = {"a": [np.int64(2), np.float32(0.5), np.bool_(True)], 3: np.array([[np.nan]])}
    assert payload.plain(nested) == {"a": [2, 0.5, True], "3": [[None]]}
    assert payload.plain(None) is None


def test_sizes_count_the_arrays(playback):
    bench = FakeWorkbench(slots=4, rules=6, steps=140, stages=2)
    assert payload.size(playback) > playback.true.nbytes + playback.record.rule_scores.nbytes
    assert 1.9 < payload.size(bench.play(1)) / payload.size(playback) < 2.1


def test_the_hash_is_that_of_the_true_frames(playback):
    bench = FakeWorkbench(slots=4, rules=12, steps=70, stages=1)
    assert payload.frames_hash(bench.play(1)) == payload.frames_hash(playback)
    assert payload.frames_hash(bench.play(2)) != payload.frames_hash(playback)


VALUES = [
    *(0, 1, -1, 10**15, 2**53, 1.0, -3.0, 0.5, -0.25, 1 / 3, 1e-5, 1.5e-6, 1e-7, -2.5e-9, 1e20),
    *(1e21, 1.7e300, 123456789.123, 5e-324, 0.1 + 0.2, True, False, None, "", 'a"b\\', "ü→\n"),
    *([], {}, [1, [2.0, {}]], {"b": 1, "a": {"d": [None], "c": 2.50}}),
]


def test_canonical_json_is_what_javascript_writes():
    assert payload.canonical({"b": 2.0, "a": [1e-7, None, "é"]}) == '{"a":[1e-7,null,"é"],"b":2}'
    for value in VALUES:
        assert json.loads(payload.canonical(value)) == value
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine: JavaScript's own JSON is not compared")
    sort = "x=>x&&typeof x=='object'&&!Array.isArray(x)?Object.fromEntries(Object.keys(x).sort()"
    sort = f"const s={sort}.map(k=>[k,s(x[k])])):Array.isArray(x)?x.map(s):x;"
    script = f"{sort}for(const v of {json.dumps(VALUES)})console.log(JSON.stringify(s(v)))"
    done = subprocess.run([node, "-e", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [payload.canonical(value) for value in VALUES]


def test_the_cache_is_bounded_by_bytes():
    made = []

    def make(size):
        made.append(size)
        return b"x" * size

    cache = Cache(100, len)
    for key in (40, 50):
        cache.get(key, lambda key=key: make(key))
    cache.get(40, lambda: make(40))  # used again: the other leaves first
    cache.get(30, lambda: make(30))
    assert (cache.bytes, len(cache), made) == (70, 2, [40, 50, 30])
    cache.get(40, lambda: make(40))
    assert made == [40, 50, 30]
    assert len(cache.get("large", lambda: make(500))) == 500  # alone, but kept
    assert (cache.bytes, len(cache)) == (500, 1)


def test_slots_that_are_left_out_are_listed(playback):
    record = playback.record
    assert payload.empty_slots(record) is None
    calls = list(record.calls)
    calls[1] = dataclasses.replace(calls[1], slot_mask=torch.tensor([True, False, False, True]))
    found = payload.empty_slots(dataclasses.replace(record, calls=tuple(calls)))
    assert found == [[], [1, 2], *[[]] * (len(calls) - 2)]
