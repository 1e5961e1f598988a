"""The files of `results/<experiment>/`: JSON lines, compressed with xz, with a header line.

`runs.jsonl.xz` has one run per line, `curves.jsonl.xz` the metric log of one run per line. The same
rows always give the same bytes, so a change that git shows is a change of the results.
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from nps.errors import UserError
from nps.files import replace_file
from nps.reading import parse_json, read_bytes
from nps.training.run import Session

RUNS, CURVES = "runs.jsonl.xz", "curves.jsonl.xz"
SCHEMA = 1
MAX_BYTES = 128 * 2**20
"""Uncompressed, and far more than any of our tables has: a larger file is not one of them."""

Kind = Literal["runs", "curves"]
Row = dict[str, Any]
Key = tuple[str, str, int]


class Header(TypedDict):
    """The first line of a table."""

    schema: int
    table: str
    experiment: str


class Place(TypedDict):
    """What identifies a run."""

    group: str
    variant: str
    seed: int


class RunRow(Place):
    """A line of runs.jsonl.xz."""

    preset: str
    published: bool
    config: dict[str, Any]
    test: dict[str, Any] | None
    provenance: list[Session]


class CurveRow(Place):
    """A line of curves.jsonl.xz."""

    rows: list[dict[str, Any]]


ROWS: Mapping[Kind, Any] = {"runs": RunRow, "curves": CurveRow}


def key(row: Row) -> Key:
    """What identifies a run in a table, and orders it."""
    return row["group"], row["variant"], row["seed"]


def write_table(path: Path, kind: Kind, experiment: str, rows: Iterable[Row]) -> None:
    """Replace the table in one step: a reader sees the old one or the new one."""
    header = {"schema": SCHEMA, "table": kind, "experiment": experiment}
    lines = [header, *sorted(rows, key=key)]
    # Keys keep their order: that of a config's fields and of a test's metrics means something.
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    replace_file(path, lzma.compress(text.encode(), preset=9))


def read_table(path: Path, kind: Kind) -> tuple[str, list[Row]]:
    """The table's experiment and its rows, checked; raises a one-line error if it is damaged."""
    lines = _lines(path)
    header = parse_json(next(lines, b""), f"{path}:1", Header)
    if header["table"] != kind:
        raise UserError(f"{path}: not a table of {kind}")
    if header["schema"] != SCHEMA:
        got = header["schema"]
        raise UserError(f"{path}: got schema {got}, expected {SCHEMA}: written by another nps")
    rows: dict[Key, Row] = {}
    for number, line in enumerate(lines, 2):
        row = parse_json(line, f"{path}:{number}", ROWS[kind], finite=False)
        if key(row) in rows:
            raise UserError(f"{path}:{number}: damaged, a second run {key(row)}")
        rows[key(row)] = row
    return header["experiment"], list(rows.values())


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a compressed file."""
    try:
        with lzma.open(io.BytesIO(read_bytes(path, MAX_BYTES))) as file:
            data = file.read(MAX_BYTES + 1)
    except (lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path}: damaged ({str(error).rstrip('.')})") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"{path}: larger than {MAX_BYTES} bytes uncompressed, not a table of ours")
    return iter(data.splitlines())
