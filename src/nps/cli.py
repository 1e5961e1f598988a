"""The command line: `nps run | train | eval | inspect | view | sweep | bench | table` and more.

A user's mistake is reported in one line with exit code 2, a run that cannot continue in one line
with exit code 1. A run that is stopped saves first and exits with 143 (SIGTERM) or 130 (Ctrl-C).
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from nps.allocator import keep_freed_memory
from nps.commands import COMMANDS
from nps.errors import RunFailed, UserError, nearest, reason, say
from nps.training.signals import Interrupted
from nps.version import __version__

USAGE = """\
nps: Neural Production Systems, the paper's experiments and your own

  nps run EXPERIMENT       train and test the models of an experiment, report
  nps train PRESET         train one model; the same command again resumes
  nps eval RUN             test a trained model: its numbers, and a verdict
  nps inspect RUN          see its rules: what each one does, and for what
  nps view RUN...          play, question and edit its rules in the browser
  nps sweep PRESET         train a grid of configs, several seeds each
  nps table RESULTS        print the results table of a folder of runs
  nps presets              list all presets
  nps models               list the trained models that ship with nps
  nps push RUN REPO        upload a model to the Hugging Face hub; pull gets one
  nps bench                time the layers against GNN and attention
  nps data WORLD           mnist, atari, stacks: get the files; record: your own

  nps COMMAND --help       flags and examples

Examples:
  nps run arithmetic --quick
  nps train arithmetic-sharp --out runs/sharp --seed 3
  nps train world-model --data my.h5 --out runs/mine
  nps eval runs/sharp
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `nps`."""
    args = list(sys.argv[1:] if argv is None else argv)
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):  # names and numbers print in any encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _dispatch(args)
        sys.stdout.flush()
    except UserError as error:
        say(f"error: {error}")
        sys.exit(2)
    except RunFailed as error:
        say(f"error: {error}")
        sys.exit(1)
    except Interrupted as stop:
        say(f"{stop}; the same command resumes from there")
        sys.exit(stop.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # e.g. `nps presets | head`
        _write_no_more()
    except (OSError, MemoryError, RuntimeError) as error:
        if (why := reason(error)) is None:
            raise
        _write_no_more()
        say(f"error: {why}")
        sys.exit(1)


def _write_no_more() -> None:
    """Discard unprinted output: otherwise a full disk is reported again when Python exits."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
    elif args[0] == "--version":
        print(__version__)
    elif args[0] in COMMANDS:
        COMMANDS[args[0]](args[1:])
    else:
        raise UserError(f"unknown command {args[0]!r}{nearest(args[0], COMMANDS)}")
