"""The headline of a world model: C-SWM's H@1 beside models that predict no motion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from nps.experiments.headline import Headline, Metrics, Row, numbers_table
from nps.experiments.world_models.config import ENOUGH

TIES = 0.1
"""Share of roll-outs that are hits only by a tie, above which the verdict mentions them."""
NOTHING_MOVES = {"identity_": "nothing moves"}


def ranking_headline(
    metrics: Metrics, floors: Mapping[str, str] = NOTHING_MOVES, more: Sequence[Row] = ()
) -> Headline:
    """Numbers and verdict of one tested run.

    Args:
        metrics: of `WorldModelTask.test`.
        floors: prefix of a floor's metrics -> what it is; the highest counts.
        more: rows to add.
    """
    count = metrics["rollouts"]
    steps = sorted(int(key[3:]) for key in metrics if key.startswith("h1_") and key[3:].isdigit())
    rows, better = [], []
    for step in steps:
        value = metrics[f"h1_{step}"]
        prefix = max(floors, key=lambda prefix: metrics[f"{prefix}h1_{step}"])
        floor = metrics[f"{prefix}h1_{step}"]
        name = f"H@1 after {in_steps([step])}"
        rows.append(Row(name, f"{value:.1%}", f"{floor:.1%}", floors[prefix]))
        if value - floor > 2 * math.sqrt((value * (1 - value) + floor * (1 - floor)) / count):
            better.append(step)
    last = steps[-1]
    within, stays = (metrics[f"{p}h1_episode_strict_{last}"] for p in ("", "identity_"))
    name = f"Within its episode, {in_steps([last])}"
    rows.append(Row(name, f"{within:.1%}", f"{stays:.1%}", NOTHING_MOVES["identity_"]))
    table = numbers_table([*rows, *more], f"{count:,} roll-outs; by chance H@1 is {1 / count:.2%}")
    return Headline(_verdict(metrics, steps, better), table)


def _verdict(metrics: Metrics, steps: Sequence[int], better: Sequence[int]) -> str:
    count, last = metrics["rollouts"], steps[-1]
    if count < ENOUGH:
        return f"Nothing can be concluded from {count} roll-outs: at least {ENOUGH} are needed."
    worse = [step for step in steps if step not in better]
    if not worse:
        verdict = f"Better than the floor after {in_steps(steps)}."
    elif better:
        verdict = f"Better than the floor after {in_steps(better)}, not after {in_steps(worse)}."
    else:
        verdict = (
            f"No better than the floor after {in_steps(steps)}: it has not learned the motion."
        )
    ties = metrics[f"h1_{last}"] - metrics[f"h1_strict_{last}"]
    if ties > TIES:
        verdict += f" {ties:.0%} of the roll-outs are hits by a tie: states look alike to it."
    return verdict


def in_steps(steps: Iterable[object], word: str = "and") -> str:
    """`1 step`, `1, 5 and 10 steps`."""
    *first, last = map(str, steps)
    text = f"{', '.join(first)} {word} {last}" if first else last
    return f"{text} step{'s' if text != '1' else ''}"
