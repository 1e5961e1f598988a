"""LeRobot folders, in the layout of its formats 2.1 and 3.0."""

import io
import json

import numpy as np
import pytest

from nps.errors import UserError
from nps.worlds.custom import load_episodes

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pictures = pytest.importorskip("PIL.Image")

LENGTHS = (3, 5, 4)
CAMERA = "observation.images.top"
IMAGE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
FILES = {  # file -> the episodes in it
    "2.1": {f"data/chunk-000/episode_{e:06}.parquet": [e] for e in range(3)},
    "3.0": {"data/chunk-000/file-000.parquet": [0, 1], "data/chunk-001/file-000.parquet": [2]},
}


def png(image):
    file = io.BytesIO()
    pictures.fromarray(image).save(file, "PNG")
    return file.getvalue()


def write(folder, version="3.0", kind="image", cameras=(CAMERA,), embedded=True):
    """A folder as LeRobot writes it; returns its images and actions."""
    draw = np.random.default_rng(0)
    count = sum(LENGTHS)
    images = draw.integers(256, size=(count, 6, 8, 3), dtype=np.uint8)
    action = draw.normal(size=(count, 2)).astype(np.float32)
    camera = {"dtype": kind, "shape": [6, 8, 3], "names": ["height", "width", "channel"]}
    features = {"action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]}}
    info = {"codebase_version": f"v{version}", "fps": 10}
    (folder / "meta").mkdir(parents=True)
    info["features"] = features | dict.fromkeys(cameras, camera)
    (folder / "meta/info.json").write_text(json.dumps(info))
    first = np.cumsum((0, *LENGTHS))
    for name, episodes in FILES[version].items():
        rows = [n for e in episodes for n in range(first[e], first[e + 1])]
        cells = []
        for n in rows:
            path = f"images/{n:06}.png"
            if not embedded:
                (folder / "images").mkdir(exist_ok=True)
                (folder / path).write_bytes(png(images[n]))
            cells.append({"bytes": png(images[n]) if embedded else None, "path": path})
        columns = {
            CAMERA: pa.array(cells, IMAGE),
            "action": pa.array(action[rows].tolist(), pa.list_(pa.float32(), 2)),
            "timestamp": pa.array(np.zeros(len(rows), np.float32)),
            "frame_index": pa.array(
                [n - first[e] for e in episodes for n in range(*first[e:][:2])]
            ),
            "episode_index": pa.array([e for e in episodes for _ in range(LENGTHS[e])]),
        }
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(columns), folder / name)
    return images, action


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("version", FILES)
def test_images_and_actions_are_the_folder_s(tmp_path, version, embedded):
    images, action = write(tmp_path, version, embedded=embedded)
    found = load_episodes(tmp_path)
    assert np.array_equal(found.obs.numpy(), images)
    assert np.array_equal(found.action.numpy(), action)
    assert found.episode.bincount().tolist() == list(LENGTHS)


def error_of(path):
    with pytest.raises(UserError) as error:
        load_episodes(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_video(tmp_path):
    write(tmp_path, kind="video")
    assert error_of(tmp_path).startswith(
        f"{tmp_path}: {CAMERA} is stored as video, expected images"
    )


def test_no_camera_and_two(tmp_path):
    write(tmp_path / "none", cameras=())
    assert error_of(tmp_path / "none").endswith("no feature of dtype image; it has action")
    write(tmp_path / "two", cameras=(CAMERA, "wrist"))
    assert error_of(tmp_path / "two").endswith(
        f"got images of {CAMERA}, wrist, expected one camera"
    )


def test_images_outside_the_folder_are_not_read(tmp_path):
    write(tmp_path / "mine", embedded=False)
    (tmp_path / "mine/images").rename(tmp_path / "images")
    (tmp_path / "mine/images").symlink_to(tmp_path / "images")
    assert error_of(tmp_path / "mine").endswith("image 'images/000000.png' is not in this folder")


def test_damaged_folders(tmp_path):
    write(tmp_path)
    for path in tmp_path.glob("data/*/*.parquet"):
        path.write_bytes(b"no table")
    assert error_of(tmp_path).startswith(f"{tmp_path}: cannot be read (")
    (tmp_path / "meta/info.json").write_text("[1]")
    assert error_of(tmp_path) == f"{tmp_path}: no .npz, .h5, .hdf5 file in this folder"
