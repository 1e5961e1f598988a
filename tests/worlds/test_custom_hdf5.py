"""HDF5 files whose arrays are not in them: every kind is refused, in one line that names it."""

import numpy as np
import pytest

from nps.worlds.custom import load_episodes
from tests.experiments.test_custom import FLAGS
from tests.test_cli import call
from tests.worlds.test_custom import COUNT, episodes_of, error_of, write

h5py = pytest.importorskip("h5py")
KEYS = ("obs", "action", "episode_end")


def virtual(file, key, array, other):
    layout = h5py.VirtualLayout(array.shape, array.dtype)
    layout[:] = h5py.VirtualSource(other, key, array.shape)
    file.create_virtual_dataset(key, layout)
    return f"a virtual data set of {str(other)!r}"


def external_link(file, key, array, other):
    file[key] = h5py.ExternalLink(other, key)
    return f"a link to {str(other)!r}"


def through_a_group(file, key, array, other):
    """A link inside the file that leads out of it by way of another link."""
    file.require_group("all")[key] = h5py.ExternalLink(other, key)
    file[key] = h5py.SoftLink(f"/all/{key}")
    return f"a link to '/all/{key}'"


def external_storage(file, key, array, other):
    raw = other.with_name(f"{key}.raw")
    raw.write_bytes(np.ascontiguousarray(array).tobytes())
    file.create_dataset(key, array.shape, array.dtype, external=[(str(raw), 0, array.nbytes)])
    return f"stored in {str(raw)!r}"


def never_written(file, key, array, other):
    file.create_dataset(key, array.shape, array.dtype, chunks=True)
    return "never written"


KINDS = [virtual, external_link, through_a_group, external_storage, never_written]


def file_with(kind, key, folder):
    """A file in which one array lies elsewhere, in a file that exists."""
    arrays, other, path = episodes_of(), folder / "other.hdf5", folder / "my.h5"
    write(other, arrays)
    with h5py.File(path, "w") as file:
        for name in arrays.keys() - {key}:
            file[name] = arrays[name]
        said = kind(file, key, arrays[key], other)
    return path, other, said


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_in_the_file_is_refused(tmp_path, kind, key, missing):
    path, other, said = file_with(kind, key, tmp_path)
    if missing:
        other.unlink()
    assert error_of(path) == f"{path}: {key}: {said}, expected an array in the file itself"


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("key", ["obs", "action"])
def test_a_recording_that_was_broken_off_is_refused(tmp_path, key, compression):
    path, arrays = tmp_path / "my.h5", episodes_of()
    whole = arrays[key]
    chunks = (2, *whole.shape[1:])
    with h5py.File(path, "w") as file:
        for name in arrays.keys() - {key}:
            file[name] = arrays[name]
        data = file.create_dataset(
            key, whole.shape, whole.dtype, chunks=chunks, compression=compression
        )
        data[:4] = whole[:4]
    every = -(-COUNT // 2)  # the last chunk may be cut
    said = f"only 2 of {every} chunks written, expected an array in the file itself"
    assert error_of(path) == f"{path}: {key}: {said}"
    with h5py.File(path, "a") as file:
        file[key][4:] = whole[4:]
    write(tmp_path / "whole.npz", arrays)
    assert load_episodes(path).fingerprint() == load_episodes(tmp_path / "whole.npz").fingerprint()


def test_no_training_starts_on_fill_values(tmp_path):
    path, other, _ = file_with(virtual, "obs", tmp_path)
    other.unlink()
    with h5py.File(path) as file:
        assert not file["obs"][()].any()  # what HDF5 itself returns, without a word
    out = tmp_path / "out"
    _, err = call("train", "world-model", f"--data={path}", f"--out={out}", *FLAGS, code=2)
    assert "obs: a virtual data set" in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_other_keys_and_sparse_arrays_do_not_matter(tmp_path):
    arrays = episodes_of()
    write(tmp_path / "other.hdf5", arrays)
    with h5py.File(tmp_path / "my.h5", "w") as file:
        for name in ("obs", "action"):
            file.create_dataset(name, data=arrays[name], chunks=True, compression="gzip")
        file["reward"] = h5py.ExternalLink("nowhere.h5", "reward")
        ends = file.create_dataset("episode_end", COUNT, bool, chunks=(2,))
        ends[np.flatnonzero(arrays["episode_end"])] = True  # chunks of False are not stored
    found = load_episodes(tmp_path / "my.h5")
    assert found.fingerprint() == load_episodes(tmp_path / "other.hdf5").fingerprint()
