"""The layout that all sources of episodes are converted to, and their errors.

Row n of every array is one time step: the image (`obs`), the action taken there (`action`), and
whether the episode ends with it (`episode_end`). The action of an episode's last row is never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from nps.errors import UserError, extra

KEYS = ("obs", "action", "episode_end")
Arrays = dict[str, ndarray]
"""Key -> array, of the keys above."""


def joined(episodes: Sequence[tuple[ndarray, ndarray]]) -> Arrays:
    """The arrays of whole episodes, given as T + 1 images and the T actions between them."""
    obs = [images for images, _ in episodes]
    # The action in an episode's last row leads nowhere: any valid one will do.
    action = [np.concatenate([taken, taken[-1:]]) for _, taken in episodes]
    ends = [np.arange(len(images)) == len(images) - 1 for images in obs]
    parts = {"obs": obs, "action": action, "episode_end": ends}
    return {key: np.concatenate(each) for key, each in parts.items()}


def optional(module: str, path: Path, what: str, name: str) -> Any:
    """An optional dependency, or one line that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise UserError(f"{path}: {what} needs the extra: {extra(name)}") from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report whatever a reader raises for a damaged file in one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path}: cannot be read ({reason})") from None
