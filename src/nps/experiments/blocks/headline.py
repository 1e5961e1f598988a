"""The headline of the world models of blocks: the ranking, and the pushes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nps.experiments.headline import Headline, Metrics, Row
from nps.experiments.world_models.headline import ranking_headline
from nps.worlds.blocks import action_count


def headline(metrics: Metrics, config: Mapping[str, Any]) -> Headline:
    """Numbers and verdict of one tested run."""
    chance = 1 / action_count(config["objects"], config["stay"])
    pushes, pushed = (
        f"{metrics[name]:.1%}" if name in metrics else "–" for name in ("moves_push", "push_moved")
    )
    rows = [
        # No other action moves the pusher there, so its own move may be all that is right.
        Row("Pushes predicted", pushes, f"{chance:.1%}", "a random action's outcome"),
        Row("The pushed block moves", pushed, "0.0%", "nothing moves"),
    ]
    return ranking_headline(metrics, more=rows)
