"""Launching Triton kernels with little Python around them.

Triton's own launch inspects every argument each time: tens of microseconds, more than the kernels
themselves take at the paper's sizes. Here a kernel is compiled once for fixed sizes, and then
launched with addresses. Its arguments are found by name: each is a tensor of the call or a part of
one of its buffers, at a distance known beforehand. Pointers are promised to be multiples of 16
bytes (see `ready`), except those that a kernel lists as `do_not_specialize`.

With other versions of Triton than those whose launcher is known, and in its interpreter, kernels
are launched the ordinary way, with tensors in place of addresses.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

FILES = ("shared", "sequential", "parallel", "grouped", "maps")
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


def _version() -> tuple[int, ...]:
    """Of a Triton that compiles; (0, 0) for none."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return 0, 0
    try:
        return tuple(int(x) for x in re.findall(r"\d+", version("triton"))[:2])
    except PackageNotFoundError:
        return 0, 0


VERSION = _version()
DIRECT = KNOWN[0] <= VERSION <= KNOWN[1]
"""Whether compiled kernels are launched with addresses."""


@cache
def kernel(name: str) -> Any:
    """Triton comes with torch's CUDA builds only: its files are imported at first use."""
    files = (import_module(f"nps.kernels.rules.triton_{file}") for file in FILES)
    return next(getattr(file, name) for file in files if hasattr(file, name))


def power(size: int, least: int = 1) -> int:
    """The next power of two, as the sides of Triton's tiles are."""
    return max(least, 1 << (size - 1).bit_length())


def parts(whole: int, part: int) -> int:
    return -(-whole // part)


class Layout:
    """Where the named parts of a buffer of 4-byte numbers start."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        self.shapes, self.starts, self.size = shapes, {}, 0
        self.templates: dict[str, Tensor] = {}  # of the parts, and of the gaps between them
        for name, shape in shapes.items():
            self.starts[name] = self.size
            self.templates[name] = torch.empty(shape, device="meta")
            gap = -math.prod(shape) % ALIGNMENT
            if gap:
                self.templates[f"behind {name}"] = torch.empty(gap, device="meta")
            self.size += math.prod(shape) + gap

    def empty(self, like: Tensor, times: int = 1) -> Tensor:
        return torch.empty(times * self.size, dtype=torch.float32, device=like.device)

    def view(self, buffer: Tensor, name: str) -> Tensor:
        start, shape = self.starts[name], self.shapes[name]
        buffer = buffer.view(KINDS.get(name, torch.float32))
        return buffer[start : start + math.prod(shape)].view(shape)

    def views(self, buffer: Tensor) -> list[Tensor]:
        """All parts: one call takes a fraction of the time of a slice and a view each."""
        every = torch._C._nn.unflatten_dense_tensors(buffer, [*self.templates.values()])
        return [x for name, x in zip(self.templates, every, strict=True) if name in self.shapes]


class Places:
    """Where launches find their arguments among the bases: tensors, numbers, and buffers."""

    def __init__(self, names: Sequence[str], **buffers: Layout) -> None:
        self.of = {name: (i, 0) for i, name in enumerate(names)}
        for i, layout in enumerate(buffers.values(), len(names)):
            self.of |= {part: (i, start) for part, start in layout.starts.items()}


class Launch:
    """A kernel at fixed sizes.

    Args:
        places: of its leading arguments.
        name: of the kernel.
        grid: how many programs.
        numbers: the arguments behind those that have places, up to the constants.
        constants: its compile-time constants, in the order of its signature.
        given: for arguments whose place has another name, that name.
        options: of the compiler, such as num_warps.
    """

    def __init__(
        self,
        places: Places,
        name: str,
        grid: tuple[int, ...],
        numbers: tuple[float, ...],
        constants: dict[str, Any],
        given: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.name, self.numbers = name, numbers
        self.constants, self.options = constants, options
        self.grid = (*grid, 1, 1)[:3]
        names = kernel(name).arg_names
        self.arguments = names[: len(names) - len(numbers) - len(constants)]
        self.places = [places.of[(given or {}).get(x, x)] for x in self.arguments]
        self.settings: tuple[Any, ...] = ()
        self.run: Any = None

    def prepare(self, stream: int, bases: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """The function that launches it, and all arguments of that function."""
        if self.run is None:
            self._compile(bases)
        found = (bases[i] + 4 * start for i, start in self.places)
        last = *self.numbers, *self.constants.values()
        return self.run, (*self.grid, stream, *self.settings, *found, *last)

    def _compile(self, bases: tuple[Any, ...]) -> None:
        kinds = [
            bases[i] if isinstance(bases[i], float) else KINDS.get(name, torch.float32)
            for name, (i, _) in zip(self.arguments, self.places, strict=True)
        ]
        given = {**self.constants, **self.options}
        compiled = kernel(self.name).warmup(*kinds, *self.numbers, grid=self.grid, **given)
        compiled = compiled.result() if hasattr(compiled, "result") else compiled
        run = compiled.run  # loads it onto the current device
        settings: tuple[Any, ...] = compiled.packed_metadata, None, None, None
        if VERSION == (3, 6) and not (run.global_scratch_size or run.profile_scratch_size):
            # Past the wrapper that would allocate scratch memory.
            settings = run.launch_cooperative_grid, run.launch_pdl, None, None, *settings
            run = run.launch
        self.settings = compiled.function, *settings
        self.run = run

    def ordinary(self, bases: tuple[Any, ...]) -> None:
        """Launch it with tensors, the way of Triton itself."""
        arguments = []
        for name, (i, start) in zip(self.arguments, self.places, strict=True):
            x = bases[i]
            if isinstance(x, Tensor) and x.dtype != torch.bool:
                x = x.view(-1)[start:].view(KINDS.get(name, torch.float32))
            arguments.append(x)
        given = {**self.constants, **self.options}
        kernel(self.name)[self.grid](*arguments, *self.numbers, **given)


class Steps:
    """Launches one after the other, on bases whose arguments stand in the places' order.

    Training calls find most tensors at the same addresses again: then so are all arguments.
    """

    def __init__(self, *launches: Launch) -> None:
        self.launches = launches
        self.prepared: tuple[Any, list[tuple[Any, tuple[Any, ...]]]] = None, []

    def __call__(self, stream: int, bases: tuple[Any, ...]) -> None:
        if not DIRECT:
            for launch in self.launches:
                launch.ordinary(bases)
            return
        known, calls = self.prepared
        if known != (stream, bases):
            calls = [launch.prepare(stream, bases) for launch in self.launches]
            self.prepared = (stream, bases), calls
        for run, arguments in calls:
            run(*arguments)


def ready(x: Tensor) -> Tensor:
    """Contiguous and aligned, as launches expect tensors to be."""
    if x.is_contiguous():
        return x.clone() if x.data_ptr() & 15 else x
    return x.contiguous()


def base(x: Any) -> Any:
    """What a place is counted from: the address of a tensor; a number stays what it is."""
    return x.data_ptr() if DIRECT and isinstance(x, Tensor) else x


def further(x: Any, elements: int) -> Any:
    """A base so many elements on."""
    return x + 4 * elements if DIRECT else x.view(-1)[elements:]
