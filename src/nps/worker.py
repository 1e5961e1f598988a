"""`python -m nps.worker train …`: the `nps` command as a child process that ends with its parent.

`nps.jobs.processes` starts it and holds the write end of its standard input without ever writing.
When the parent is gone, for whatever reason, the kernel closes that end; the child exits at once,
and its run folder is free for whoever resumes the run.
"""

from __future__ import annotations

import os
import sys
import threading

from nps.errors import reason, say


def _exit_with_parent() -> None:
    os.read(0, 1)  # blocks until the parent's end is closed
    os._exit(1)


if __name__ == "__main__":
    try:
        threading.Thread(target=_exit_with_parent, daemon=True).start()
    except RuntimeError as error:  # without it, a child could outlive its parent
        say(f"error: {reason(error) or error}")
        sys.exit(1)
    from nps.cli import main

    main()
