"""The raster of a record: what fired on each slot at each step and stage, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

from nps.inspect.playback import Record
from nps.rules.raster import NOTHING, colour, raster

__all__ = ["NOTHING", "colour", "of_record"]


def of_record(
    record: Record, rule_names: Sequence[str] = (), slot_names: Sequence[str] = ()
) -> str:
    """What fired, a column for each stage of each step."""
    steps, stages, slots, rules = record.sizes
    columns: list[list[int]] = record.rule.reshape(steps * stages, slots).tolist()
    names = rule_names or [f"rule {i}" for i in range(rules)]
    rows = slot_names or [f"slot {m}" for m in range(slots)]
    return raster(columns, names, rows, every=stages)
