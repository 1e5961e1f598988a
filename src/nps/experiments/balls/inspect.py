"""What `nps inspect` shows of a model of bouncing balls: segments, collisions, roll-outs."""

from __future__ import annotations

from typing import Any

import torch

from nps.experiments.balls.evaluation import Part, matched, predict, summary
from nps.experiments.balls.firing import collisions_of_slots, firing_figure, one_rule
from nps.experiments.balls.pictures import prediction_picture, rollout_gif
from nps.experiments.balls.task import BallsTask
from nps.inspect import figures
from nps.inspect.report import Figure, Table, Text
from nps.inspect.report import Part as ReportPart
from nps.models.scoff import Scoff
from nps.rules import Trace
from nps.training.log import png

DRAWN_SCENES = 2
TOLD = "pair_recall_chance"


@torch.no_grad()
def inspect_balls(task: BallsTask, model: Scoff) -> list[ReportPart]:
    """The first test scenes with 4 and with 6 to 8 balls: tables, and pictures of two of them."""
    parts = {"4 balls": "test", "6 to 8 balls": "transfer"}
    slots = {"test": task.config.slots, "transfer": task.config.transfer_slots}
    shown = {
        name: next(task.parts(split, slots[split], rollout=True)) for name, split in parts.items()
    }
    task.reading = task.choose_reading(model)
    found = {name: summary(task.measure(model, part), task.reading) for name, part in shown.items()}
    scenes = len(shown["4 balls"].scenes.radius)
    report: list[ReportPart] = [segmentation_table(found, scenes)]
    report += firing_table(found)
    report += [text for name, metrics in found.items() for text in who_bumped_whom(name, metrics)]
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


def firing_table(found: dict[str, dict[str, Any]]) -> list[ReportPart]:
    """How often each rule fires at collisions and elsewhere; empty of a model without rules."""
    tables = {name: m["firing_table"] for name, m in found.items() if "firing_table" in m}
    if not tables:
        return []
    columns = [shares for table in tables.values() for shares in table]
    rows = [
        [f"rule {rule}", *(f"{share:.0%}" for share in shares)]
        for rule, shares in enumerate(zip(*columns, strict=True))
    ]
    head = [f"{name}{what}" for name in tables for what in (", colliding", ", others")]
    caption = (
        "How often each rule fires on balls that collide before the next frame, and on others."
    )
    return [Table(["", *head], rows, caption)]


def who_bumped_whom(name: str, metrics: dict[str, Any]) -> list[Text]:
    """What the trace, or attention, says about collisions."""
    if metrics.get("firing_collision") == metrics.get("firing_elsewhere") == 0.0:
        return [Text(f"{name}: no rule fires on a slot that shows a ball.")]
    if "partner" not in metrics:
        return []
    told, chance, recall = (metrics[m] for m in ("partner", "partner_chance", "pair_recall"))
    guessed = f" (at random: {metrics[TOLD]:.0%})" if TOLD in metrics else ""
    near = metrics.get("nearest_partner")
    floor = f"at random: {chance:.0%}" + ("" if near is None else f", the nearest: {near:.0%}")
    says = (
        f"{name}: the context of a colliding ball is the one it hits in {told:.0%} of cases "
        f"({floor}); {recall:.0%} of all collisions are told{guessed}."
    )
    if "who_f1" in metrics:
        precise, found = metrics.get("who_precision", 0.0), metrics["who_recall"]
        says += f" Large changes tell {found:.0%} of them, and are right in {precise:.0%} of cases."
    return [Text(says)]


def pictures(task: BallsTask, model: Scoff, part: Part, name: str) -> list[ReportPart]:
    """True and predicted frames and segments; and which rule fires on which slot."""
    part = part.first(DRAWN_SCENES)
    images, labels = task.draw_frames(part.scenes)
    predicted = predict(task.config, model, part, images)
    change, seen = model.change(predicted), task.config.seen_frames
    loud = None if task.reading is None else task.reading.loud
    word = "transfer" if part.transfer else "test"
    caption = f"{name}: true frames, predictions and their slots; without input after frame {seen}"
    drawn: list[ReportPart] = [
        Figure(f"rollout-{word}", png(prediction_picture(images[:, 1:], predicted)), caption)
    ]
    if not figures.available():  # Pillow comes with matplotlib
        return drawn
    moving = f"{name}: the first scene as a moving picture; rings mark true collisions"
    if predicted.trace is not None:
        moving += "; the arrow leads from the context to the slot that a rule changes most"
        moving += "" if loud is None else ", thin where the change is too small for a collision"
    film = rollout_gif(images[:, 1:], predicted, change, seen, loud=loud or 0.0, scenes=part.scenes)
    drawn.append(Figure(f"rollout-{word}", film, moving))
    if predicted.trace is not None:
        trace = Trace(*(x[0] for x in predicted.trace))
        _, slot_of_ball = matched(task.config, part, predicted, labels)
        hit = collisions_of_slots(part.scenes.collided[0, 1:], slot_of_ball[0], change.shape[-1])
        what = "the context of each slot" if one_rule(trace) else "the rule that fires on each slot"
        about = f"{name}: {what}, stage by stage, in the first scene. Shaded: a true "
        about += "collision, blue if the context is the ball that is hit"
        about += "" if loud is None else ". Bold: a change large enough for one"
        drawn.append(
            Figure(f"firing-{word}", firing_figure(trace, change[0], hit, seen, loud), about)
        )
    return drawn
