"""Launching Triton kernels with little Python around them.

Triton's own launch inspects every argument each time: tens of microseconds, more than the kernels
themselves take at the paper's sizes. Here a kernel is compiled once for fixed sizes, and then
launched with addresses: all intermediate results of a stage are parts of one buffer, so that most
addresses are sums. Pointers are promised to be multiples of 16 bytes (see `ready`), except those
that a kernel lists as `do_not_specialize`.

With other versions of Triton than those whose launcher is known, and in its interpreter, kernels
are launched the ordinary way, with tensors in place of addresses.
"""

from __future__ import annotations

import math
import os
import re
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

FILES = ("triton_shared", "triton_sequential", "triton_parallel", "triton_grouped")
KNOWN = ((3, 4), (3, 6))
"""First and last version of Triton whose compiled kernels take the arguments passed below."""
LARGEST_TILE = 8192
"""Elements that a program can hold at a time."""
ALIGNMENT = 16
"""Elements: parts of a buffer start at multiples of 64 bytes."""
KINDS = {
    **dict.fromkeys(
        ("rule", "order", "ends", "counts", "target", "primary", "context"), torch.int32
    ),
    **dict.fromkeys(("slot_mask", "allowed"), torch.bool),
}
"""Element types of kernel arguments by name; all others are float32."""


@cache
def installed() -> bool:
    return find_spec("triton") is not None


def _direct() -> bool:
    """Whether compiled kernels are launched with addresses."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return False
    try:
        found = tuple(int(x) for x in re.findall(r"\d+", version("triton"))[:2])
    except PackageNotFoundError:
        return False
    return KNOWN[0] <= found <= KNOWN[1]


DIRECT = _direct()


@cache
def kernel(name: str) -> Any:
    """Triton comes with torch's CUDA builds only: its files are imported at first use."""
    files = (import_module(f"nps.kernels.rules.{file}") for file in FILES)
    return next(getattr(file, name) for file in files if hasattr(file, name))


def power(size: int, least: int = 1) -> int:
    """The next power of two, as the sides of Triton's tiles are."""
    return max(least, 1 << (size - 1).bit_length())


def parts(whole: int, part: int) -> int:
    return -(-whole // part)


class Launch:
    """A kernel at fixed sizes. Called with a stream and its leading arguments.

    Args:
        name: of the kernel.
        grid: how many programs.
        numbers: the arguments behind those of the call, up to the constants.
        constants: its compile-time constants, in the order of its signature.
        options: of the compiler, such as num_warps.
    """

    def __init__(
        self,
        name: str,
        grid: tuple[int, ...],
        numbers: tuple[float, ...],
        constants: dict[str, Any],
        **options: Any,
    ) -> None:
        self.name, self.numbers = name, numbers
        self.constants, self.options = constants, options
        self.grid = (*grid, 1, 1)[:3]
        self.rest = (*numbers, *constants.values())
        self.compiled: Any = None

    def __call__(self, stream: int, *arguments: Any) -> None:
        if not DIRECT:
            given = {**self.constants, **self.options}
            kernel(self.name)[self.grid](*arguments, *self.numbers, **given)
            return
        if self.compiled is None:
            self._compile(arguments)
        self.run(
            *self.grid, stream, self.function, self.packed, None, None, None, *arguments, *self.rest
        )

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        function = kernel(self.name)
        names = function.arg_names[: len(arguments)]
        kinds = [
            argument if isinstance(argument, float) else KINDS.get(name, torch.float32)
            for name, argument in zip(names, arguments, strict=True)
        ]
        given = {**self.constants, **self.options}
        compiled = function.warmup(*kinds, *self.numbers, grid=self.grid, **given)
        compiled = compiled.result() if hasattr(compiled, "result") else compiled
        self.run = compiled.run  # loads it onto the current device
        self.function, self.packed = compiled.function, compiled.packed_metadata
        self.compiled = compiled


class Layout:
    """Where the named parts of a buffer start."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.shapes, self.starts, self.size = shapes, {}, 0
        for name, shape in shapes.items():
            self.starts[name] = self.size
            self.size += parts(math.prod(shape), ALIGNMENT) * ALIGNMENT
        self.bytes = {name: 4 * start for name, start in self.starts.items()}


class Space:
    """A buffer of float32 or int32 numbers, and its parts."""

    def __init__(self, layout: Layout, buffer: Tensor) -> None:
        self.layout, self.buffer = layout, buffer
        self.base = buffer.data_ptr() if DIRECT else 0

    @classmethod
    def empty(cls, layout: Layout, like: Tensor) -> Space:
        return cls(layout, torch.empty(layout.size, dtype=torch.float32, device=like.device))

    def __getitem__(self, name: str) -> Any:
        """What a launch takes: the address of a part, or the part."""
        return self.base + self.layout.bytes[name] if self.base else self.view(name)

    def view(self, name: str) -> Tensor:
        start, shape = self.layout.starts[name], self.layout.shapes[name]
        buffer = self.buffer.view(KINDS.get(name, torch.float32))
        return buffer[start : start + math.prod(shape)].view(shape)


def ready(x: Tensor) -> Tensor:
    """Contiguous and aligned, as launches expect tensors to be."""
    if x.is_contiguous():
        return x.clone() if x.data_ptr() & 15 else x
    return x.contiguous()


def address(x: Any) -> Any:
    """What a launch takes for a tensor, or for a number."""
    return x.data_ptr() if isinstance(x, Tensor) and DIRECT else x
