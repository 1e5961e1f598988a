"""The headline of falling towers: the error, beside that of shapes that stand still."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nps.experiments.headline import Headline, Metrics, Row, numbers_table

ROWS = {"p1": "Frames {first}", "p2": "Frames {second}"}
SETS = {"": "", "four_": ", four shapes"}


def headline(metrics: Metrics, config: Mapping[str, Any]) -> Headline:
    """Numbers and verdict of one tested run."""
    near, far = config["frames"], config["test_frames"]
    spans = {"first": f"1 to {near}", "second": f"{near + 1} to {far}"}
    rows = []
    for prefix, shapes in SETS.items():
        for metric, name in ROWS.items():
            floor = f"{metrics[f'{prefix}still_{metric}']:.2f}"
            for kind, of in (("", "mean draw"), ("best10_", "best of 10")):
                label = f"{name.format(**spans)}{shapes}, {of}"
                value = f"{metrics[f'{prefix}{kind}{metric}']:.2f}"
                rows.append(Row(label, value, floor, "nothing moves"))
    if "held" in metrics:
        held, chance = metrics["held"], metrics["held_chance"]
        rows.append(Row("Context touches", f"{held:.0%}", f"{chance:.0%}", "a random other shape"))
    tested = f"{config['test_episodes']} towers of each kind; 1,000 × squared image sides"
    return Headline(verdict(metrics), numbers_table(rows, tested))


def verdict(metrics: Metrics) -> str:
    """The error relative to that of floors."""
    share = metrics["best10_p1"] / metrics["still_p1"]
    if share >= 1:
        return "No better than a tower that stands still: it has not learned to fall."
    says = f"The error is {share:.2g} times that of a tower that stands still"
    better = metrics["p1"] < metrics["average_p1"]
    floor = "below" if better else "not below"
    return f"{says}, and {floor} that of the mean way of all towers."
