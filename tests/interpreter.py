"""Run kernels on a CPU by Triton's interpreter, force them on or off, and watch them chosen."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest import mock

from torch import Tensor


def interpreted(program: str) -> str:
    """Run a program in a new process with Triton's interpreter; its output."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kernels(module: ModuleType, wanted: bool = True):
    """Use the kernels of an operation, or its plain twin, whatever the input."""
    return mock.patch.object(module, "supported", return_value=wanted)


@contextmanager
def decisions(*modules: ModuleType) -> Iterator[list[tuple[ModuleType, Tensor]]]:
    """The tensors that these operations decide about, in order; they decide as usual."""
    seen: list[tuple[ModuleType, Tensor]] = []

    def spy(module: ModuleType):
        decide = module.supported

        def note(x: Tensor) -> bool:
            seen.append((module, x))
            return decide(x)

        return mock.patch.object(module, "supported", note)

    with ExitStack() as spies:
        for module in modules:
            spies.enter_context(spy(module))
        yield seen
