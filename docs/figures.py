"""Draw the figures of README and docs into docs/images.

    python docs/figures.py                                # all that results/ and the worlds give
    python docs/figures.py --run runs/best/seed-0         # and those of a trained blocks-best
    python docs/figures.py --own runs/empty               # and of docs/guides/environments.md
    python docs/figures.py --balls balls-best             # and of a trained model of balls
    python docs/figures.py --page                         # and of the workbench, in a Chromium

The figures of an experiment are drawn by its report (`nps table results/X --report`), those of
speed by `nps bench --table … --draw`. Pushes and roll-outs need a trained model, and models are not
part of the repository: `nps train blocks-best --seeds 5 --device cuda --out runs/best` makes one.
Without it the animation shows true pushes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from nps.experiments.blocks.pushes import Pushes, pushes_from
from nps.inspect import style
from nps.inspect.animations import Arrow, Scene, gif
from nps.inspect.grids import grid
from nps.training.log import png
from nps.worlds import blocks, sprites, stacks
from nps.worlds.blocks.drawing import CELL
from nps.worlds.stacks.making import make_episode

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
REPORTS = {
    "arithmetic": {"rule-use": "arithmetic-usage"},
    "mnist": {
        "grid-mnist-balanced": "mnist-grid",
        "grid-mnist": "mnist-grid-paper",
        "grid-mnist-fifth": "mnist-grid-fifth",
        "composition": "mnist-composition",
        "strip": "mnist-strip",
    },
    "blocks": {
        "metric": "blocks-metric",
        "stages": "blocks-stages",
        "learning": "blocks-learning",
    },
    "atari": {"ranking": "atari-ranking", "ranking-aligned": "atari-ranking-aligned"},
    "balls": {"learning": "balls-learning"},
}
"""results folder -> figure of its report -> name in docs/images."""
BENCH = {
    "cpu": ("bench-cpu.json", "bench-rules-cpu.json", "bench-batch-cpu.json"),
    "cuda": ("h200/sweep-slots.json", "h200/sweep-slots-64.json", "h200/sweep-rules.json"),
}
TRAINED = {"pushes": "blocks-pushes", "rollouts": "blocks-rollouts"}
OWN = {"rollouts.png": "own-rollouts.png"}
"""Of a model of MiniGrid-Empty, which docs/guides/environments.md records and trains."""
BALLS = {
    "rollout-test.gif": "balls-rollout.gif",
    "rollout-transfer.gif": "balls-rollout-transfer.gif",
    "firing-transfer.png": "balls-firing.png",
}
TOOLS = ("playback", "why", "whatif", "rules", "play", "compare", "share")
PAGE = ("workbench.gif", *(f"workbench-{tool}.png" for tool in TOOLS))
"""Of the page of `nps view`, filmed by docs/film.py in a real Chromium."""
MODES = ("observed", "unobserved", "fixed-unobserved", "fixed-palette")
ROUNDS, WORLDS = 4, 4


def nps(*args: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "nps", *map(str, args)], check=True, cwd=ROOT)


def from_reports() -> None:
    """Reports are written beside their runs, so into a copy: results/ stays as it is."""
    for experiment, names in REPORTS.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(ROOT / "results" / experiment, Path(folder) / experiment)
            nps("table", copy, "--report")
            for source, name in names.items():
                shutil.copyfile(copy / f"figures/{source}.png", IMAGES / f"{name}.png")


def from_bench() -> None:
    for files in BENCH.values():
        nps(
            "bench", "--table", *(ROOT / "results/bench" / file for file in files), "--draw", IMAGES
        )


def of_modes() -> bytes:
    """Four worlds in each of the modes."""
    with style.settings():
        figure = style.new_figure(4.4, 5.6)
        axes = figure.subplots(len(MODES), WORLDS)
        for row, mode in zip(axes, MODES, strict=True):
            state = blocks.start(WORLDS, mode, torch.Generator().manual_seed(0))
            for axis, image in zip(row, blocks.render(state).numpy(), strict=True):
                axis.imshow(image)
                style.image_axes(axis)
            row[0].set_ylabel(mode, rotation=0, ha="right", va="center")
        return style.png(figure)


def of_towers() -> bytes:
    """Three towers that fall."""
    frames = (0, 4, 6, 8, 15)
    with style.settings():
        figure = style.new_figure(4.0, 6.4)
        axes = figure.subplots(3, len(frames))
        for number, row in enumerate(axes):
            falls = make_episode(np.random.default_rng((0, number + 1)))
            tower = stacks.Episodes.of(type(falls)(*(part[None] for part in falls)))
            for axis, frame in zip(row, frames, strict=True):
                axis.imshow(stacks.render(tower.shapes(frame), tower.colour)[0].numpy())
                style.image_axes(axis)
        for axis, frame in zip(axes[0], frames, strict=True):
            axis.set_title(f"frame {frame}")
        return style.png(figure)


def of_sprites() -> bytes:
    """Some videos of Sprites-MOT, the last with sprites that bounce, a column for each frame."""
    videos = [sprites.make_videos(2, seed=5), sprites.make_videos(64, seed=0, bounce=True)]
    bounced = int(videos[1].collided.flatten(2).any(-1)[:, 3:7].sum(1).argmax())
    some = [videos[0], videos[1].at(slice(bounced, bounced + 1))]
    images = torch.cat([sprites.render(each).images for each in some])
    return png(grid(images.numpy()))


def true_pushes() -> tuple[Pushes, list[int]]:
    """Pushes that are one action away from random states, and for each its pusher."""
    pushes = pushes_from(blocks.start(400, "fixed-palette", torch.Generator().manual_seed(0)), True)
    return pushes, pushes.pusher.tolist()


def pushes_of(run: Path) -> tuple[Pushes, list[int]]:
    """Pushes of the test set, and for each the block that the model took as the context."""
    from nps.experiments import load_task
    from nps.experiments.blocks.pushes import last_fired, slot_changes, slots_of_blocks

    task, model = load_task(run)
    slot = slots_of_blocks(slot_changes(model, task.sets["train"], task.config.objects)).slot
    pushes = pushes_from(task.acted_from("test"), task.config.stay)
    with torch.no_grad():
        _, trace = model.traced(model.encode(blocks.render(pushes.before)), pushes.action)
    block_of = {int(m): block for block, m in enumerate(slot)}
    fired = last_fired(trace, slot[pushes.pushed])
    return pushes, [block_of.get(int(m), -1) for m in fired.context]


def animation(pushes: Pushes, contexts: list[int]) -> bytes:
    """Some pushes, each before, with the arrow from context to pushed block, and after."""
    step = len(pushes.action) // (ROUNDS * WORLDS)
    some = [step * n for n in range(ROUNDS * WORLDS)]
    scenes = []
    for start in range(0, len(some), WORLDS):
        shown = some[start : start + WORLDS]
        before, after = (
            [blocks.render(state.at(p)).numpy() for p in shown]
            for state in (pushes.before, pushes.after)
        )
        arrows = []
        for p in shown:
            middle = ((pushes.before.positions[p] + 0.5) * CELL - 0.5).tolist()
            context, pushed = contexts[p], int(pushes.pushed[p])
            right = context == int(pushes.pusher[p])
            arrows.append(
                Arrow(tuple(middle[context]), tuple(middle[pushed]), right)
                if context >= 0
                else None
            )
        none = [None] * WORLDS
        scenes += [
            Scene(before, none, "a block is about to push another", 900),
            Scene(
                before,
                arrows,
                "bind: the pushed block's slot takes the pusher as its context",
                1500,
            ),
            Scene(after, none, "apply: the rule moves the pushed block", 1200),
        ]
    return gif(scenes)


def of_balls(run: str) -> None:
    """Of a trained model of balls: a run folder, or the name of a model that ships with nps."""
    model = Path(run).resolve() if Path(run).exists() else run
    with tempfile.TemporaryDirectory() as folder:
        nps("inspect", model, "--out", Path(folder) / "x.png")
        for source, name in BALLS.items():
            shutil.copyfile(Path(folder) / f"x-{source}", IMAGES / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="a trained run of blocks-best")
    parser.add_argument("--own", type=Path, help="a trained run of docs/guides/environments.md")
    parser.add_argument("--balls", help="a trained run of balls, or the name of a shipped one")
    parser.add_argument("--page", action="store_true", help="film the workbench")
    given = parser.parse_args()
    run = given.run
    if given.page:
        subprocess.run([sys.executable, ROOT / "docs/film.py"], check=True)
    if given.own is not None:
        nps("inspect", given.own.resolve())
        for source, name in OWN.items():
            shutil.copyfile(given.own / "figures" / source, IMAGES / name)
    if given.balls is not None:
        of_balls(given.balls)
    from_reports()
    from_bench()
    (IMAGES / "blocks.png").write_bytes(of_modes())
    (IMAGES / "stacks.png").write_bytes(of_towers())
    (IMAGES / "sprites.png").write_bytes(of_sprites())
    if run is None:
        (IMAGES / "pushes.gif").write_bytes(animation(*true_pushes()))
        return
    (IMAGES / "pushes.gif").write_bytes(animation(*pushes_of(run)))
    with tempfile.TemporaryDirectory() as folder:
        nps("inspect", run.resolve(), "--out", Path(folder) / "x.png")
        for source, name in TRAINED.items():
            shutil.copyfile(Path(folder) / f"x-{source}.png", IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
