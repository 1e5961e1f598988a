"""Files that may be anything: read and checked, or refused in one line without waiting for them."""

import json
import os
import random
import tracemalloc
from typing import Any

import pytest

from nps import reading
from nps.reading import Damaged, Missing, Unreadable, read_bytes, read_json, read_json_lines
from tests.fuzz import damage
from tests.ordinary_user import as_ordinary_user

ANY = dict[str, Any]


def refused(path, kind=ANY, error=Damaged, **how) -> str:
    with pytest.raises(error) as raised:
        read_json(path, kind, **how)
    text = str(raised.value)
    assert "\n" not in text
    assert path.name in text
    return text


def test_what_json_dumps_writes_is_read(tmp_path):
    path = tmp_path / "a.json"
    document = {"a": [1, -2.5, None, True, "é\n\U0001f600"], "b": {"c": 2**63 - 1}}
    path.write_text(json.dumps(document))
    assert read_json(path, ANY) == document
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_json(link, ANY) == document


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"a": 1, "a": 2}', "a key comes twice"),
        (b'{"a": NaN}', "not finite"),
        (b'{"a": -Infinity}', "not finite"),
        (b'{"a": 1e999}', "not finite"),
        (b'{"a": 1' + b"0" * 30 + b"}", "too large"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "not JSON"),
        (b'{"a": "\\ud800"}', "surrogates"),
        (b"[]", "a list of 0, expected an object"),
    ],
)
def test_what_is_not_json_of_ours_is_refused(tmp_path, data, why):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    assert why in refused(path)


def test_metrics_may_be_nan(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": float("nan"), "b": float("inf")}))
    assert str(read_json(path, ANY, finite=False)) == "{'a': nan, 'b': inf}"


@pytest.mark.parametrize(
    "kind", ["become_folder", "become_fifo", "become_socket", "/dev/zero", "/dev/full", "a.json"]
)
def test_what_is_not_a_regular_file_is_not_opened(tmp_path, kind):
    path = tmp_path / "a.json"
    path.write_text("{}")
    if kind.startswith("become"):
        getattr(damage, kind)(random.Random(0), path)
    else:
        path.unlink()
        path.symlink_to(kind)  # the last one to itself
    assert "regular file" in refused(path) or kind == "a.json"


def test_a_pipe_that_comes_in_between_is_not_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("{}")
    regular = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(type(path), "stat", lambda self, **how: regular)
    assert "regular file" in refused(path)


def test_a_file_that_is_gone_and_one_without_permission(tmp_path):
    path = tmp_path / "folder/a.json"
    refused(path, error=Missing)
    path.parent.mkdir()
    path.write_text("{}")
    for forbidden in (path, path.parent):
        forbidden.chmod(0o000)
        with as_ordinary_user():
            assert "Permission denied" in refused(path, error=Unreadable)
        forbidden.chmod(0o755)
    assert "File name too long" in refused(tmp_path / ("x" * 300), error=Unreadable)
    with pytest.raises(Damaged, match=r"a\\x00b': not the name of a file"):
        read_json(tmp_path / "a\0b", ANY)


def test_a_size_is_refused_before_memory_is_taken(tmp_path):
    path = tmp_path / "a.json"
    path.touch()
    os.truncate(path, 10 * 2**30)
    tracemalloc.start()
    assert f"{10 * 2**30} bytes, expected at most" in refused(path)
    with pytest.raises(Damaged, match="expected at most"):
        list(read_json_lines(path, ANY))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_link_is_refused_where_only_the_file_will_do(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to("a")
    assert read_bytes(tmp_path / "a", links=False) == b"x"
    with pytest.raises(Unreadable, match="symbolic link"):
        read_bytes(tmp_path / "b", links=False)


def test_a_log_is_read_to_its_end_or_to_a_length(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a"')
    assert list(read_json_lines(path, ANY)) == [{"a": 1}, {"a": 2}]
    assert list(read_json_lines(path, ANY, length=9)) == [{"a": 1}]
    with pytest.raises(Damaged, match="log:2: damaged, not JSON"):
        list(read_json_lines(path, ANY, length=12))
    with pytest.raises(Damaged, match="22 bytes, but 99 were written"):
        list(read_json_lines(path, ANY, length=99))
    path.write_bytes(b'{"a": 1}\n\x00\x00\n{"a": 2}\n')
    with pytest.raises(Damaged, match="log:2: damaged, not JSON"):
        list(read_json_lines(path, ANY))


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 1000)
    path = tmp_path / "log"
    path.write_bytes(b'{"a": "' + b"x" * 5000 + b'"}\n')
    with pytest.raises(Damaged, match="log:1"):
        list(read_json_lines(path, ANY))


def test_files_are_closed(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[]")
    handles = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        refused(path)
    assert len(os.listdir("/proc/self/fd")) == handles
