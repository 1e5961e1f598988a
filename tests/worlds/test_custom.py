"""The user's own episodes: what is read, and every way in which a file can be wrong."""

import sys
import zipfile

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.worlds.custom import load_episodes

LENGTHS = (4, 2, 6)
COUNT = sum(LENGTHS)


def episodes_of(lengths=LENGTHS, seed=0, **changes):
    """Arrays in the layout of docs/guides/data.md; a change of None leaves a key out."""
    draw = np.random.default_rng(seed)
    count = sum(lengths)
    ends = np.zeros(count, bool)
    ends[np.cumsum(lengths) - 1] = True
    arrays = {
        "obs": draw.integers(0, 256, (count, 8, 9, 3), dtype=np.uint8),
        "action": draw.integers(0, 5, count),
        "episode_end": ends,
        "reward": np.zeros(count),
    }
    arrays.update(changes)
    return {key: array for key, array in arrays.items() if array is not None}


def write(path, arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            for key, array in arrays.items():
                file[key] = array
    return path


@pytest.fixture(params=[".npz", ".h5", ".hdf5"])
def path(tmp_path, request):
    return tmp_path / f"my{request.param}"


def test_reads_what_was_written(path):
    arrays = episodes_of()
    found = load_episodes(write(path, arrays))
    assert found.obs.dtype == torch.uint8
    assert np.array_equal(found.obs.numpy(), arrays["obs"])
    assert np.array_equal(found.action.numpy(), arrays["action"])
    assert found.action.dtype == torch.int64
    assert found.episode.tolist() == [0] * 4 + [1] * 2 + [2] * 6
    used = np.delete(arrays["action"], [3, 5, 11])  # the last of an episode leads nowhere
    assert (found.discrete, found.action_size) == (True, used.max() + 1)


def test_channels_first_floats_and_continuous_actions(path):
    obs = np.random.default_rng(0).random((COUNT, 3, 8, 9))
    action = np.random.default_rng(1).normal(size=(COUNT, 2))
    found = load_episodes(write(path, episodes_of(obs=obs, action=action)))
    torch.testing.assert_close(found.obs, torch.from_numpy(obs).movedim(1, -1).float())
    torch.testing.assert_close(found.action, torch.from_numpy(action).float())
    assert (found.discrete, found.action_size) == (False, 2)


def test_windows_never_cross_an_end(path):
    found = load_episodes(write(path, episodes_of()))
    for steps in range(1, 6):
        expected, first = [], 0
        for length in LENGTHS:
            for start in range(first, first + length - steps):
                expected.append(list(range(start, start + steps + 1)))
            first += length
        assert found.windows(steps).tolist() == expected
    for steps in (0, 6):
        with pytest.raises(UserError, match=f"steps: got {steps}, expected 1 to 5"):
            found.windows(steps)


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    files = {name: episodes_of((3,), seed, episode_end=None) for seed, name in enumerate("abcdefg")}
    files["d"] = episodes_of((2, 2), seed=9)
    for name in "fbgdaec":
        write(tmp_path / f"{name}.npz", files[name])
    (tmp_path / "notes.txt").write_text("not an episode")
    (tmp_path / ".c.npz").write_text("half-written")
    found = load_episodes(str(tmp_path))
    assert found.episode.bincount().tolist() == [3, 3, 3, 2, 2, 3, 3, 3]
    expected = np.concatenate([files[name]["obs"] for name in sorted(files)])
    assert np.array_equal(found.obs.numpy(), expected)
    assert found.to("cpu").windows()[:4].tolist() == [[0, 1], [1, 2], [3, 4], [4, 5]]


def test_stacked_frames_are_the_ones_before_in_their_episode(path):
    arrays = episodes_of()
    write(path, arrays)
    assert torch.equal(load_episodes(path, frames=1).obs, load_episodes(path).obs)
    for frames in (2, 3, 5):
        found = load_episodes(path, frames=frames)
        assert found.obs.shape == (COUNT, 8, 9, 3 * frames)
        n = 0
        for length in LENGTHS:
            for time in range(length):
                before = [n - min(back, time) for back in range(frames)]  # repeats the first
                expected = np.concatenate([arrays["obs"][at] for at in before], -1)
                assert np.array_equal(found.obs[n].numpy(), expected)
                n += 1
        assert torch.equal(found.action, load_episodes(path).action)


@pytest.mark.parametrize("frames", [0, -1, True, 1.5, "2"])
def test_frames_that_are_no_number(tmp_path, frames):
    write(tmp_path / "a.npz", episodes_of())
    said = f"frames: got {frames!r}, expected an integer from 1"
    assert error_of(tmp_path / "a.npz", frames=frames) == said


def test_the_fingerprint_stays_what_older_runs_have_stored(tmp_path):
    obs = (np.arange(6 * 4 * 5 * 3) % 251).reshape(6, 4, 5, 3).astype(np.uint8)
    rows = np.arange(6)
    np.savez(tmp_path / "a.npz", obs=obs, action=rows % 3, episode_end=np.isin(rows, (2, 5)))
    assert load_episodes(tmp_path / "a.npz").fingerprint() == "d9d89d82d269e962"


def test_channels_can_be_given(tmp_path):
    square = write(tmp_path / "a.npz", episodes_of(obs=np.zeros((COUNT, 3, 5, 3), np.uint8)))
    assert error_of(square) == (
        f"{square}: obs: the position of the channels is ambiguous in shape (12, 3, 5, 3); give "
        "channels='first' or 'last' (--channels first or last)"
    )
    assert load_episodes(square, channels="first").obs.shape == (COUNT, 5, 3, 3)
    assert load_episodes(square, channels="last").obs.shape == (COUNT, 3, 5, 3)
    with pytest.raises(UserError, match="channels: got 'middle', expected first or last"):
        load_episodes(square, channels="middle")


def nan_in_row_3(*shape):
    array = np.zeros(shape, np.float32)
    array[3, ..., -1] = np.nan
    return array


def end_at(*frames, count=COUNT):
    return np.isin(np.arange(count), frames)


IMAGES = np.zeros((COUNT, 8, 9, 3), np.uint8)
BROKEN = {
    "no obs; the file has action, episode_end, reward": {"obs": None},
    "no action; the file has": {"action": None},
    "no episode_end; the file has": {"episode_end": None},
    "obs: got shape (12, 8, 9), expected (N, H, W, C)": {"obs": IMAGES[..., 0]},
    "obs: got shape (12, 8, 0, 3), expected": {"obs": IMAGES[:, :, :0]},
    "obs: got shape (), expected": {"obs": np.uint8(1)},
    "obs: got shape (0, 8, 9, 3), expected (N, H, W, C) or (N, C, H, W), not empty": {
        "obs": IMAGES[:0]
    },
    "obs: got int64, expected uint8 or floating point": {"obs": IMAGES.astype(np.int64)},
    "obs: got values from 7 to 7, expected 0 to 1, or bytes": {
        "obs": np.full((COUNT, 8, 9, 3), 7.0)
    },
    "obs: got nan in row 3, expected finite numbers": {"obs": nan_in_row_3(COUNT, 8, 9, 3)},
    "action: got nan in row 3, expected finite numbers": {"action": nan_in_row_3(COUNT, 2)},
    "action: got inf in row 0, expected finite": {"action": np.full((COUNT, 2), 1e300)},
    "action: got -1e+30 in row 5, of episode 1, expected numbers from -1e+06 to 1e+06": {
        "action": np.where(np.arange(COUNT) == 5, -1e30, 1e6)[:, None]
    },
    "action: got 11 rows for 12 frames of obs, expected one per frame": {
        "action": np.zeros(COUNT - 1, int)
    },
    "action: got -1, expected integers from 0": {"action": np.full(COUNT, -1)},
    "action: got int64 of shape (12, 1), expected integers (N,)": {
        "action": np.zeros((COUNT, 1), int)
    },
    "action: got float64 of shape (12,), expected integers (N,)": {"action": np.zeros(COUNT)},
    "action: got float64 of shape (12, 0), expected": {"action": np.zeros((COUNT, 0))},
    "action: got bool of shape (12,), expected": {"action": np.zeros(COUNT, bool)},
    "episode_end: got 13 rows for 12 frames": {"episode_end": end_at(12, count=13)},
    "episode_end: got False for the last frame, 11, expected True": {"episode_end": end_at(3, 7)},
    "episode_end: the episode that ends with frame 8 has one frame": {
        "episode_end": end_at(7, 8, 11)
    },
    "episode_end: the episode that ends with frame 0 has one frame": {"episode_end": end_at(0, 11)},
    "episode_end: got 4, expected True or False": {"episode_end": np.full(COUNT, 4)},
    "episode_end: got float64 of shape (12,), expected booleans": {"episode_end": np.ones(COUNT)},
}


def error_of(path, **options):
    with pytest.raises(UserError) as error:
        load_episodes(path, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("message", BROKEN)
def test_broken_files_are_reported_by_file_and_key(path, message):
    write(path, episodes_of(**BROKEN[message]))
    assert error_of(path).startswith(f"{path}: {message}")


def test_what_a_file_has_is_reported_in_one_line(path):
    write(path, {f"{n:03}": np.zeros(1) for n in range(100)})
    assert error_of(path).endswith(
        "no obs; the file has 000, 001, 002, 003, 004, 005, 006, 007, 92 more"
    )
    write(path, {"two\nlines": np.zeros(1)})
    assert error_of(path).endswith("no obs; the file has 'two\\nlines'")
    write(path, {})
    assert error_of(path).endswith("no obs; the file has nothing")


DIFFERENT = {
    "obs: rows are uint8 (7, 9, 3), those of a.npz uint8 (8, 9, 3)": {"obs": IMAGES[:, 1:]},
    "obs: rows are float32 (8, 9, 3), those of a.npz uint8 (8, 9, 3)": {
        "obs": IMAGES.astype(np.float32)
    },
    "action: rows are float32 (2,), those of a.npz int64 ()": {"action": np.zeros((COUNT, 2))},
}


@pytest.mark.parametrize("message", DIFFERENT)
def test_files_of_a_folder_must_be_alike(tmp_path, message):
    write(tmp_path / "a.npz", episodes_of())
    write(tmp_path / "b.npz", episodes_of(**DIFFERENT[message]))
    assert error_of(tmp_path) == f"{tmp_path / 'b.npz'}: {message}"


def test_one_frame_alone_is_no_episode(tmp_path):
    write(tmp_path / "a.npz", episodes_of((1,), episode_end=None))
    assert "a.npz: episode_end: the episode that ends with frame 0 has one" in error_of(tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 0.3, 0.9, 0.999])
def test_truncated_files(path, keep):
    write(path, episodes_of())
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(keep * len(data))])
    assert error_of(path).startswith(f"{path}: ")


def test_flipped_bytes_of_a_zip_are_seen(tmp_path):
    path = write(tmp_path / "my.npz", episodes_of())
    data = bytearray(path.read_bytes())
    data[1000] ^= 0xFF  # inside obs
    path.write_bytes(data)
    assert "my.npz: cannot be read (Bad CRC-32" in error_of(path)


def test_no_pickle_is_read(tmp_path):
    path = tmp_path / "my.npz"
    np.savez(path, **episodes_of(action=np.array([print] * COUNT, object)))
    assert "my.npz: cannot be read (Object arrays cannot be loaded" in error_of(path)
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(path)
    assert error_of(path) == f"{path}: truncated, or not a .npz file"


@pytest.mark.parametrize("key", ["obs", "action", "episode_end"])
@pytest.mark.parametrize("suffix", ["", ".npy"])
def test_a_member_in_the_place_of_an_array(tmp_path, key, suffix):
    arrays = episodes_of()
    path = write(tmp_path / "my.npz", {name: arrays[name] for name in arrays if name != key})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{key}{suffix}", b"no array")
    assert error_of(path) == f"{path}: {key}: not in numpy's format, expected an array"


def test_a_group_in_the_place_of_an_array(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "my.h5", "w") as file:
        file.create_group("obs")
        file["action"] = file["episode_end"] = np.zeros(3, int)
    assert error_of(tmp_path / "my.h5") == f"{tmp_path / 'my.h5'}: obs: a group, expected an array"


def test_paths_that_are_not_there(tmp_path):
    assert error_of(tmp_path / "my.npz") == f"{tmp_path / 'my.npz'}: no such file or folder"
    assert "my.pkl: expected a folder or a file .npz, .h5, .hdf5" in error_of(tmp_path / "my.pkl")
    assert "no .npz, .h5, .hdf5 file in this folder" in error_of(tmp_path)
    (tmp_path / "my.h5").mkdir()
    assert error_of(tmp_path) == f"{tmp_path / 'my.h5'}: a folder inside a folder, expected a file"


@pytest.mark.parametrize("name", ["my.npz", "my.h5"])
def test_suffixes_in_capitals(tmp_path, name):
    path = write(tmp_path / name, episodes_of())
    path = path.rename(path.with_suffix(path.suffix.upper()))
    for where in (path, tmp_path):
        assert len(load_episodes(where).obs) == COUNT


def test_hdf5_without_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "my.h5").write_bytes(b"")
    assert "my.h5: HDF5 needs the extra: pip install" in error_of(tmp_path / "my.h5")
