"""Make the file of falling towers before `nps run stacks`, if there is none yet."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec
from pathlib import Path

from nps.errors import UserError, extra, say
from nps.training.progress import ProgressLine
from nps.worlds.made_file import NotFound
from nps.worlds.stacks import file
from nps.worlds.stacks.episodes import made_file
from nps.worlds.stacks.making import Settings, make_all
from nps.worlds.stacks.physics import require_mujoco


@functools.lru_cache
def prepare(settings: Settings) -> None:
    """Simulate towers into the cache, if they have no file yet and MuJoCo is installed."""
    made = made_file(settings)
    try:
        made.find()
    except NotFound as missing:
        if find_spec("mujoco") is None:
            raise UserError(
                f"{missing}; simulating them needs the extra: {extra('stacks')}"
            ) from None
        say(f"simulating {settings.episodes:,} towers, once, into {made.cache}")
        say(provide(settings, made.cache, os.cpu_count() or 1))


def provide(settings: Settings, folder: Path, workers: int) -> str:
    """Make sure that the file is in the folder; returns a line about its origin."""

    def make() -> bytes:
        with ProgressLine("towers", settings.episodes, 0, "episodes") as line:
            return file.pack(settings, make_all(settings, workers, line.update))

    return made_file(settings).provide(folder, require_mujoco, make, "simulated")
