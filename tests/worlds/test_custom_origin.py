"""Which environment a file was recorded from, and which files are believed."""

import json

import numpy as np
import pytest

from nps.worlds.custom.origin import KEY, MOST, Origin, origin_of


def written(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_it_is_written_and_read(tmp_path):
    origin = Origin("CartPole-v1", ("gymnasium.wrappers:GrayscaleObservation",), (50, 60))
    assert origin_of(written(tmp_path / "a.npz", **{KEY: origin.array()})) == origin
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file[KEY] = origin.array()
    assert origin_of(tmp_path / "a.h5") == origin


def test_files_that_do_not_say(tmp_path):
    assert origin_of(written(tmp_path / "a.npz", obs=np.zeros(3))) is None
    assert origin_of(tmp_path) is None
    assert origin_of(tmp_path / "none.npz") is None


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"[]",
        b"{}",
        b'{"name": "A", "wrappers": 3, "size": null}',
        b'{"name": "A", "wrappers": [], "size": [1]}',
        b'{"name": "A", "wrappers": [], "size": "ab"}',
        b"[" * 5_000,
        b" " * MOST + b"{}",
        "\udcff".encode(errors="surrogateescape"),
    ],
)
def test_what_is_damaged_says_nothing(tmp_path, stored):
    array = np.frombuffer(stored, np.uint8)
    assert origin_of(written(tmp_path / "a.npz", **{KEY: array})) is None


def test_of_another_type_says_nothing(tmp_path):
    text = json.dumps({"name": "A", "wrappers": [], "size": None})
    assert origin_of(written(tmp_path / "a.npz", **{KEY: np.array(text)})) is None


@pytest.mark.parametrize(
    ("name", "wrappers", "believed"),
    [
        ("Any-v0", (), True),
        ("numpy:Any-v0", (), True),
        ("a_module_of_mine:Any-v0", (), False),
        ("numpy.core:Any-v0", (), True),
        ("Any-v0", ("gymnasium.wrappers:ResizeObservation",), True),
        ("Any-v0", ("os:system",), False),
    ],
)
def test_only_what_is_installed_is_believed(tmp_path, monkeypatch, name, wrappers, believed):
    (tmp_path / "a_module_of_mine.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    path = written(tmp_path / "a.npz", **{KEY: Origin(name, wrappers).array()})
    assert (origin_of(path) is not None) == believed
