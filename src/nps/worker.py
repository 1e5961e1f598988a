"""`python -m nps.jobs.worker train …`: the `nps` command as a child that ends with its parent.

The parent holds the other end of our standard input and never writes. When it is gone, however it
went, the kernel closes that end; we leave at once, and the run folder is free for whoever goes on.
"""

from __future__ import annotations

import os
import threading


def _leave_with_parent() -> None:
    os.read(0, 1)  # blocks until the other end is closed
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    from nps.cli import main

    main()
