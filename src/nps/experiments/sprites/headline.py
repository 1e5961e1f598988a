"""The headline of Sprites-MOT: tracking in frames seen and to come, each beside its floor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nps.experiments.headline import Headline, Metrics, Row, numbers_table
from nps.experiments.sprites.watching import AHEAD

COLOURS, COPY = "colours alone", "the true segments of an earlier frame"


def headline(metrics: Metrics, config: Mapping[str, Any]) -> Headline:
    """Numbers and verdict of one tested run."""
    rows = [
        row(metrics, "MOTA", "mota", "colour_mota", COLOURS),
        row(metrics, "MOTP", "motp", "colour_motp", COLOURS),
    ]
    for h in AHEAD:
        frames = f"{h} frame{'s' if h > 1 else ''} ahead"
        rows.append(row(metrics, f"MOTA, {frames}", f"ahead{h}_mota", f"copy{h}_mota", COPY))
    shown, floor = (f"{metrics[name]:.4f}" for name in ("ahead1_mse", "copy1_mse"))
    rows.append(Row("Next frame, MSE", shown, floor, "copying the previous frame"))
    tested = f"{config['test_videos']:,} videos, frames 2 to {config['video_frames'] - 1}"
    return Headline(verdict(metrics), numbers_table(rows, tested))


def row(metrics: Metrics, name: str, metric: str, floor: str, what: str) -> Row:
    return Row(name, f"{metrics[metric]:.1f}", f"{metrics[floor]:.1f}", what)


def verdict(metrics: Metrics) -> str:
    """Whether slots follow sprites, and whether the model knows where they go."""
    if metrics["mota"] <= metrics["colour_mota"]:
        return "Slots do not follow the sprites: no better than colours alone."
    knows = all(metrics[f"ahead{h}_mota"] > metrics[f"copy{h}_mota"] for h in AHEAD)
    follows = f"Slots follow the sprites (MOTA {metrics['mota']:.1f})"
    if knows:
        return f"{follows}, and are told apart where they will be, better than where they were."
    return f"{follows}, but where they will be is not known better than where they were."
