"""Provenance of a run: versions, commit, device, command, time. No host names, no paths."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nps.errors import one_line
from nps.version import __version__


def describe(device: torch.device, call: str | None = None) -> dict[str, Any]:
    """What a session is recorded with. `call` is how a program called it; None: a command."""
    return {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": one_line(call or " ".join(["nps", *sys.argv[1:]])),
        "commit": _commit(),
        "nps": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": _name(device),
        "threads": torch.get_num_threads(),
    }


def _commit() -> str | None:
    """The commit of the source tree, `-dirty` with local changes; None for an installed wheel.

    NPS_COMMIT overrides it, for trees that were copied without their history.
    """
    if given := os.environ.get("NPS_COMMIT"):
        return given
    here = Path(__file__).resolve().parent

    def git(*args: str) -> str:
        command = ["git", "-C", str(here), *args]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if git("ls-files", "--error-unmatch", __file__) == "":
            return None
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return "cpu: " + line.split(":", 1)[1].strip()
    except OSError:
        pass
    return f"cpu: {platform.processor() or platform.machine()}"
