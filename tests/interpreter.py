"""Triton's own interpreter runs kernels on a CPU, in a process that begins with it."""

import os
import subprocess
import sys


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
