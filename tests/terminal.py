"""Run a Python command in a pseudo-terminal, to see what a user sees."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios


def in_terminal(*args: str, columns: int = 80, **variables: str) -> tuple[int, str]:
    """The exit code of `python ARGS`, and all that it printed, without colours."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    inherited = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
    environment = {
        **inherited,
        "TERM": "xterm-256color",
        "COLUMNS": str(columns),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    process = subprocess.Popen(
        [sys.executable, *args], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal closes when the process ends
        while data := os.read(master, 4096):
            shown += data
    os.close(master)
    text = shown.decode().replace("\r\n", "\n")
    return process.wait(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
