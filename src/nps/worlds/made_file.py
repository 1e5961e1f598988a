"""A file of data that is made once, then found: in the user's folder, or in the cache.

So a machine without the simulator can use a file that another one has made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from nps.errors import UserError
from nps.files import replace_file
from nps.worlds import fetch
from nps.worlds.collection import cache_folder, given_folder
from nps.worlds.fetch import File

Content = TypeVar("Content")


class NotFound(UserError):
    """There is no file with these settings."""


@dataclass(frozen=True)
class MadeFile(Generic[Content]):
    """Where a file is looked for, and how it is read."""

    title: str
    """Of the world, in messages."""
    folder: str
    """Name of its folder in the cache, and of an optional subfolder in the user's data folder."""
    name: str
    """Of the file."""
    command: str
    """What makes it."""
    unpack: Callable[[bytes], Content]
    """Its content; raises `ValueError` if it is damaged or was made with other settings."""

    @property
    def cache(self) -> Path:
        return cache_folder() / self.folder

    def find(self) -> tuple[File, Content]:
        """The file and its content, or an error that says how to make it."""
        given = given_folder()
        folders = [self.cache] if given is None else [given, given / self.folder, self.cache]
        tried = []
        for folder in folders:
            try:
                for file in fetch.from_folder(folder, (), [self.name]):
                    return file, self.unpack(file.data)
                tried.append(f"not in {folder}")
            except fetch.Unreachable as error:
                tried.append(str(error))
            except ValueError as error:
                tried.append(f"{file.where}: {error}")
        raise NotFound(
            f"{self.title}: no {self.name} with these settings ({'; '.join(tried)}); make it with "
            f"`{self.command}`, or copy it from a machine that can run this"
        )

    def provide(
        self, folder: Path, able: Callable[[], object], make: Callable[[], bytes], made: str
    ) -> str:
        """Make sure that the file is in the folder; returns a line about its origin.

        Args:
            folder: where it has to be.
            able: raises what is wrong where the file cannot be made.
            make: its bytes.
            made: the word for it, such as "played".
        """
        path = folder / self.name
        if path.exists():
            return f"{path}: {self._check(path):,} bytes, already there"
        try:
            file, _ = self.find()
        except NotFound:
            file = None
            able()  # before a folder is made
        try:
            folder.mkdir(parents=True, exist_ok=True)  # fails before minutes are spent
            data = make() if file is None else file.data
            replace_file(path, data)
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}") from None
        return f"{path}: {len(data):,} bytes, {made if file is None else f'from {file.where}'}"

    def _check(self, path: Path) -> int:
        """The size of a file with these settings; any other file is refused, not overwritten."""
        try:
            data = path.read_bytes()
            self.unpack(data)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise UserError(f"{path}: {error}; move it away first") from None
        return len(data)
