"""Ways in which a run folder can be damaged, drawn from a seed.

A damage changes one file or folder of a run, as a torn disk, a careless script or a malicious
archive would. Some are *signed*: the checkpoint's manifest is made to agree, so that what is inside
the file is read, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

Damage = Callable[[random.Random, Path], None]

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**63, 10**30, 10**400, -(10**20)),
    *(0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "../x", "/dev/zero", "a\nb", "\x00", "\ud800", "\x1b[31m", "é" * 300, "x" * 100_000),
    *([], {}, [None], [[1]], {"": None}, [0] * 1000),
)
ODD_NAMES = (
    *("../outside.bin", "/dev/zero", "", ".", "..", "a/b"),
    *("a\0b", "a\nb", "\ud800", "x" * 300),
)
ODD_BYTES = (
    *(b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf{}", b"\x80abc", b"\x00" * 4096, b"\n\n\n"),
    *(b"{", b"[]", b"null", b"3", b'"x"', b"{}", b"[1]", b"{}\n{}", b"NaN", b'"\\ud800"'),
    *(b'{"a": 1, "a": 2}', b"9" * 10_000),
    *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000),
)


OUTSIDE = "../../../outside.bin"
"""A file of somebody else, seen from a run folder."""


def truncate(draw: random.Random, path: Path) -> None:
    size = path.stat().st_size
    os.truncate(path, draw.randrange(size) if size else 0)


def flip(draw: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 3, 30))):
        if data:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(bytes(data))


def append(draw: random.Random, path: Path) -> None:
    with path.open("ab") as file:
        file.write(draw.choice(ODD_BYTES))


def replace(draw: random.Random, path: Path) -> None:
    path.write_bytes(draw.choice(ODD_BYTES))


def cut_out(draw: random.Random, path: Path) -> None:
    data = path.read_bytes()
    start = draw.randrange(len(data) + 1)
    path.write_bytes(data[:start] + data[start + draw.choice((1, 8, 100)) :])


def enlarge(draw: random.Random, path: Path) -> None:
    """Sparse: it takes no room on the disk."""
    os.truncate(path, draw.choice((100 * 2**20, 10 * 2**30, 2**42)))


def delete(draw: random.Random, path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def become_folder(draw: random.Random, path: Path) -> None:
    delete(draw, path)
    path.mkdir()


def become_file(draw: random.Random, path: Path) -> None:
    delete(draw, path)
    path.write_bytes(draw.choice(ODD_BYTES))


def become_fifo(draw: random.Random, path: Path) -> None:
    delete(draw, path)
    os.mkfifo(path)


def become_socket(draw: random.Random, path: Path) -> None:
    delete(draw, path)
    before = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(path.name)
    finally:
        os.chdir(before)


def become_link(draw: random.Random, path: Path) -> None:
    """To a device that never ends, to itself, to nothing, or to a file of somebody else."""
    targets = (
        "/dev/zero",
        "/dev/random",
        "/dev/full",
        path.name,
        "nowhere",
        "../../../outside.bin",
    )
    delete(draw, path)
    path.symlink_to(draw.choice(targets))


def forbid(draw: random.Random, path: Path) -> None:
    path.chmod(draw.choice((0o000, 0o222, 0o444) if path.is_dir() else (0o000, 0o222)))


def change_json(draw: random.Random, path: Path) -> None:
    """Another value, no value, another key or a second one, anywhere in the document."""
    _rewrite(path, change_value(draw, _parsed(path)))


def change_line(draw: random.Random, path: Path) -> None:
    """The same in one line of a log; or a line is lost, twice there, or no object."""
    lines = path.read_bytes().splitlines()
    i = draw.randrange(len(lines))
    kind = draw.choice(("value", "value", "value", "lose", "repeat", "other"))
    if kind == "value":
        lines[i] = _dumped(change_value(draw, json.loads(lines[i])))
    elif kind == "lose":
        del lines[i]
    elif kind == "repeat":
        lines.insert(i, lines[i])
    else:
        lines[i] = draw.choice(ODD_BYTES)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def change_value(draw: random.Random, document: Any) -> Any:
    """The document with one place changed."""
    places = list(_places(document))
    if not places or draw.random() < 0.03:
        return draw.choice(ODD_VALUES)
    holder, at = draw.choice(places)
    kind = draw.choice(("value", "value", "value", "delete", "rename"))
    if kind == "value":
        holder[at] = draw.choice(ODD_VALUES)
    elif kind == "delete" or isinstance(holder, list):
        del holder[at]
    else:
        holder[draw.choice(ODD_NAMES)] = holder.pop(at)
    return document


def _places(document: Any) -> Any:
    """Every (holder, key) or (holder, index); those near the root first, and as likely as all."""
    if isinstance(document, dict | list):
        keys = list(document) if isinstance(document, dict) else range(len(document))
        for key in keys:
            yield document, key
            yield from _places(document[key])


def _parsed(path: Path) -> Any:
    return json.loads(path.read_bytes())


def _dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


def _rewrite(path: Path, document: Any) -> None:
    path.write_bytes(_dumped(document))


# -- inside a checkpoint -----------------------------------------------------------------------


def sign(path: Path) -> None:
    """Make the manifest beside a file agree with it."""
    manifest = path.parent / "manifest.json"
    listed = _parsed(manifest)
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    listed["files"][path.name] = {"bytes": len(data), "sha256": digest}
    _rewrite(manifest, listed)


def signed(damage: Damage) -> Damage:
    def both(draw: random.Random, path: Path) -> None:
        damage(draw, path)
        sign(path)

    both.__name__ = f"signed_{damage.__name__}"
    return both


def change_header(draw: random.Random, path: Path) -> None:
    """Another value in the header of a safetensors file: a shape, a type, an offset, a name."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = _dumped(change_value(draw, json.loads(data[8 : 8 + size])))
    announced = draw.choice((len(header), len(header), len(header), 0, 2**63, len(header) + 1))
    path.write_bytes(announced.to_bytes(8, "little") + header + data[8 + size :])


def unlist(draw: random.Random, path: Path) -> None:
    """The manifest no longer lists the file."""
    manifest = path.parent / "manifest.json"
    listed = _parsed(manifest)
    del listed["files"][path.name]
    _rewrite(manifest, listed)


def list_elsewhere(draw: random.Random, path: Path) -> None:
    """The manifest lists the file under a name that leaves the folder, or is none."""
    manifest = path.parent / "manifest.json"
    listed = _parsed(manifest)
    listed["files"][draw.choice(ODD_NAMES)] = listed["files"].pop(path.name)
    _rewrite(manifest, listed)


ANY: tuple[Damage, ...] = (
    *(truncate, flip, append, replace, cut_out, enlarge, delete, forbid),
    *(become_folder, become_fifo, become_socket, become_link),
)
FOLDER: tuple[Damage, ...] = (
    *(delete, forbid, become_file, become_folder, become_fifo, become_socket, become_link),
)
SIGNED: tuple[Damage, ...] = (
    *(unlist, list_elsewhere),
    *map(signed, (truncate, flip, append, replace, cut_out)),
)


def damages_of(path: Path) -> tuple[Damage, ...]:
    """What can happen to this file or folder."""
    if path.is_dir():
        return FOLDER
    if path.name == "state.json":
        return (*ANY, *SIGNED, *[signed(change_json)] * 12)
    if path.suffix == ".safetensors":
        return (*ANY, *SIGNED, *[signed(change_header)] * 8)
    if path.suffix == ".json":
        return (*ANY, *[change_json] * 12)
    if path.suffix == ".jsonl":
        return (*ANY, *[change_line] * 12)
    return ANY
