"""What `nps inspect` shows of a model of falling towers: errors, who holds whom, falls."""

from __future__ import annotations

import torch

from nps.experiments.stacks.evaluation import Part, summary
from nps.experiments.stacks.pictures import fall_gif, tracks_figure
from nps.experiments.stacks.task import StacksTask
from nps.inspect import figures
from nps.inspect.report import Figure, Table
from nps.inspect.report import Part as ReportPart
from nps.models.rpin import RPIN, Prediction
from nps.worlds.stacks import KINDS, boxes

SHOWN = 4
SETS = {"test": "three shapes", "four": "four shapes"}
LEVELS = ("lowest", "second", "third", "fourth")


@torch.no_grad()
def inspect_stacks(task: StacksTask, model: RPIN) -> list[ReportPart]:
    """The first test towers of three and of four shapes: tables, and pictures of some."""
    parts = {split: next(iter(task.batches(split))) for split in SETS}
    found = {split: summary(task.measure(model, part)) for split, part in parts.items()}
    report: list[ReportPart] = [error_table(found, len(parts["test"].images))]
    report += rule_table(found)
    for split, part in parts.items():
        report += pictures(task, model, part, split)
    return report


def error_table(found: dict[str, dict[str, float]], towers: int) -> Table:
    floors = {"": "model, mean draw", "best10_": "model, best of 10"}
    floors |= {"centre_": "model, likeliest latent", "still_": "nothing moves"}
    rows = [
        [SETS[split], label, *(f"{metrics[f'{prefix}{m}']:.2f}" for m in ("p1", "p2"))]
        for split, metrics in found.items()
        for prefix, label in floors.items()
    ]
    caption = (
        f"1,000 × mean squared distance in image sides, of {towers} test towers each (nps eval "
        "takes all of them); near: the frames of training, far: those after them."
    )
    return Table(["", "", "near", "far"], rows, caption, names=2)


def rule_table(found: dict[str, dict[str, float]]) -> list[ReportPart]:
    """How often rules fire, by level and by shape, and who holds whom; empty without rules."""
    with_rules = {split: metrics for split, metrics in found.items() if "fires_level_0" in metrics}
    if not with_rules:
        return []
    rows = {f"fires on the {level}": f"fires_level_{i}" for i, level in enumerate(LEVELS)}
    rows |= {f"fires on {kind}s": f"fires_{kind}" for kind in KINDS}
    rows |= {"context is touched": "held", "by chance": "held_chance"}
    cells = [
        [name, *(f"{m[key]:.0%}" if key in m else "–" for m in with_rules.values())]
        for name, key in rows.items()
    ]
    caption = (
        "How often a rule, not the null rule, fires; and of shapes that move and touch another "
        "one, how often the rule's context is one they touch."
    )
    tables: list[ReportPart] = [Table(["", *(SETS[split] for split in with_rules)], cells, caption)]
    return [*tables, use_table(with_rules["test"])] if "test" in with_rules else tables


def use_table(metrics: dict[str, float]) -> Table:
    """Which rule is used on which level, and on which kind of shape."""
    columns = {level: f"level_{i}" for i, level in enumerate(LEVELS)}
    columns |= {f"{kind}s": kind for kind in KINDS}
    columns = {name: key for name, key in columns.items() if f"use_null_{key}" in metrics}
    rules = [key.split("_")[1] for key in metrics if key.startswith("use_") and "level_0" in key]
    rows = [
        [
            "null rule" if rule == "null" else f"rule {rule}",
            *(f"{metrics[f'use_{rule}_{key}']:.0%}" for key in columns.values()),
        ]
        for rule in rules
    ]
    caption = "Towers of three shapes: how often each rule is used, by level and by kind of shape."
    return Table(["", *columns], rows, caption)


def pictures(task: StacksTask, model: RPIN, part: Part, split: str) -> list[ReportPart]:
    """Ways of some towers, and one as a moving picture; nothing without matplotlib."""
    if not figures.available():
        return []
    episodes, images = part.episodes.at(slice(SHOWN)), part.images[:SHOWN]
    predicted: Prediction = model.unroll(
        model.encode(model.backbone(images), boxes(episodes.position[:, 0])),
        torch.zeros_like(part.latents[:SHOWN, 0]),  # the likeliest of all latents
        task.config.test_frames,
        return_trace=True,
    )
    ways = tracks_figure(images.cpu().numpy(), episodes, predicted.boxes[..., :2])
    film = fall_gif(episodes, predicted, task.config.frames)
    name = SETS[split]
    return [
        Figure(f"ways-{split}", ways, f"{name}: true ways in white, predicted ones in colour"),
        Figure(f"fall-{split}", film, f"{name}: the first tower as a moving picture"),
    ]
