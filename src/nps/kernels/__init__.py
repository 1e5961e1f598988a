"""Whether GPU kernels of our own, written in Triton, can run here."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor


def possible(x: Tensor) -> bool:
    """Is x on a GPU that Triton has a compiler for, and nothing else compiling?"""
    return x.is_cuda and _installed() and not torch.compiler.is_compiling()


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None
