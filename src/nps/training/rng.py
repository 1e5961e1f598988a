"""Randomness that can be named, saved and restored.

Every use has its own stream, derived from the run's seed and a name, so that no use can shift
another: the order of epoch 7 is a function of (seed, 7), not of what happened before.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def derive(seed: int, *names: object) -> int:
    """A seed for one named use."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(device: torch.device | str, seed: int, *names: object) -> torch.Generator:
    return torch.Generator(device).manual_seed(derive(seed, *names))


@contextmanager
def seeded(seed: int, *names: object) -> Iterator[None]:
    """Global torch randomness from a named stream inside, as it was before afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(derive(seed, *names))
        yield


@contextmanager
def untouched() -> Iterator[None]:
    """Whatever happens inside leaves every global generator as it was."""
    state, tensors = global_state()
    try:
        yield
    finally:
        restore_global(state, tensors)


def global_state() -> tuple[dict[str, Any], dict[str, Tensor]]:
    """All global generators: Python's and NumPy's as JSON, torch's as tensors."""
    version, numbers, cached = random.getstate()
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    state = {
        "python": [version, list(numbers), cached],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, gauss],
    }
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    return state, tensors


def restore_global(state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    version, numbers, cached = state["python"]
    random.setstate((version, tuple(numbers), cached))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    torch.set_rng_state(tensors["torch"].cpu())
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda{i}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda{i}"].cpu(), i)
