"""`nps train PRESET`: one run, or many seeds as a stack, or one run by several processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from nps.commands.shared import (
    DataFolder,
    Device,
    Precision,
    about,
    field,
    find_device,
    own_data,
    positional,
    quiet,
)
from nps.errors import one_line, say
from nps.flag_help import COMMAND, EXPERIMENT, Flag, flags_of
from nps.flags import parse


def train(args: Sequence[str]) -> None:
    """Train one model into a run folder. The same command again resumes, bit for bit.

    With --seeds N, N models are trained, each into OUT/seed-<s>: at once where they can be stacked,
    otherwise one after the other. Under torchrun, several processes train one model together.

    Examples:
      nps train arithmetic --out runs/a
      nps train arithmetic --out runs/six --rules 6 --seed 1
      nps train arithmetic-sharp --out runs/sharp --seeds 50 --device cuda
      nps train blocks-fixed-nps --out runs/blocks --hidden-dim 64 --epochs 20
      nps train atari-nps --game pong --out runs/pong --device cuda
      nps train world-model --data my.h5 --out runs/mine
      nps train mnist-fifth --start-from runs/mnist/mnist --out runs/fifth
      torchrun --nproc-per-node 2 -m nps train arithmetic --out runs/a
    """
    import torch

    from nps.experiments import find_preset
    from nps.experiments.options import require_options, require_start
    from nps.training import distributed

    name, rest = positional(train, "PRESET", args, _shared_flags, SHARED)
    experiment, preset = find_preset(name)
    options = parse(
        _train_args(experiment.config, preset.config),
        rest,
        prog=f"nps train {name}",
        about=about(train, preset.about),
    )
    given = own_data(experiment, options.data)
    options = dataclasses.replace(options, config=dataclasses.replace(options.config, **given))
    require_options(
        options.out, options.seeds, options.at_once, options.draw_every, options.save_every
    )
    seeds = range(options.seed, options.seed + options.seeds)
    require_start(experiment, preset, options.config, seeds, f"nps train {name}")
    if experiment.threads is not None:
        torch.set_num_threads(experiment.threads)
    with distributed.processes(find_device(options.device)) as device:
        _train(experiment, name, options, device)


SHARED = (
    "Every preset has the flags below, with defaults of its own. `nps train PRESET --help` shows "
    "these, and the flags of its experiment; `nps presets` lists the presets."
)


def _shared_flags() -> list[Flag]:
    """The flags of all presets, without the defaults that are a preset's."""
    from nps.experiments import EXPERIMENTS

    names = [{flag.name for flag in flags_of(each.config)} for each in EXPERIMENTS.values()]
    everywhere = set.intersection(*names)
    config = next(iter(EXPERIMENTS.values())).config
    flags = []
    for flag in flags_of(_train_args(config, config())):
        if flag.section == COMMAND:
            flags.append(flag)
        elif flag.section != EXPERIMENT and flag.name in everywhere:
            flags.append(dataclasses.replace(flag, default=None))
    return flags


def _train_args(kind: type[Any], preset: Any) -> type[Any]:
    """The flags of `nps train`: how to run, and every field of the config."""
    fields: list[Any] = [
        ("out", Path, field("Run folder; with --seeds, the folder that the runs go into.")),
        (
            "seed",
            int,
            field("Seed of initialisation, order and noise; with --seeds, the first.", 0),
        ),
        ("seeds", int, field("Number of seeds to train, each as its own run.", 1)),
        (
            "at_once",
            int | None,
            field("Largest number of seeds in one stack (default: all that fit in memory).", None),
        ),
        ("device", Device, field("cpu or cuda.", "cpu")),
        ("capture", bool, field("On cuda, capture the training step as a CUDA graph.", True)),
        ("precision", Precision, field("float32 is exact; tf32 and bf16 are faster.", "float32")),
        ("fresh", bool, field("Delete the run in --out and start over.", False)),
        ("tensorboard", bool, field("Also write TensorBoard logs.", False)),
        (
            "save_every",
            float,
            field(
                "Minimum seconds between checkpoints; on a signal the run is saved at once.", 30.0
            ),
        ),
        (
            "draw_every",
            int | None,
            field("Epochs between pictures in figures/ (default: only at the end).", None),
        ),
        ("data", DataFolder, dataclasses.field(default=None)),
        (
            "config",
            Annotated[kind, tyro.conf.arg(name="")],
            dataclasses.field(default=preset),
        ),
    ]
    return dataclasses.make_dataclass("TrainArgs", fields, frozen=True, kw_only=True)


def _train(experiment: Any, preset: str, options: Any, device: Any) -> None:
    from nps.experiments.train_runs import runs_in, train_runs
    from nps.training import distributed
    from nps.training.loop import Settings

    runs = runs_in(options.out, options.seed, options.seeds)
    settings = Settings(
        tensorboard=options.tensorboard,
        capture=options.capture,
        precision=options.precision,
        seeds_at_once=options.at_once,
        draw_every=options.draw_every,
        seconds_between_saves=options.save_every,
    )
    report = say if distributed.is_first() else quiet
    fresh = options.fresh
    train_runs(experiment, preset, options.config, runs, device, settings, report, fresh=fresh)
    if not distributed.is_first():
        return
    for run in runs.values():
        validations = [row["validation"] for row in run.metrics() if "validation" in row]
        scores = [found["score"] for found in validations if "score" in found]
        best = f", best validation score {min(scores):.6g}" if scores else ""
        print(one_line(f"{run.folder}: trained{best}"))
    first = next(iter(runs.values())).folder
    print(one_line(f"Test {'it' if len(runs) == 1 else 'one'}: nps eval {first}"))
