"""What `nps inspect` shows of a model of bouncing balls: segments, collisions, roll-outs."""

from __future__ import annotations

from typing import Any

import torch

from nps.experiments.balls.pictures import firing_figure, prediction_picture, rollout_gif
from nps.experiments.balls.task import BallsTask, Part, summary
from nps.inspect import figures
from nps.inspect.report import Figure, Table, Text
from nps.inspect.report import Part as ReportPart
from nps.models.scoff import Scoff
from nps.training.log import png

DRAWN_SCENES = 2


@torch.no_grad()
def inspect_balls(task: BallsTask, model: Scoff) -> list[ReportPart]:
    """The first test scenes with 4 and with 6 to 8 balls: tables, and pictures of two of them."""
    parts = {"4 balls": "test", "6 to 8 balls": "transfer"}
    slots = {"test": task.config.slots, "transfer": task.config.transfer_slots}
    shown = {
        name: next(task.parts(split, slots[split], rollout=True)) for name, split in parts.items()
    }
    found = {name: summary(task.measure(model, part)) for name, part in shown.items()}
    scenes = len(shown["4 balls"].scenes.radius)
    report: list[ReportPart] = [segmentation_table(found, scenes)]
    for name, metrics in found.items():
        report += who_bumped_whom(name, metrics)
    for name, part in shown.items():
        report += pictures(task, model, part, name)
    return report


def segmentation_table(found: dict[str, dict[str, Any]], scenes: int) -> Table:
    columns = {"Foreground ARI": "fg_ari", "ARI": "ari", "Foreground mIoU": "fg_miou"}
    floors = {"": "model", "grid_": "3 × 3 grid", "colour_": "colours", "copy_": "previous frame"}
    rows = [
        [balls, label, *(f"{metrics[prefix + m]:.3f}" for m in columns.values())]
        for balls, metrics in found.items()
        for prefix, label in floors.items()
    ]
    caption = f"The next frame of {scenes} test scenes each (nps eval takes all of them)."
    return Table(["", "segments", *columns], rows, caption, names=2)


def who_bumped_whom(name: str, metrics: dict[str, Any]) -> list[ReportPart]:
    """What the trace, or attention, says about collisions."""
    parts: list[ReportPart] = []
    if "firing_table" in metrics:
        rules = [f"rule {i}" for i in range(len(metrics["firing_table"][0]))]
        rows = [
            [balls, *(f"{100 * share:.0f} %" for share in shares)]
            for balls, shares in zip(("collide", "do not"), metrics["firing_table"], strict=True)
        ]
        caption = f"{name}: how often each rule fires on balls that collide before the next frame."
        parts.append(Table(["balls that", *rules], rows, caption))
    if "partner" in metrics:
        parts.append(
            Text(
                f"{name}: the context of a colliding ball is the one it hits in "
                f"{100 * metrics['partner']:.0f} % of cases (at random: "
                f"{100 * metrics['partner_chance']:.0f} %); {100 * metrics['pair_recall']:.0f} % "
                "of all collisions are told."
            )
        )
    return parts


def pictures(task: BallsTask, model: Scoff, part: Part, name: str) -> list[ReportPart]:
    """True and predicted frames and segments; and which rule fires on which slot."""
    part = part.first(DRAWN_SCENES)
    images, _ = task.draw_frames(part.scenes)
    predicted = task.predict(model, part, images)
    seen = task.config.seen_frames
    word = "transfer" if part.transfer else "test"
    caption = f"{name}: true frames, predictions and their slots; without input after frame {seen}"
    drawn: list[ReportPart] = [
        Figure(f"rollout-{word}", png(prediction_picture(images[:, 1:], predicted)), caption)
    ]
    if not figures.available():  # Pillow comes with matplotlib
        return drawn
    moving = f"{name}: the first scene as a moving picture"
    if predicted.trace is not None:
        moving += "; the arrow leads from the context to the slot that a rule changes most"
    drawn.append(Figure(f"rollout-{word}", rollout_gif(images[:, 1:], predicted, seen), moving))
    if predicted.trace is not None:
        rule = predicted.trace.rule[0].cpu().numpy()
        about = f"{name}: the rule that fires on each slot, stage by stage, in the first scene"
        drawn.append(Figure(f"firing-{word}", firing_figure(rule, seen), about))
    return drawn
