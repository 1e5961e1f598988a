"""`nps data stacks`: let towers fall in MuJoCo, in several processes, into one file of states."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.shared import DataFolder, about, require, use_data
from nps.errors import UserError
from nps.flags import parse
from nps.worlds.stacks.making import Settings


@dataclass(frozen=True)
class StacksArgs:
    to: Path | None = None
    """Write into this folder instead of the cache, e.g. to copy it to another machine."""
    train: int = Settings.train
    """Episodes for training."""
    validation: int = Settings.validation
    """Episodes for choosing checkpoints."""
    test: int = Settings.test
    """Episodes for testing."""
    four: int = Settings.four
    """Episodes of towers of four shapes, for testing."""
    seed: int = Settings.seed
    """Seed of the towers."""
    workers: int = 0
    """Processes that simulate; 0 means one per core. The episodes do not depend on it."""
    data: DataFolder = None


def stacks(args: Sequence[str]) -> None:
    """Let random towers fall and record them, in one file of 5 MB.

    Nothing is simulated if the file, with the same settings, is in the folder --data or NPS_DATA
    or in the cache. Needs the extra `stacks`; reading the file does not.

    Examples:
      nps data stacks
      nps data stacks --to /media/stick/stacks
      nps data stacks --train 100 --validation 20 --test 20 --four 20 --to /tmp/small
    """
    from nps.experiments.stacks.data import provide
    from nps.worlds.stacks.episodes import made_file

    options = parse(StacksArgs, args, prog="nps data stacks", about=about(stacks))
    require(options.workers >= 0, f"--workers: got {options.workers}, expected at least 0")
    try:
        settings = Settings(
            options.train, options.validation, options.test, options.four, options.seed
        )
    except ValueError as error:
        raise UserError(f"nps data stacks: {error}") from None
    use_data(options.data)

    folder = made_file(settings).cache if options.to is None else options.to.expanduser()
    print(provide(settings, folder, options.workers or os.cpu_count() or 1))
    if options.to is not None:
        print(f"Written to {folder}; use it with --data or NPS_DATA.")
