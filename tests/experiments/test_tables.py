"""The files of results/: whole, checked, and the same bytes for the same rows."""

import json
import lzma

import pytest

from nps.errors import UserError
from nps.experiments import tables
from nps.experiments.tables import read_table, write_table

CURVE = {"group": "", "variant": "a", "seed": 0, "rows": []}
RUN = {
    "group": "g",
    "variant": "v",
    "seed": 1,
    "preset": "p",
    "published": True,
    "config": {"z": 1, "a": 0.1 + 0.2},
    "test": None,
    "provenance": [],
}
HEADER = {"schema": 1, "table": "runs", "experiment": "mnist"}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "runs.jsonl.xz"
    write_table(path, "runs", "mnist", [RUN])
    experiment, (row,) = read_table(path, "runs")
    assert experiment == "mnist"
    assert row == RUN
    assert list(row["config"]) == ["z", "a"]  # the order of fields is that of the flags in reports
    plain = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    assert plain == [HEADER, RUN]  # readable without nps


def test_the_same_rows_give_the_same_bytes_in_any_order(tmp_path):
    rows = [{**CURVE, "variant": v, "seed": s} for v in "ab" for s in (2, 10)]
    one, two = tmp_path / "one", tmp_path / "two"
    write_table(one, "curves", "mnist", rows)
    write_table(two, "curves", "mnist", reversed(rows))
    assert one.read_bytes() == two.read_bytes()
    assert [row["seed"] for row in read_table(one, "curves")[1]] == [2, 10, 2, 10]
    write_table(one, "curves", *read_table(one, "curves"))
    assert one.read_bytes() == two.read_bytes()


def compressed(*lines):
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    return lzma.compress(text.encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged"),
        (b"no archive", "damaged"),
        (compressed(HEADER, RUN)[:-20], "damaged"),
        (compressed(), ":1: damaged, not JSON"),
        (compressed("{"), ":1: damaged, not JSON"),
        (compressed([1]), ":1: damaged, it is a list of 1, expected an object"),
        (lzma.compress(b"\xff\xfe"), ":1: damaged, not JSON"),
        (compressed({"a": 1}), ":1: damaged, schema, table, experiment are missing"),
        (compressed({**HEADER, "table": "curves"}), "not a table of runs"),
        (compressed({**HEADER, "schema": 2}), "got schema 2, expected 1"),
        (
            compressed(HEADER, {**RUN, "seed": "1"}),
            ":2: damaged, seed is '1', expected int",
        ),
        (compressed(HEADER, {k: v for k, v in RUN.items() if k != "test"}), ":2: damaged, test is"),
        (compressed(HEADER, RUN, RUN), ":3: damaged, a second run"),
    ],
)
def test_damaged_and_foreign_files_are_one_line(tmp_path, data, message):
    path = tmp_path / "runs.jsonl.xz"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message) as error:
        read_table(path, "runs")
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_grows_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "MAX_BYTES", 1000)
    path = tmp_path / "runs.jsonl.xz"
    path.write_bytes(lzma.compress(b" " * 2000))
    with pytest.raises(UserError, match="larger than 1000 bytes uncompressed"):
        read_table(path, "runs")


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_table(tmp_path / "runs.jsonl.xz", "runs")
