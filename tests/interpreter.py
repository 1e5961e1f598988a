"""Triton's own interpreter runs kernels on a CPU, in a process that begins with it."""

import os
import subprocess
import sys
from types import ModuleType
from unittest import mock


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
