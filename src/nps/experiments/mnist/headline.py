"""The headline of MNIST transformation: error beside its floors, and which rule serves what."""

from __future__ import annotations

from nps.experiments.headline import (
    Headline,
    Metrics,
    Row,
    error_sentence,
    numbers_table,
    segregation_row,
    segregation_sentence,
)

FLOORS = {"black": "an all-black picture", "copy": "copying the input"}


def headline(metrics: Metrics) -> Headline:
    """Numbers and verdict of one tested run."""
    error = metrics["mse"]
    name, floor = min(metrics["floors"].items(), key=lambda item: item[1])
    rows = [Row("Error (MSE)", f"{error:.3g}", f"{floor:.3g}", FLOORS[name])]
    sentences = []
    if "segregation" in metrics:  # one MLP has no rules
        rows.append(segregation_row(metrics))
        sentences.append(segregation_sentence(metrics))
    sentences.append(error_sentence(error, floor, FLOORS[name]))
    return Headline(" ".join(sentences), numbers_table(rows, f"{metrics['pairs']:,} pairs"))
