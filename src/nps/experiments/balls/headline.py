"""The headline of bouncing balls: segments, error and told partners, each beside its floor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nps.experiments.balls.task import TRANSFER
from nps.experiments.headline import Headline, Metrics, Row, numbers_table

SPLITS = {"": "4 balls", TRANSFER: "6 to 8 balls"}
FLOORS = {"grid_": "a 3 × 3 grid", "colour_": "colours alone", "copy_": "the previous frame"}


def headline(metrics: Metrics, config: Mapping[str, Any]) -> Headline:
    """Numbers and verdict of one tested run."""
    rows = [row for prefix, balls in SPLITS.items() for row in rows_of(metrics, prefix, balls)]
    verdict = [separation(metrics), error(metrics)]
    if "partner" in metrics:
        verdict.append(partner(metrics))
    tested = f"{config['test_scenes']:,} scenes of each kind, {config['seen_frames']} frames"
    return Headline(" ".join(verdict), numbers_table(rows, tested))


def rows_of(metrics: Metrics, prefix: str, balls: str) -> list[Row]:
    value, floor = metrics[f"{prefix}fg_ari"], best_floor(metrics, prefix)
    rows = [
        Row(
            f"Foreground ARI, {balls}",
            f"{value:.3f}",
            f"{metrics[f'{prefix}{floor}fg_ari']:.3f}",
            FLOORS[floor],
        )
    ]
    for name, metric, style in (("ARI", "ari", ".3f"), ("Next frame, MSE", "mse", ".4f")):
        floor_value = format(metrics[f"{prefix}copy_{metric}"], style)
        shown = format(metrics[f"{prefix}{metric}"], style)
        rows.append(Row(f"{name}, {balls}", shown, floor_value, FLOORS["copy_"]))
    if f"{prefix}partner" in metrics:
        told = metrics[f"{prefix}partner"]
        # Runs that were tested before the nearest ball was a floor have chance alone.
        nearest = f"{prefix}nearest_partner"
        floor = metrics[nearest if nearest in metrics else f"{prefix}partner_chance"]
        who = "the nearest ball" if nearest in metrics else "a random other ball"
        rows.append(Row(f"Partner told, {balls}", f"{told:.0%}", f"{floor:.0%}", who))
    return rows


def best_floor(metrics: Metrics, prefix: str) -> str:
    """The floor with the highest foreground ARI."""
    return max(FLOORS, key=lambda floor: metrics[f"{prefix}{floor}fg_ari"])


def separation(metrics: Metrics) -> str:
    """Whether slots tell the balls apart better than any floor does."""
    separate = [
        balls
        for prefix, balls in SPLITS.items()
        if metrics[f"{prefix}fg_ari"] > metrics[f"{prefix}{best_floor(metrics, prefix)}fg_ari"]
    ]
    if not separate:
        return f"Slots do not separate the balls: no better than {FLOORS[best_floor(metrics, '')]}."
    return f"Slots separate {' and '.join(separate)}."


def error(metrics: Metrics) -> str:
    """The error of the next frame relative to copying the previous one."""
    shares = [metrics[f"{p}mse"] / metrics[f"{p}copy_mse"] for p in SPLITS]
    if min(shares) >= 1:
        return "The next frame is predicted no better than by copying the previous one."
    both = " and ".join(f"{share:.2g}" for share in shares)
    return f"The error of the next frame is {both} times that of copying the previous one."


def partner(metrics: Metrics) -> str:
    """How often the trace, or attention, tells who bumped whom."""
    right, chance, told = (metrics[m] for m in ("partner", "partner_chance", "pair_recall"))
    guessed = metrics.get("pair_recall_chance")
    by_chance = "" if guessed is None else f", by chance {guessed:.0%}"
    return (
        f"In a collision a context that is a ball is the one that was hit in {right:.0%} of cases, "
        f"by chance in {chance:.0%}; {told:.0%} of collisions are told{by_chance}."
    )
