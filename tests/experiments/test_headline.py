"""What `nps eval` leads with: numbers beside their floors, and a verdict that they support."""

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from nps.commands.show import all_numbers, eval_report
from nps.experiments import EXPERIMENTS
from nps.experiments.headline import Row, numbers_table, one_rule, segregation_sentence
from nps.experiments.results import read_results
from nps.experiments.world_models.headline import ranking_headline
from nps.inspect.terminal import show_table
from nps.metrics.ranking import report as rank

RESULTS = Path(__file__).parents[2] / "results"


def ranking(count: int, h1: float, floor: float, strict: float | None = None) -> dict:
    """Metrics of a test with so many roll-outs; the same numbers at every horizon."""
    metrics: dict = {"rollouts": count}
    for step in (1, 5, 10):
        for prefix, value in {"": h1, "identity_": floor}.items():
            metrics[f"{prefix}h1_{step}"] = value
            metrics[f"{prefix}h1_episode_strict_{step}"] = value
        metrics[f"h1_strict_{step}"] = h1 if strict is None else strict
    return metrics


@pytest.mark.parametrize(
    ("metrics", "verdict"),
    [
        (ranking(100, 0.9, 0.5), "Better than the floor after 1, 5 and 10 steps."),
        (
            ranking(100, 0.52, 0.5),  # within two standard errors
            "No better than the floor after 1, 5 and 10 steps: it has not learned the motion.",
        ),
        (ranking(10_000, 0.52, 0.5), "Better than the floor after 1, 5 and 10 steps."),
        (
            ranking(100, 0.9, 0.5) | {"h1_1": 0.4},
            "Better than the floor after 5 and 10 steps, not after 1 step.",
        ),
        (
            ranking(2, 1.0, 0.0),
            "Nothing can be concluded from 2 roll-outs: at least 30 are needed.",
        ),
        (
            ranking(100, 1.0, 1.0, strict=0.2),
            "No better than the floor after 1, 5 and 10 steps: it has not learned the motion. "
            "80% of the roll-outs are hits by a tie: states look alike to it.",
        ),
    ],
)
def test_verdict_of_a_ranking(metrics, verdict):
    found = ranking_headline(metrics)
    assert found.verdict == verdict
    assert f"{metrics['rollouts']:,} roll-outs" in found.table.caption


def test_the_highest_floor_counts():
    copied = {f"copy_h1_{step}": 0.85 for step in (1, 5, 10)}
    floors = {"identity_": "nothing moves", "copy_": "copying the input"}
    found = ranking_headline(ranking(100, 0.9, 0.5) | copied, floors)
    assert found.verdict.startswith("No better than the floor")
    assert list(found.table.rows[0]) == ["H@1 after 1 step", "90.0%", "85.0%", "copying the input"]


def test_segregation_beside_one_rule_for_everything():
    table = [[30, 0], [0, 70]]
    assert one_rule({"table": table}) == 0.7
    assert segregation_sentence({"table": table, "segregation": 1.0}).startswith("Each operation")
    assert "90% of the uses" in segregation_sentence({"table": table, "segregation": 0.9})
    assert "one serves every" in segregation_sentence({"table": table, "segregation": 0.7})


@pytest.mark.parametrize("name", ["mnist", "blocks", "atari"])
def test_published_runs_have_a_headline(name):
    for result in read_results(RESULTS / name):
        metrics = {"rollouts": 100, "pairs": 40_000, **result.test}  # newer than the tables
        if name == "mnist" or "h1_episode_strict_10" in metrics:
            found = EXPERIMENTS[name].headline(metrics, result.config)
            assert found.verdict.endswith(".")
            assert 1 <= len(found.table.rows) <= 6
            for row in found.table.rows:
                assert row[1] != "–" or row[0] in ("Pushes predicted", "The pushed block moves")


def test_the_best_blocks_model_is_better_than_no_motion():
    run = next(r for r in read_results(RESULTS / "blocks") if r.variant == "blocks-best")
    found = EXPERIMENTS["blocks"].headline({"rollouts": 10_000, **run.test}, run.config)
    assert found.verdict == "Better than the floor after 1, 5 and 10 steps."
    pushes, pushed = (list(row)[:3] for row in found.table.rows[-2:])
    assert pushes == ["Pushes predicted", "100.0%", "4.0%"]
    assert pushed == ["The pushed block moves", "100.0%", "0.0%"]


def test_all_numbers_on_request():
    metrics = {"which": "best", "step": 3, **ranking(100, 0.9, 0.5)}
    headline = ranking_headline(metrics)
    few = eval_report("run", metrics, headline, every=False).to_html()
    every = eval_report("run", metrics, headline, every=True).to_html()
    assert "h1_strict" not in few
    assert "h1_strict" in every
    assert headline.verdict in few
    assert headline.verdict in every
    assert all_numbers(metrics)[0].split() == ["steps", "1", "5", "10"]
    assert "h1_strict" in eval_report("run", metrics, None, every=False).to_html()


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_narrow_terminal_shows_every_column(width):
    """In a table below the first one where they do not fit beside each other."""
    rows = [Row("Rule segregation", "0.997", "0.260", "one rule for everything")]
    console = Console(width=width, file=io.StringIO())
    show_table(numbers_table(rows, "2,000 examples"), console)
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    words = set(shown.replace("│", " ").split())
    assert {"0.997", "0.260", "Model", "Floor", "everything", "segregation"} <= words


def test_names_of_metrics_are_those_of_the_ranking():
    """The headline reads what the ranking writes."""
    states = torch.arange(40.0).view(40, 1, 1, 1).expand(40, 2, 1, 1) + torch.arange(2.0).view(
        1, 2, 1, 1
    )
    of = rank(states[:, 1:], states, [1], state=states.flatten(2))[1]
    metrics = {f"{name}_1": value for name, value in of.items()}
    assert ranking_headline({**metrics, "rollouts": 40}).verdict
