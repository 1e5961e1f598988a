"""The tables of rule surgery, from results/surgery, put into a page.

python benchmarks/surgery_tables.py docs/experiments/surgery.md
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nps.inspect.report import Table, put_into

RESULTS = Path(__file__).parent.parent / "results" / "surgery"
Lines = list[Mapping[str, Any]]


def read(name: str) -> Lines:
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text().splitlines()]


def spread(shares: list[float]) -> str:
    """Median and range, in per cent."""
    middle, low, high = (100 * f(shares) for f in (statistics.median, min, max))
    return f"{middle:.0f} ({low:.0f} to {high:.0f})" if round(low) != round(high) else f"{low:.0f}"


def switched_off(lines: Lines) -> Table:
    found = [line for line in lines if line["part"] == "switch off"]
    names = {
        "all rules": "as trained",
        "switched off": "the rule switched off",
        "adds nothing": "the rule adds nothing",
    }
    rows = [
        [says, *(spread([line[key][kind] for line in found]) for kind in ("push", "free"))]
        for key, says in names.items()
    ]
    return Table(["Blocks", "pushes", "free moves"], rows, "")


def few_pushes(lines: Lines) -> Table:
    """A row for each way; pushes and free moves that are predicted rightly."""
    names = {
        "copied": "the rule copied, selection relearned",
        "new rule": "a new rule",
        "fine-tuned": "all fine-tuned",
        "gnn": "GNN, all fine-tuned",
    }
    found = [line for line in lines if line["part"] == "few"]
    counts = sorted({line["pushes"] for line in found})
    rows = []
    for way, says in names.items():
        own = [line for line in found if line["way"] == way]
        cells = [spread([x["push"] for x in own if x["pushes"] == count]) for count in counts]
        free = spread([x["free"] for x in own if x["pushes"] == counts[1]])
        rows.append([says, *cells, free])
    last = f"free moves, {counts[1]}"
    return Table(["Pushes seen", *map(str, counts), last], rows, "")


def by_analogy(lines: Lines) -> Table:
    names = {
        "written by analogy": "written by analogy",
        "new rule": "a new rule",
        "fine-tuned": "all fine-tuned",
    }
    counts = sorted({line["examples"] for line in lines if "examples" in line})
    rows = []
    for part, says in names.items():
        own = [line for line in lines if line["part"] == part]
        cells = [spread([x["new_right"] for x in own if x["examples"] == n]) for n in counts]
        old = spread([x["old_right"] for x in own if x["examples"] == 30])
        rows.append([says, *cells, old])
    return Table(["Examples", *map(str, counts), "old operations, 30"], rows, "")


def tables() -> dict[str, Table]:
    blocks, arithmetic = read("blocks"), read("arithmetic")
    return {
        "switched off": switched_off(blocks),
        "few pushes": few_pushes(blocks),
        "by analogy": by_analogy(arithmetic),
    }


if __name__ == "__main__":
    print("\n".join(put_into(Path(sys.argv[1]), tables())))
