"""Accelerated forms of operations that are a few lines of plain torch. They change only speed.

There is one file per operation. Each has the function that models call, its plain twin,
`supported(...)`, which says whether the fast form can run, and the fast form with its gradient and
its vmap rule; programs for the GPU are in `triton/`. Callers do not know which form ran. A stack of
seeds (nps.training.stack) is one leading dimension of every tensor, where plain torch under vmap
would launch its kernels seed by seed, or in forms for which the libraries are slow.

Without one of them, a captured training step of a published preset takes this many times as long
(H200, `benchmarks/kernel_gains.py`):

    readout        5.15 atari-nps                       enlarge        1.87 mnist
    conv2d_cudnn   2.66 atari-nps                       feature_norm   1.79 blocks-slots-nps
    conv2d_stack   2.03 mnist                           attention      1.56 blocks-slots-nps
    rules          1.92 arithmetic                      unroll         1.25 atari-nps

An acceleration should gain 1.25 times. `norm_relu_sum` (1.18 blocks-gnn) and `adam` (1.17
arithmetic) stay below that, and are kept because published step times would grow by more than 5 %
without them. `batch_norm` (RPIN's backbone) is not timed alone yet.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

OPERATIONS = (
    "adam",
    "attention",
    "batch_norm",
    "compiled",
    "conv2d_cudnn",
    "conv2d_stack",
    "enlarge",
    "feature_norm",
    "norm_relu_sum",
    "readout",
    "unroll",
)
"""What `without` can switch off."""

_switched_off: set[str] = set()


def possible(x: Tensor) -> bool:
    """True if Triton kernels can run on this tensor: on a GPU, and outside of torch.compile."""
    return not torch.compiler.is_compiling() and x.is_cuda and _triton_installed()


def available(operation: str, x: Tensor) -> bool:
    """True if Triton kernels can run on this tensor and the operation is not switched off."""
    return possible(x) and is_on(operation)


def is_on(operation: str) -> bool:
    return operation not in _switched_off


@contextmanager
def without(*operations: str) -> Iterator[None]:
    """Use the plain form of some operations: to compare with, in tests and benchmarks."""
    unknown = set(operations).difference(OPERATIONS)
    if unknown:
        raise ValueError(f"operations: got {', '.join(sorted(unknown))}, expected {OPERATIONS}")
    before = frozenset(_switched_off)
    _switched_off.update(operations)
    try:
        yield
    finally:
        _switched_off.intersection_update(before)


@functools.cache
def _triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None
