"""Triton's own interpreter runs kernels on a CPU, in a process that begins with it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest import mock

from torch import Tensor


def interpreted(program: str) -> str:
    """What the program prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kernels(module: ModuleType, wanted: bool = True):
    """Within it, the module's kernels are taken, or not, whatever it is given."""
    return mock.patch.object(module, "_has_kernels", return_value=wanted)


@contextmanager
def asked(*modules: ModuleType) -> Iterator[list[tuple[ModuleType, Tensor]]]:
    """What the modules' kernels are offered within it, and by which module; they decide as ever."""
    offers: list[tuple[ModuleType, Tensor]] = []

    def spy(module: ModuleType):
        decide = module._has_kernels

        def note(x: Tensor) -> bool:
            offers.append((module, x))
            return decide(x)

        return mock.patch.object(module, "_has_kernels", note)

    with ExitStack() as spies:
        for module in modules:
            spies.enter_context(spy(module))
        yield offers
