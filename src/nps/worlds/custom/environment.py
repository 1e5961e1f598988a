"""A Gymnasium environment whose observations are images, or that renders them (extra `gym`)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch.nn import functional as F

from nps.errors import UserError, extra
from nps.worlds.custom.spaces import is_image, with_channels
from nps.worlds.custom.user_code import errors_in_one_line, find

Size = tuple[int, int]
"""Height and width."""


def make(name: str, wrappers: Sequence[str] = ()) -> Any:
    """The environment inside its wrappers, able to render if its observations are not images.

    Args:
        name: one that `gymnasium.make` knows, or `package:name`, which imports the package first.
        wrappers: `module:Class` of each, the innermost first; called with the environment.
    """
    try:
        import gymnasium
    except ImportError:
        raise UserError(f"environments need the extra: {extra('gym')}") from None
    with contextlib.suppress(ImportError):
        import ale_py  # noqa: F401  (registers its games, such as ALE/Pong-v5)
    classes = {wrapper: find("--wrapper", wrapper) for wrapper in wrappers}

    def build(**options: Any) -> Any:
        try:
            env = gymnasium.make(name, **options)
        except gymnasium.error.UnregisteredEnv as error:
            hint = "" if ":" in name else f"; if another package brings it: PACKAGE:{name}"
            raise UserError(f"{name}: {' '.join(str(error).split()).rstrip('.')}{hint}") from None
        except Exception as error:  # not installed, or something that it needs is missing
            raise UserError(f"{name}: {' '.join(str(error).split())}") from None
        for wrapper, wrap in classes.items():
            with errors_in_one_line(f"--wrapper {wrapper}"):
                env = wrap(env)
        return env

    # Most render only with a render_mode given here, and some wrappers need one that renders.
    first: UserError | None = None
    try:
        env = build()
        if is_image(env.observation_space):
            return env
        env.close()
    except UserError as error:
        first = error
    try:
        return build(render_mode="rgb_array")
    except UserError as error:
        raise (first or error) from None


def image_of(env: Any, observation: Any, size: Size | None = None) -> ndarray:
    """The observation if it is an image, otherwise the rendered frame: (H, W, C), uint8."""
    image = observation if is_image(env.observation_space) else env.render()
    image = with_channels(image, 3) if isinstance(image, ndarray) else image
    if not isinstance(image, ndarray) or image.ndim != 3 or image.dtype != np.uint8:
        raise UserError(
            "the environment has no uint8 images, observed or rendered; --wrapper can change that"
        )
    if size is None:
        return np.array(image)  # some environments render into the same array again
    planes = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
    small = F.interpolate(planes, size, mode="bilinear", antialias=True)
    return small[0].permute(1, 2, 0).round().clamp(0, 255).byte().numpy()
