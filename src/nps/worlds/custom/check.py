"""Check the arrays of one source of episodes, and convert them to tensors.

Invalid data are refused in one line that names the source, the key and the row.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from nps.errors import UserError
from nps.worlds.custom.arrays import Arrays

if TYPE_CHECKING:
    from jaxtyping import Bool, Shaped

MOST_ACTIONS = 10_000
"""Limit for discrete actions, which become one-hot vectors."""
FARTHEST_ACTION = 1e6
"""Limit for continuous actions, which a model reads as they are."""
LISTED_KEYS = 8
"""How many of a file's keys an error message lists."""

Channels = Literal["first", "last"]


class Checked(NamedTuple):
    """The tensors of one source."""

    obs: Shaped[Tensor, "N H W C"]
    action: Shaped[Tensor, "N ..."]
    ends: Bool[Tensor, "N"]


def require_keys(path: Path, keys: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse a source that lacks one of the keys, and name what it has."""
    for key in needed:
        if key not in keys:
            raise UserError(f"{path}: no {key}; the file has {_listed([*keys])}")


def checked(path: Path, arrays: Arrays, channels: Channels | None) -> Checked:
    """Check the arrays of one source; without `episode_end` they are one episode."""
    try:
        obs = _obs(arrays["obs"], channels)
        action = _action(arrays["action"], len(obs))
        ends = _ends(arrays.get("episode_end"), len(obs))
        _require_moderate(action, ends)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    return Checked(obs, action, ends)


def _listed(names: list[str]) -> str:
    """The first few names on one line, with control characters escaped."""
    few = [name if name.isprintable() else repr(name) for name in names[:LISTED_KEYS]]
    more = [f"{len(names) - LISTED_KEYS} more"] if len(names) > LISTED_KEYS else []
    return ", ".join(few + more) or "nothing"


def _obs(array: ndarray, channels: Channels | None) -> Tensor:
    if array.ndim != 4 or 0 in array.shape:
        raise ValueError(
            f"obs: got shape {array.shape}, expected (N, H, W, C) or (N, C, H, W), not empty"
        )
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise ValueError(f"obs: got {array.dtype}, expected uint8 or floating point")
    if (channels or _channels(array.shape)) == "first":
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    obs = _tensor("obs", array)
    low, high = (float(x) for x in obs.aminmax()) if obs.is_floating_point() else (0.0, 1.0)
    if low < 0 or high > 1:
        raise ValueError(f"obs: got values from {low:g} to {high:g}, expected 0 to 1, or bytes")
    return obs


def _channels(shape: tuple[int, ...]) -> Channels:
    """Infer the position of the channels: they are fewer than rows and columns."""
    _, first, middle, last = shape
    if first < min(middle, last):
        return "first"
    if last < min(first, middle):
        return "last"
    raise ValueError(
        f"obs: the position of the channels is ambiguous in shape {shape}; give channels='first' "
        "or 'last' (--channels first or last)"
    )


def _action(array: ndarray, count: int) -> Tensor:
    discrete = array.ndim == 1 and array.dtype.kind in "iu"
    continuous = array.ndim == 2 and array.dtype.kind == "f" and array.shape[1] > 0
    if not discrete and not continuous:
        raise ValueError(
            f"action: got {array.dtype} of shape {array.shape}, expected integers (N,) for "
            f"discrete or floating point (N, A) for continuous actions"
        )
    _require_length("action", array, count)
    if discrete and array.min() < 0:
        raise ValueError(f"action: got {array.min()}, expected integers from 0")
    if discrete and array.max() >= MOST_ACTIONS:
        raise ValueError(f"action: got {array.max()}, expected numbers below {MOST_ACTIONS:,}")
    return _tensor("action", array)


def _ends(array: ndarray | None, count: int) -> Bool[Tensor, "N"]:
    """Where episodes end; each must have at least two frames, which make one transition."""
    if array is None:
        array = np.arange(count) == count - 1
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise ValueError(
            f"episode_end: got {array.dtype} of shape {array.shape}, expected booleans (N,)"
        )
    _require_length("episode_end", array, count)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"episode_end: got {array.max()}, expected True or False (1 or 0)")
    if not array[-1]:
        raise ValueError(f"episode_end: got False for the last frame, {count - 1}, expected True")
    ends = np.flatnonzero(array)
    short = np.diff(ends, prepend=-1) < 2
    if short.any():
        raise ValueError(
            f"episode_end: the episode that ends with frame {ends[short][0]} has one frame, "
            "expected at least two"
        )
    return torch.from_numpy(array.astype(bool))


def _require_moderate(action: Tensor, ends: Bool[Tensor, "N"]) -> None:
    """Refuse continuous actions so large that the loss would overflow."""
    large = (action.abs() > FARTHEST_ACTION).nonzero()
    if action.dim() == 1 or not len(large):
        return
    row, column = large[0].tolist()
    raise ValueError(
        f"action: got {action[row, column]:g} in row {row}, of episode {int(ends[:row].sum())}, "
        f"expected numbers from {-FARTHEST_ACTION:g} to {FARTHEST_ACTION:g}"
    )


def _require_length(key: str, array: ndarray, count: int) -> None:
    if len(array) != count:
        raise ValueError(
            f"{key}: got {len(array)} rows for {count} frames of obs, expected one per frame "
            "(also for the last of an episode)"
        )


def _tensor(key: str, array: ndarray) -> Tensor:
    """Images as bytes, integers as int64, floats as float32, which must be finite."""
    if array.dtype.kind != "f":
        kind = np.uint8 if key == "obs" else np.int64
        return torch.from_numpy(array.astype(kind, copy=False))
    with np.errstate(over="ignore"):  # refused below
        array = array.astype(np.float32, copy=False)
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"{key}: got {array[where]} in row {where[0]}, expected finite numbers")
    return torch.from_numpy(array)


def require_change(obs: Iterable[ndarray] | Shaped[Tensor, "N ..."]) -> None:
    """Refuse images that are all the same: the camera was off, or nothing was rendered."""
    images = iter(obs)
    first = np.asarray(next(images))
    if all(np.array_equal(first, np.asarray(image)) for image in images):
        raise ValueError("obs: all images are equal, expected some that change")
