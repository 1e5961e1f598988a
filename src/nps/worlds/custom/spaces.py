"""Images and actions as Gymnasium's spaces describe them, which Minari uses too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray


def is_image(space: Any) -> bool:
    """True for a uint8 box: (H, W, C), (C, H, W), or (H, W) for greyscale."""
    return len(getattr(space, "shape", None) or ()) in (2, 3) and space.dtype == np.uint8


def with_channels(images: ndarray, dims: int) -> ndarray:
    """Add a channel dimension if it is missing from images of `dims` dimensions."""
    return images[..., None] if images.ndim == dims - 1 else images


def require_actions(space: Any) -> None:
    """Refuse action spaces other than Discrete and Box."""
    discrete = not space.shape and np.issubdtype(space.dtype or object, np.integer)
    continuous = np.issubdtype(space.dtype or object, np.floating)
    if not (discrete or continuous):
        raise ValueError(f"actions: got {space}, expected Discrete or Box")


def action_rows(space: Any, actions: ndarray) -> ndarray:
    """Actions as rows of a file: discrete ones start at 0, continuous ones are vectors."""
    if np.issubdtype(space.dtype, np.floating):
        return np.asarray(actions, np.float32).reshape(len(actions), -1)
    return np.asarray(actions, np.int64) - int(getattr(space, "start", 0))
