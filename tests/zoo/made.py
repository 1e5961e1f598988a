"""A tiny trained and tested run, and commands called in this process."""

import contextlib
import io
from pathlib import Path

from nps import cli

TINY = (
    "--epochs=2",
    "--train-examples=640",
    "--validation-examples=50",
    "--test-examples=40",
    "--validate-every=1",
)


def ended(*args: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(args)
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue(), err.getvalue()


def commands(*args: str, code: int = 0) -> tuple[str, str]:
    """What a command printed, which ends as expected."""
    found, out, err = ended(*args)
    assert found == code, err
    return out, err


def tiny_run(folder: Path) -> Path:
    commands("train", "arithmetic", "--out", str(folder), "--seed", "3", *TINY)
    commands("eval", str(folder))
    return folder
