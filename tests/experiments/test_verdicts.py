"""The README's table and the short tables of the pages, from made-up runs."""

from pathlib import Path

import pytest

from nps.errors import UserError
from nps.experiments.atari import report as atari
from nps.experiments.blocks import report as blocks
from nps.experiments.results import by_variant, read_results
from nps.experiments.verdicts import verdicts_table
from tests.experiments.runs import session, write_run
from tests.test_cli import call


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


def test_medians_and_counts_of_arithmetic(tmp_path):
    for variant, mses in {
        "arithmetic": (0.03, 0.01, 0.02),
        "arithmetic-baseline": (0.05,),
        "arithmetic-baseline-noisy": (0.04,),
        "arithmetic-sharp": (0.001,),
    }.items():
        tests = [{"mse": mse, "segregation": 1 - mse} for mse in mses]
        publish(tmp_path, "arithmetic", variant, tests)
    ((subject, claim, ours, holds),) = rows(tmp_path)
    assert subject == "[coordinate arithmetic](docs/experiments/arithmetic.md)"
    assert claim.startswith("lower error than a routing MLP")
    assert ours.startswith("MSE 0.02 against 0.05; ")
    assert "in 1 of 3 seeds, in 1 of 1 with our schedule" in ours
    assert holds == "**partly**: a router that explores has 0.04"


def test_means_of_blocks_and_of_games_in_the_order_of_the_paper(tmp_path):
    for game, (nps, gnn) in {"pong": (0.1, 0.2), "qbert": (0.3, 0.5)}.items():
        publish_atari(tmp_path, game, "atari-nps", nps - 0.05, nps + 0.05)
        publish_atari(tmp_path, game, "atari-gnn", gnn)
    for variant, h1 in {"blocks-nps": 0.5, "blocks-gnn": 0.75}.items():
        tests = [{"h1_10": h1 + d, "identity_h1_10": h1 / 2} for d in (-0.1, 0.1)]
        publish(tmp_path, "blocks", variant, tests)
    on_blocks, on_atari = rows(tmp_path)
    assert on_blocks[2] == ("H@1 after 10 steps 50.0, GNN 75.0, no motion at all 25.0 and 37.5")
    assert on_atari[2] == "mean H@1 after 10 steps 20.0, GNN 35.0"


def test_experiments_that_are_not_of_the_paper_have_no_verdict(tmp_path):
    publish(tmp_path, "world-model", "world-model", [{"h1_10": 0.5}])
    assert rows(tmp_path) == []


def test_what_is_missing_or_refused_is_one_line(tmp_path):
    publish(tmp_path, "mnist", "mnist", [{"segregation": 1.0, "changed_image": 1.0}])
    with pytest.raises(UserError, match="no tested runs of mnist-balanced"):
        rows(tmp_path)
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
    games = atari.read_games(tmp_path / "results/atari")
    (table,) = atari.short_table(games)
    assert table.rows == [
        ["Pong", "10.0", "20.0", "25.0", "15.6 ± 5.7", "7.2 ± 4.1"],
        ["Q*bert", "10.0", "20.0", "25.0", "–", "–"],
        ["Mean of 2", "10.0", "20.0", "–", "–", "–"],
        ["Pong, aligned, parallel NPS", "60.0 ± 14.1", "40.0", "25.0", "–", "–"],
    ]
    assert atari.short_table({"freeway": games["freeway"]}) == []
