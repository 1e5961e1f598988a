"""Fuse the small operations of a function by `torch.compile`, in training on a GPU.

Capture (nps/capture.py) makes launches cheap, but every operation still reads and writes its
tensors. Compiling takes half a minute, so it is for parts of long trainings: the frames of RPIN's
roll-out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from nps import kernels

P = ParamSpec("P")
R = TypeVar("R")


def compiled_on_gpu(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a function of tensors on a GPU runs compiled while a gradient is recorded.

    Everywhere else, and inside of another compiled function, it runs as it is.
    """

    @functools.cache
    def fused() -> Callable[P, R]:
        # Otherwise kernels are chosen by timing them, and a resumed run could round differently.
        return torch.compile(function, dynamic=False, options={"deterministic": True})

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        pays = torch.is_grad_enabled() and any(map(supported, arguments))
        return (fused() if pays else function)(*arguments, **options)

    return call


def supported(x: Any) -> bool:
    """True if this argument is a tensor for which compiled code can run."""
    return isinstance(x, Tensor) and kernels.available("compiled", x)
