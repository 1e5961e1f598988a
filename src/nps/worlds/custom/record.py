"""Record episodes of a Gymnasium environment, with random actions or a policy, into one file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nps.errors import UserError
from nps.files import replace_file
from nps.worlds.custom.arrays import Arrays, joined, optional
from nps.worlds.custom.check import require_change
from nps.worlds.custom.environment import Size, image_of
from nps.worlds.custom.files import SUFFIXES, suffix
from nps.worlds.custom.spaces import action_rows, require_actions
from nps.worlds.custom.user_code import errors_in_one_line

Policy = Callable[[Any, Any], Any]
"""policy(observation, action_space) -> action. The observation is the environment's own, which may
be a vector while the recorded images are rendered."""


def record(
    env: Any,
    episodes: int,
    steps: int,
    *,
    seed: int = 0,
    size: Size | None = None,
    policy: Policy | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> Arrays:
    """The arrays of a file, in the layout of `nps.worlds.custom.arrays`.

    Args:
        env: a Gymnasium environment, e.g. from `nps.worlds.custom.environment.make`.
        episodes: how many.
        steps: most actions of an episode; longer ones are cut.
        seed: of the environment and of random actions.
        size: (H, W) that images are resized to; by default they stay as they are.
        policy: chooses the actions; by default they are random.
        report: called with the number of episodes done.
    """
    try:
        require_actions(env.action_space)
    except ValueError as error:
        raise UserError(str(error)) from None
    env.action_space.seed(seed)
    recorded = []
    for episode in range(episodes):
        images, actions = [], []
        with errors_in_one_line("reset"):
            observation, _ = env.reset(seed=seed if episode == 0 else None)
            images.append(image_of(env, observation, size))
        for _ in range(steps):
            action = _chosen(policy, observation, env.action_space)
            with errors_in_one_line("step"):
                observation, _, terminated, truncated, _ = env.step(action)
                images.append(image_of(env, observation, size))
            actions.append(np.array(action))
            if terminated or truncated:
                break
        recorded.append((np.stack(images), action_rows(env.action_space, np.stack(actions))))
        report(episode + 1)
    arrays = joined(recorded)
    try:
        require_change(arrays["obs"])
    except ValueError as error:  # some render nothing with SDL_VIDEODRIVER=dummy
        raise UserError(
            f"{error}; does the environment render? --wrapper can change that"
        ) from None
    return arrays


def _chosen(policy: Policy | None, observation: Any, space: Any) -> Any:
    if policy is None:
        return space.sample()
    with errors_in_one_line("the policy failed", policy):
        action = policy(observation, space)
    if np.issubdtype(space.dtype, np.floating):  # a list, or another precision
        with errors_in_one_line("the policy returned no numbers"):
            action = np.asarray(action, space.dtype)
    elif isinstance(action, np.ndarray) and action.ndim == 0:
        action = action[()]
    if not space.contains(action):
        shown = " ".join(repr(action).split())[:60]
        raise UserError(f"the policy returned {shown}, expected an action of {space}")
    return action


def require_output(path: Path) -> None:
    """Refuse a file that exists or cannot be written, before anything is recorded."""
    if suffix(path) not in SUFFIXES or not path.parent.is_dir():
        raise UserError(f"{path}: expected {', '.join(SUFFIXES)} in a folder that exists")
    if path.exists():
        raise UserError(f"{path}: exists already; move it away, or choose another name")
    if suffix(path) != ".npz":
        optional("h5py", path, "HDF5", "hdf5")


def save(path: Path, arrays: Arrays) -> None:
    """Write a file in the format of its suffix, whole or not at all."""
    packed = io.BytesIO()
    if suffix(path) == ".npz":
        np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    else:
        h5py = optional("h5py", path, "HDF5", "hdf5")
        with h5py.File(packed, "w") as file:
            for key, array in arrays.items():
                file.create_dataset(key, data=array, compression="gzip")
    try:
        replace_file(path, packed.getvalue())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
