"""`nps data record ENV`: record episodes of a Gymnasium environment for a world model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from nps.commands.shared import about, positional, require
from nps.errors import UserError
from nps.flag_help import flags_of
from nps.flags import parse

if TYPE_CHECKING:
    from nps.worlds.custom import RecordedEpisodes


@dataclass(frozen=True)
class RecordArgs:
    out: Path
    """The file to write: .npz or .h5. An existing one is not overwritten."""
    episodes: int = 200
    """Number of episodes."""
    steps: int = 100
    """Most actions of an episode; longer ones are cut."""
    size: str | None = None
    """Resize images: 50 for 50 x 50 pixels, or HEIGHTxWIDTH, e.g. 64x96 (default: as they are)."""
    seed: int = 0
    """Seed of the environment and of random actions."""
    policy: str | None = None
    """What chooses the actions, as module:function, called with the observation and the action
    space (default: random actions). The module may be in the current folder."""
    wrapper: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A Gymnasium wrapper around the environment, as module:Class; may be given several times, the
    innermost first."""


def record(args: Sequence[str]) -> None:
    """Record episodes of a Gymnasium environment in one file.

    ENV is a name that gymnasium.make knows, or package:name for one from another package. Its
    observations are recorded if they are images, otherwise the rendered frames.

    Examples:
      nps data record CartPole-v1 --size 50 --out pole.npz
      nps data record minigrid:MiniGrid-DoorKey-5x5-v0 --size 50 --out door.npz
      nps data record CartPole-v1 --policy my_file:balance --out pole.h5
      nps data record ALE/Pong-v5 --wrapper gymnasium.wrappers:GrayscaleObservation --out pong.npz
    """
    from nps.training.progress import ProgressLine
    from nps.worlds.custom import load_episodes
    from nps.worlds.custom import record as recorder
    from nps.worlds.custom.environment import make
    from nps.worlds.custom.origin import KEY, Origin
    from nps.worlds.custom.user_code import find, modules_here

    name, rest = positional(record, "record ENV", args, lambda: flags_of(RecordArgs))
    options = parse(RecordArgs, rest, prog="nps data record ENV", about=about(record))
    require(options.episodes >= 1, f"--episodes: got {options.episodes}, expected at least 1")
    require(options.steps >= 1, f"--steps: got {options.steps}, expected at least 1")
    size, out = _size(options.size), options.out.expanduser()
    recorder.require_output(out)
    with modules_here():
        policy = None if options.policy is None else find("--policy", options.policy)
        env = make(name, options.wrapper)
        try:
            with ProgressLine(name, options.episodes, 0, "episodes") as line:
                arrays = recorder.record(
                    env,
                    options.episodes,
                    options.steps,
                    seed=options.seed,
                    size=size,
                    policy=policy,
                    report=line.update,
                )
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        finally:
            env.close()
    origin = Origin(name, tuple(options.wrapper), size)
    recorder.save(out, {**arrays, KEY: origin.array()})
    found = load_episodes(out)
    lengths = found.episode.bincount() - 1
    print(
        f"{out}: {len(lengths)} episodes of {lengths.min()} to {lengths.max()} steps, "
        f"{lengths.sum()} transitions, images {' x '.join(map(str, found.obs.shape[1:]))}"
    )
    print(_next(out, found))


def _next(out: Path, found: RecordedEpisodes) -> str:
    """The command that trains on the file, or why there is none."""
    import torch

    from nps.experiments.custom.config import Config
    from nps.experiments.custom.data import split

    config = Config()
    try:
        train = split(found, config, torch.device("cpu"))["train"]
    except ValueError as error:
        return f"No model can be trained on it: {error}"
    command = ["nps", "train", "world-model", "--data", str(out), "--out", f"runs/{out.stem}"]
    examples = int((train.lengths - 1).sum())
    if examples < config.batch_size:
        command += ["--batch-size", str(examples)]
    return f"Train on it: {shlex.join(command)}"


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    sides = re.fullmatch(r"([1-9]\d{0,3})(?:x([1-9]\d{0,3}))?", text)
    if sides is None:
        raise UserError(f"--size: got {text!r}, expected a side or HEIGHTxWIDTH, e.g. 50 or 64x96")
    return int(sides[1]), int(sides[2] or sides[1])
