"""The commands of `nps`, one per file. Each imports what it needs when it is called."""

from collections.abc import Callable, Sequence

from nps.commands.bench import bench
from nps.commands.data import data
from nps.commands.evaluate import evaluate
from nps.commands.inspect import inspect
from nps.commands.models import models
from nps.commands.pull import pull
from nps.commands.push import push
from nps.commands.run import run
from nps.commands.sweep import sweep
from nps.commands.table import presets, table
from nps.commands.train import train
from nps.commands.view import view

COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "run": run,
    "train": train,
    "eval": evaluate,
    "inspect": inspect,
    "view": view,
    "sweep": sweep,
    "table": table,
    "presets": presets,
    "models": models,
    "push": push,
    "pull": pull,
    "bench": bench,
    "data": data,
}
