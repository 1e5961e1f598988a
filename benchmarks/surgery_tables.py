"""The tables of rule surgery, from results/surgery, put into documents.

python benchmarks/surgery_tables.py docs/experiments/surgery.md docs/notes/surgery.md
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nps.inspect.report import Table, put_into

RESULTS = Path(__file__).parent.parent / "results" / "surgery"
KEPT = 30
"""Examples of the new, after which the old is shown."""
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
    """A row for each model: their rules divide the work differently."""
    shown = [("push", "all rules"), ("push", "switched off"), ("push", "adds nothing")]
    shown += [("free", state) for _, state in shown]
    rows = []
    for line in (line for line in lines if line["part"] == "switch off"):
        own = line["model"] == "blocks-best"
        fires = share(line["fires"]["moves"][line["rule"]])
        right = [share(line[state][kind]) for kind, state in shown]
        rows.append(["`blocks-best`" if own else f"seed {line['seed']}", fires, *right])
    states = ("all rules", "off", "adds nothing")
    head = [f"{kind}: {state}" for kind in ("pushes", "free moves") for state in states]
    return Table(["Model", "also fires on movers", *head], sorted(rows), "")


WAYS = {
    "copied": "push rule copied",
    "fine-tuned, straight through": "all fine-tuned",
    "fine-tuned": "all fine-tuned, free energy",
    "own rule again": "an own rule doubled",
    "new rule": "a new rule",
    "new rule, straight through": "a new rule, straight through",
    "gnn": "GNN, all fine-tuned",
}
ON_THE_PAGE = ("copied", "fine-tuned, straight through", "new rule", "gnn")


def few(lines: Lines, ways: Iterable[str], *kinds: str) -> Table:
    """A row for each way, of predictions that are right: pushes over the count of those seen, and
    other kinds after `KEPT` of them."""
    found = [line for line in lines if line["part"] == "few"]
    counts = sorted({line["pushes"] for line in found})
    shown = [("push", count) for count in counts] + [(kind, KEPT) for kind in kinds]
    rows = []
    for way in ways:
        own = [line for line in found if line["way"] == way]
        rows.append([WAYS[way], *(right(own, kind, count) for kind, count in shown)])
    says = {"free": "free moves", "nothing": "no move"}
    return Table(
        ["Pushes seen", *map(str, counts), *(f"{says[kind]}, {KEPT}" for kind in kinds)], rows, ""
    )


def right(lines: Lines, kind: str, count: int) -> str:
    return spread([line[kind] for line in lines if line["pushes"] == count])


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
        old = spread([x["old_right"] for x in own if x["examples"] == KEPT])
        rows.append([says, *cells, old])
    return Table(["Examples", *map(str, counts), f"old operations, {KEPT}"], rows, "")


def tables() -> dict[str, Table]:
    blocks, arithmetic = read("blocks"), read("arithmetic")
    return {
        "switched off": switched_off(blocks),
        "few pushes": few(blocks, ON_THE_PAGE, "free"),
        "few pushes, every way": few(blocks, WAYS, "free", "nothing"),
        "by analogy": by_analogy(arithmetic),
    }


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print("\n".join(put_into(Path(path), tables())))
