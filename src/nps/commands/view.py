"""`nps view RUN|MODEL…`: the rule workbench in the browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nps.commands.shared import DataFolder, Device, about, positional, require_exists
from nps.errors import UserError, one_line
from nps.flag_help import flags_of
from nps.flags import parse


@dataclass(frozen=True)
class ViewArgs:
    port: int = 0
    """Port on this machine; 0 takes any that is free."""
    no_open: bool = False
    """Only print the address, and leave the browser alone."""
    which: Literal["best", "last"] = "best"
    """The model with the best validation score, or the last one."""
    device: Device = "cpu"
    """cpu or cuda."""
    data: DataFolder = None


def view(args: Sequence[str]) -> None:
    """See, question and edit what trained models have learned, in the browser.

    Plays the episodes of the validation set: which rule fires on which slot, why, and what would
    happen if it did not. Several models are compared on the same episode. Only this machine can
    open the page; Ctrl-C ends it.

    Examples:
      nps view blocks-best
      nps view runs/sharp
      nps view runs/blocks/seed-0 runs/blocks/seed-1
      nps view runs/mine --data my.h5 --port 8765 --no-open
    """
    import nps
    from nps.viewer.serve import prepare, run
    from nps.viewer.session import Session

    first, rest = positional(view, "RUN", args, lambda: flags_of(ViewArgs))
    names = [first]
    while rest and not rest[0].startswith("-"):
        names.append(rest[0])
        rest = rest[1:]
    options = parse(ViewArgs, rest, prog="nps view RUN", about=about(view))
    if not 0 <= options.port <= 65535:
        raise UserError(f"--port: got {options.port}, expected 0 to 65535")
    require_exists(options.data)
    serving = prepare(port=options.port)  # what is missing is said before anything is loaded
    data = None if options.data is None else str(options.data)
    runs = []
    for name in names:
        print(one_line(f"loading {name} ..."), flush=True)
        runs.append(nps.load(name, options.device, options.which, data=data))
        _ = runs[-1].workbench
    print(f"{serving.address}\nCtrl-C ends it.", flush=True)
    if not options.no_open and _has_display():
        import webbrowser

        webbrowser.open(serving.address)
    run(serving, Session(runs))


def _has_display() -> bool:
    """Whether a browser with windows can be opened; one in the terminal would hide the address."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
