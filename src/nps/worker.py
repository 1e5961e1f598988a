"""`python -m nps.worker train …`: the `nps` command as a child process that ends with its parent.

`nps.jobs.processes` starts it and holds the write end of its standard input without ever writing.
When the parent is gone, for whatever reason, the kernel closes that end; the child exits at once,
and its run folder is free for whoever resumes the run.
"""

from __future__ import annotations

import os
import threading


def _exit_with_parent() -> None:
    os.read(0, 1)  # blocks until the parent's end is closed
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    from nps.cli import main

    main()
