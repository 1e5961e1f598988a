"""The files of `results/<experiment>/`: JSON lines, compressed with xz, with a header line.

`runs.jsonl.xz` has one run per line, `curves.jsonl.xz` the metric log of one run per line. The same
rows always give the same bytes, so a change that git shows is a change of the results.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from nps.errors import UserError
from nps.files import replace_file

RUNS, CURVES = "runs.jsonl.xz", "curves.jsonl.xz"
SCHEMA = 1
MAX_BYTES = 512 * 2**20
"""Uncompressed, and far more than any of our tables has: a larger file is not one of them."""

Kind = Literal["runs", "curves"]
Row = dict[str, Any]
Key = tuple[str, str, int]

FIELDS: Mapping[Kind, Mapping[str, type | tuple[type, ...]]] = {
    "runs": {
        "group": str,
        "variant": str,
        "seed": int,
        "preset": str,
        "published": bool,
        "config": dict,
        "test": (dict, type(None)),
        "provenance": list,
    },
    "curves": {"group": str, "variant": str, "seed": int, "rows": list},
}


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
    header, *rows = _lines(path)
    if header.get("table") != kind or not isinstance(header.get("experiment"), str):
        raise UserError(f"{path}: not a table of {kind}")
    if header.get("schema") != SCHEMA:
        got = header.get("schema")
        raise UserError(f"{path}: got schema {got}, expected {SCHEMA}: written by another nps")
    seen: set[Key] = set()
    for number, row in enumerate(rows, 2):
        for name, types in FIELDS[kind].items():
            if name not in row or not isinstance(row[name], types):
                raise UserError(f"{path}:{number}: damaged, {name} is missing or of a wrong type")
        if key(row) in seen:
            raise UserError(f"{path}:{number}: damaged, a second run {key(row)}")
        seen.add(key(row))
    return header["experiment"], rows


def _lines(path: Path) -> list[Row]:
    """The JSON objects of a file, at least one."""
    try:
        with lzma.open(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path}: damaged ({str(error).rstrip('.')})") from None
    if len(data) > MAX_BYTES:
        raise UserError(f"{path}: larger than {MAX_BYTES} bytes uncompressed, not a table of ours")
    lines = data.splitlines()
    try:
        rows = [json.loads(line) for line in lines]
    except ValueError as error:
        raise UserError(f"{path}: damaged, not JSON lines ({error})") from None
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: damaged, expected a JSON object on each line")
    return rows
