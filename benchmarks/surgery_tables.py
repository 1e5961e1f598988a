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


def share(value: float) -> str:
    return f"{100 * value:.0f}"


def switched_off(lines: Lines) -> Table:
    """A row for each model: no two divide the work between their rules alike."""
    states = ("all rules", "switched off", "adds nothing")
    rows = []
    for line in (line for line in lines if line["part"] == "switch off"):
        own = line["model"] == "blocks-best"
        name = "`blocks-best`, as it ships" if own else f"seed {line['seed']}"
        fires = [share(line["fires"][role][line["rule"]]) for role in ("moves", "rest")]
        right = [share(line[state][kind]) for kind in ("push", "free") for state in states]
        rows.append([name, *fires, *right])
    head = ["Model", "fires on blocks that move", "on blocks at rest"]
    head += [
        f"{kind}: {says}"
        for kind in ("pushes", "free moves")
        for says in ("trained", "off", "adds 0")
    ]
    return Table(head, rows, "")


WAYS = {
    "copied": "the rule copied, selection relearned",
    "fine-tuned": "no rule more, all fine-tuned",
    "own rule again": "a second copy of an own rule",
    "new rule": "a new rule",
    "gnn": "GNN, all fine-tuned",
}


def few_pushes(lines: Lines) -> Table:
    """A row for each way: pushes that are predicted rightly."""
    found = [line for line in lines if line["part"] == "few"]
    counts = sorted({line["pushes"] for line in found})
    rows = [[says, *of_way(found, way, counts, "push")] for way, says in WAYS.items()]
    return Table(["Pushes seen", *map(str, counts)], rows, "")


def few_kept(lines: Lines) -> Table:
    """A row for each way: free moves that are predicted rightly, still."""
    found = [line for line in lines if line["part"] == "few"]
    counts = sorted({line["pushes"] for line in found})
    rows = [[says, *of_way(found, way, counts, "free")] for way, says in WAYS.items()]
    return Table(["Pushes seen", *map(str, counts)], rows, "")


def of_way(lines: Lines, way: str, counts: list[int], kind: str) -> list[str]:
    own = [line for line in lines if line["way"] == way]
    return [spread([x[kind] for x in own if x["pushes"] == count]) for count in counts]


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
