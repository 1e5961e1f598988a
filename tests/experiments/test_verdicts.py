"""The README's table and the short tables of the pages, from made-up runs."""

from pathlib import Path

from nps.experiments.atari import report as atari
from nps.experiments.atari.games import read_games
from nps.experiments.blocks import report as blocks
from nps.experiments.results import by_variant, read_results
from nps.experiments.verdicts import verdicts_table
from nps.experiments.world_models.config import HORIZONS
from tests.experiments.runs import session, write_run
from tests.test_cli import call

PERFECT = {"segregation": 1.0, "changed_image": 1.0}


def publish(
    root: Path, experiment: str, variant: str, tests: list[dict[str, float]], **config: str
) -> None:
    """Put runs into the table root/results/<experiment>: one for each seed's test metrics."""
    runs = root / "runs" / experiment / "-".join(config.values()) / variant
    for seed, test in enumerate(tests):
        folder = runs / f"seed-{seed}"
        write_run(folder, experiment, variant, seed, config, test, [session(0, 1, 1.0)], [])
    call("table", "--add", str(runs), "--to", str(root / "results" / experiment), "--published")


def publish_atari(root: Path, game: str, preset: str, *hits: float) -> None:
    tests = [dict.fromkeys(atari.METRICS, h1) | {"copy_h1_10": 0.25} for h1 in hits]
    publish(root, "atari", preset, tests, game=game)


def rows(root: Path) -> list[list[str]]:
    return [list(row) for row in verdicts_table(root / "results").rows]


def test_a_row_for_each_experiment_in_the_order_of_the_paper(tmp_path):
    tests = [dict.fromkeys([*atari.METRICS, *(f"copy_h1_{k}" for k in HORIZONS)], 0.5)]
    publish(tmp_path, "atari", "atari-nps", tests, game="pong")
    publish(tmp_path, "atari", "atari-gnn", tests, game="pong")
    publish(tmp_path, "mnist", "mnist", [PERFECT, PERFECT | {"segregation": 0.9}])
    publish(tmp_path, "mnist", "mnist-balanced", [PERFECT])
    (page, claim, ours, holds), on_atari = rows(tmp_path)
    assert page == "[MNIST transformation](docs/experiments/mnist.md)"
    assert (claim, ours) == ("one rule for each operation", "in 1 of 2 seeds")
    assert holds == "**partly**"
    assert on_atari[2].startswith("mean H@1 of 1 game after 1, 5 and 10 steps 50.0, 50.0, 50.0")
    assert on_atari[3] == "**cannot be told**"


def test_experiments_that_are_not_of_the_paper_have_no_verdict(tmp_path):
    publish(tmp_path, "world-model", "world-model", [{"h1_10": 0.5}])
    assert rows(tmp_path) == []


def test_what_is_missing_or_refused_is_one_line(tmp_path):
    publish(tmp_path, "mnist", "mnist", [PERFECT])
    ((*_, ours, holds),) = rows(tmp_path)
    assert (ours, holds) == ("–", "**not run yet**")
    _, err = call("table", str(tmp_path / "results"), "--report", code=2)
    assert "expected one experiment's folder" in err


def test_the_short_table_of_blocks(tmp_path):
    test = {"h1_10": 0.5, "identity_h1_10": 0.25, "moves_free": 1.0, "transition_parameters": 1234}
    for variant in ("blocks-best", "blocks-nps", "blocks-nps-2"):
        publish(tmp_path, "blocks", variant, [test])
    results = by_variant(read_results(tmp_path / "results/blocks"))
    (table,) = blocks.short_table(results)
    assert table.rows == [
        ["paper's world: NPS", "50.0", "25.0", "100.0", "–", "1,234"],
        ["fixed palette: parallel NPS (ours)", "50.0", "25.0", "100.0", "–", "1,234"],
    ]
    assert blocks.short_table({"blocks-nps-2": results["blocks-nps-2"]}) == []


def test_the_short_table_of_atari(tmp_path):
    for game in ("pong", "qbert"):
        publish_atari(tmp_path, game, "atari-nps", 0.1)
        publish_atari(tmp_path, game, "atari-gnn", 0.2)
        publish_atari(tmp_path, game, "atari-gnn-aligned", 0.4)
        publish_atari(tmp_path, game, "atari-parallel-aligned", 0.5, 0.7)
    publish_atari(tmp_path, "freeway", "atari-nps", 0.9)
    games = read_games(tmp_path / "results/atari")
    (table,) = atari.short_table(games)
    assert table.rows == [
        ["Pong", "10.0", "20.0", "cannot be told", "25.0", "15.6 ± 5.7", "7.2 ± 4.1"],
        ["Q*bert", "10.0", "20.0", "cannot be told", "25.0", "–", "–"],
        ["Mean of 2", "10.0", "20.0", "cannot be told", "–", "–", "–"],
        ["Mean of 2, aligned, parallel NPS", "60.0", "40.0", "cannot be told", "–", "–", "–"],
    ]
    publish_atari(tmp_path, "breakout", "atari-nps-aligned", 0.1, 0.2)
    publish_atari(tmp_path, "breakout", "atari-gnn-aligned", 0.5, 0.6)
    (table,) = atari.short_table(read_games(tmp_path / "results/atari"))
    one = ["Breakout, aligned negatives", "15.0 ± 7.1", "55.0 ± 7.1", "behind", "25.0", "–", "–"]
    assert table.rows[3] == one
    assert atari.short_table({"freeway": games["freeway"]}) == []
