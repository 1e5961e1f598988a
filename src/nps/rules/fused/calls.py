"""How the Triton kernels of a fused stage are called. They come with torch's CUDA builds only, so
their files are imported when the first is needed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

FILES = ("kernels", "kernels_sequential", "kernels_parallel", "kernels_grouped")
LARGEST_TILE = 8192
"""Numbers that a program can hold at a time."""


@cache
def installed() -> bool:
    return find_spec("triton") is not None


def power(size: int, least: int = 1) -> int:
    """Triton's tiles have powers of two as their sizes."""
    return max(least, 1 << (size - 1).bit_length())


def call(name: str, grid: tuple[int, ...], *arguments: Any, **settings: Any) -> None:
    with torch.cuda.device_of(arguments[0]):
        _kernel(name)[grid](*arguments, **settings)


@cache
def _kernel(name: str) -> Any:
    files = (import_module(f"nps.rules.fused.{file}") for file in FILES)
    return next(getattr(file, name) for file in files if hasattr(file, name))
