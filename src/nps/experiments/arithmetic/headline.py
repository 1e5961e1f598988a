"""The headline of coordinate arithmetic: error, which rule serves what, and the chosen points."""

from __future__ import annotations

from nps.experiments.arithmetic.report import in_words
from nps.experiments.headline import (
    Headline,
    Metrics,
    Row,
    error_sentence,
    numbers_table,
    segregation_row,
    segregation_sentence,
)
from nps.worlds.arithmetic import POINTS


def headline(metrics: Metrics) -> Headline:
    """Numbers and verdict of one tested run."""
    error, copied = metrics["mse"], metrics["floors"]["copy"]
    chance = f"{1 / POINTS:.2f}"
    rows = [
        Row("Error (MSE)", f"{error:.3g}", f"{copied:.3g}", "copying the input"),
        segregation_row(metrics),
        Row("Right primary slot", f"{metrics['primary_accuracy']:.2f}", chance, "chance"),
        Row("Right context", f"{metrics['context_accuracy']:.2f}", chance, "chance"),
    ]
    count = sum(map(sum, metrics["table"]))
    learned = error_sentence(error, copied, "copying the input")
    return Headline(
        f"{segregation_sentence(metrics)} {learned}",
        numbers_table(rows, f"{count:,} examples"),
        in_words(metrics["rules"]),
    )
