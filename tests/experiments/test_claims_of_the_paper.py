"""The paper's claims: made-up runs that turn a verdict, and the committed results, whose numbers
are counted here once more."""

import json
import lzma
import re
import statistics
from pathlib import Path

import pytest

from nps.commands.run import _run_args
from nps.experiments import EXPERIMENTS
from nps.experiments.claims import HOLDS, NONE, Finding, find
from nps.experiments.collect import add
from nps.experiments.results import read_results
from nps.experiments.verdicts import check, claims_tables, verdicts_table
from nps.experiments.world_models.report import METRICS
from nps.flags import parse
from tests.experiments.runs import published
from tests.test_cli import call

RESULTS = Path(__file__).resolve().parents[2] / "results"
OF_THE_PAPER = {name: each for name, each in EXPERIMENTS.items() if each.claims}
DRAWINGS, SETTINGS = {1, 2, 3, 11}, {6, 7, 8}
"""Figures and tables of the paper that claim nothing."""


def claim_of(experiment, words):
    (claim,) = [claim for claim in OF_THE_PAPER[experiment].claims if words in claim.says]
    return claim


# -- new runs turn a verdict ----------------------------------------------------------------------


def test_new_runs_turn_a_verdict():
    lower_error = claim_of("arithmetic", "lower error")

    def verdict(ours, routing, noisy):
        errors = zip(lower_error.presets, (ours, routing, noisy), strict=True)
        runs = [
            run
            for preset, mses in errors
            for run in published("arithmetic", preset, [{"mse": mse} for mse in mses])
        ]
        return find(lower_error, runs)

    low, middle, high = (0.001, 0.002, 0.003), (0.01, 0.02, 0.03), (0.1, 0.2, 0.3)
    assert verdict(middle, high, high) == Finding(
        "MSE 0.02 against 0.2", "holds", "a router that explores with the noise of NPS has 0.2"
    )
    assert verdict(middle, high, middle).holds == "partly"
    assert verdict(middle, high, low).holds == "partly"
    assert verdict(middle, low, low).holds == "reversed"
    assert verdict(middle, middle, middle).holds == "cannot be told"
    assert verdict(middle, high, ()).holds == "not run yet"


def test_rules_that_are_used_are_counted_by_seed():
    def verdict(*tables):
        runs = published("arithmetic", "arithmetic-5-rules", [{"table": t} for t in tables])
        return find(claim_of("arithmetic", "of 5 rules"), runs)

    four = [[9, 0, 0, 0, 0], [0, 9, 0, 0, 0], [0, 0, 9, 0, 0], [0, 0, 0, 9, 0]]
    even = [[2, 2, 2, 2, 2]] * 4
    assert verdict(four, four) == Finding(
        "100% in the median seed",
        "holds",
        "2 of 2 seeds reach the paper's share; if all rules were used alike, four would serve 80%",
    )
    assert verdict(four, even).holds == "partly"
    finding = verdict(even, even)
    assert (finding.ours, finding.holds) == ("80% in the median seed", "does not hold")


def test_towers_are_judged_when_they_have_runs(tmp_path):
    """Parallel NPS ahead near, level far; the lowest shape rests in two of three seeds."""
    upper = {"fires_level_1": 0.8, "fires_level_2": 0.9}

    def tests(near, far):
        return [
            {"best10_p1": near + d, "best10_p2": far + d, "fires_level_0": 0.35 + d, **upper}
            for d in (0.0, 0.1, 0.2)
        ]

    runs = [
        *published("stacks", "stacks", tests(1.0, 5.0)),
        *published("stacks", "stacks-rpin", tests(2.0, 5.0)),
        *published("stacks", "stacks-snps", tests(1.0, 2.0)),
    ]
    add(tmp_path / "stacks", runs)
    checked = check(OF_THE_PAPER["stacks"], tmp_path / "stacks")
    near_and_far = ["partly", "reversed", "holds", "does not hold"]
    assert [each.found.holds for each in checked] == [*near_and_far, "partly", "not run yet"]
    assert checked[0].found.ours == "1.10 and 5.10 against 2.10 and 5.10"
    (row,) = verdicts_table(tmp_path).rows
    assert row[0] == "[shapes stack](docs/experiments/stacks.md)"
    assert row[-1] == "**partly**"


def test_the_papers_numbers_of_rules_are_compared_with_others():
    claim = claim_of("stacks", "best number of rules")

    def verdict(parallel, sequential):
        errors = zip(claim.presets, [*parallel, *sequential], strict=True)
        runs = [
            run
            for preset, error in errors
            for run in published("stacks", preset, [{"best10_p2": error + d} for d in (0, 0.1)])
        ]
        return find(claim, runs)

    finding = verdict((5.0, 4.0, 6.0, 7.0), (5.0, 5.0, 4.0, 7.0))
    assert finding.holds == "holds"
    assert finding.ours == "parallel 5.05, 4.05, 6.05, 7.05; sequential 5.05, 5.05, 4.05, 7.05"
    assert verdict((5.0, 4.0, 6.0, 7.0), (5.0, 3.0, 4.0, 7.0)).holds == "partly"
    assert verdict((3.0, 4.0, 6.0, 7.0), (5.0, 3.0, 4.0, 7.0)).holds == "does not hold"
    assert verdict((4.0, 4.0, 4.0, 4.0), (4.0, 4.0, 4.0, 4.0)).holds == "cannot be told"


def test_tracking_is_judged_in_both_metrics():
    def verdict(ours, theirs):
        claim = claim_of("sprites", "tracks better")
        floor = {"colour_mota": 85.1, "colour_motp": 94.3}
        runs = [
            run
            for preset, pairs in zip(claim.presets, (ours, theirs), strict=True)
            for run in published(
                "sprites", preset, [{"mota": a, "motp": b, **floor} for a, b in pairs]
            )
        ]
        return find(claim, runs)

    high, low = [(95.0, 90.0), (95.5, 90.5)], [(85.0, 80.0), (85.5, 80.5)]
    assert verdict(high, low) == Finding(
        "MOTA 95.2 and MOTP 90.2 against 85.2 and 80.2",
        "holds",
        "colours alone have MOTA 85.1 and MOTP 94.3",
    )
    assert verdict(low, high).holds == "reversed"
    assert verdict([(95.0, 80.0), (95.5, 80.5)], low).holds == "partly"


def test_blocks_are_judged_in_both_worlds_at_every_horizon():
    def verdict(nps, gnn, fixed_nps, fixed_gnn):
        claim = OF_THE_PAPER["blocks"].claims[0]
        models = zip(claim.presets, (nps, gnn, fixed_nps, fixed_gnn), strict=True)
        metrics = ("h1_1", "h1_5", "h1_10", "identity_h1_10", "moves_free")
        runs = [
            run
            for preset, hits in models
            for run in published("blocks", preset, [dict.fromkeys(metrics, h1) for h1 in hits])
        ]
        return find(claim, runs)

    low, high, wide = (0.50, 0.52), (0.70, 0.72), (0.2, 0.9)
    finding = verdict(high, low, high, low)
    assert finding.ours == "H@1 after 10 steps 71.0, GNN 51.0; with a fixed palette 71.0, GNN 51.0"
    assert finding.holds == "holds"
    assert verdict(high, low, low, high).holds == "partly"
    assert verdict(wide, wide, low, high).holds == "does not hold"
    assert verdict(wide, wide, wide, wide).holds == "cannot be told"


def test_composition_is_judged_by_the_black_picture_in_each_seed():
    def verdict(*errors):
        of = {"length": [1, 5], "black": [0.02, 0.015], "slot": [0.1, 0.2]}
        tests = [{"composition": {**of, "pictures": [0.001, error]}} for error in errors]
        others = [
            run for name in ("balanced", "mlp") for run in runs_of(f"mnist-{name}", tests[:1])
        ]
        return find(claim_of("mnist", "compose"), runs_of("mnist", tests) + others)

    def runs_of(preset, tests):
        return published("mnist", preset, tests)

    finding = verdict(0.002, 0.003, 0.003)
    assert finding.holds == "holds"
    assert finding.ours == (
        "MSE after 5 operations 0.0030; balanced preset 0.0020, a black picture 0.0150"
    )
    assert verdict(0.002, 0.016).holds == "partly"
    assert verdict(0.016, 0.016, 0.001).holds == "does not hold"


def test_rules_are_modular_if_the_other_pictures_stay():
    def verdict(*stays):
        def deleted(shared):
            equal = [[o != own and not (shared and own == 0) for o in range(4)] for own in range(4)]
            cuts = [{"deleted": own, "equal": equal[own]} for own in range(4)]
            return {"deletion": cuts}

        runs = published("mnist", "mnist", [deleted(not stay) for stay in stays])
        runs += published("mnist", "mnist-balanced", [deleted(False)])
        runs += published("mnist", "mnist-fifth", [{"fifth": {"equal": [True] * 4}}])
        return find(claim_of("mnist", "deleted or added"), runs)

    assert verdict(True, True).holds == "holds"
    finding = verdict(True, False, False)
    assert "in 1 of 3 seeds; balanced preset 1 of 1, a fifth rule added 1 of 1" in finding.ours
    assert finding.holds == "partly"


def test_games_that_are_missing_are_named_and_not_averaged():
    def hits(preset, game, *numbers):
        metrics = [*METRICS, *(f"copy_{metric}" for metric in METRICS)]
        tests = [dict.fromkeys(metrics, h1) for h1 in numbers]
        return published("atari", preset, tests, group=game, game=game)

    runs = hits("atari-nps", "freeway", 0.9, 0.9)
    for game, nps, gnn in (("pong", 0.1, 0.2), ("qbert", 0.3, 0.5)):
        runs += hits("atari-nps", game, nps - 0.05, nps + 0.05)
        runs += hits("atari-gnn", game, gnn, gnn)
    finding = find(OF_THE_PAPER["atari"].claims[0], runs)
    assert finding.ours == (
        "mean H@1 of 2 games after 1, 5 and 10 steps 20.0, 20.0, 20.0, GNN 35.0, 35.0, 35.0"
    )
    assert finding.reason.startswith("without Space Invaders, Freeway, Breakout; ")
    assert finding.holds == "reversed"
    invaders = find(claim_of("atari", "Space Invaders"), runs)
    assert invaders.holds == "not run yet"
    assert invaders.reason == "no published runs of `atari-nps`, `atari-gnn` in space_invaders"


def test_runs_of_another_version_of_a_game_do_not_count(tmp_path):
    tests = [dict.fromkeys([*METRICS, *(f"copy_{metric}" for metric in METRICS)], 0.5)]
    models = ("atari-nps", "atari-gnn")
    for game in ("pong", "space_invaders"):
        for preset in models:
            add(tmp_path / "atari", published("atari", preset, tests, group=game, game=game))
    checked = check(OF_THE_PAPER["atari"], tmp_path / "atari")
    mean, invaders = (
        next(row.found for row in checked if words in row.claim.says)
        for words in ("better than a GNN", "Space Invaders")
    )
    assert mean.ours.startswith("mean H@1 of 1 game after ")
    assert mean.reason.startswith("without Space Invaders,")
    assert invaders.holds == "not run yet"
    assert invaders.reason.startswith("2 runs of Space Invaders left out: of another version")


# -- the committed results ------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_every_claim_on_the_committed_results(name):
    experiment = OF_THE_PAPER[name]
    assert experiment.subject
    for claim, finding, how in check(experiment, RESULTS / name):
        assert finding.holds in HOLDS
        assert all([claim.where, claim.says, claim.paper, finding.ours, finding.reason])
        assert (finding.ours == NONE) == (finding.holds == "not run yet")
        cells = f"{claim.says} {claim.paper} {finding.ours} {finding.reason}"
        assert not re.search(r"\||\n|\bnan\b|\binf\b", cells)
        assert not finding.reason.endswith(".")
        assert set(claim.presets) <= set(experiment.presets)
        for line in how:
            nps, run, of, *flags = line.replace("GAME", "pong").split()
            assert (nps, run, of) == ("nps", "run", name)
            options = parse(_run_args(experiment), flags, prog="nps run", about="")
            assert set(options.presets) <= set(claim.presets)


def test_every_table_and_figure_of_the_paper_is_on_the_page():
    tables = claims_tables(RESULTS)
    claims = [row[0] for name, table in tables.items() if name != "claims" for row in table.rows]
    numbers = {
        kind: {int(n) for claim in claims for n in re.findall(rf"{kind} (\d+)", claim)}
        for kind in ("table", "figure")
    }
    assert numbers["table"] | SETTINGS == set(range(1, 13))
    assert numbers["figure"] | DRAWINGS == set(range(1, 14))
    assert numbers["table"].isdisjoint(SETTINGS)
    assert numbers["figure"].isdisjoint(DRAWINGS)


def test_verdicts_are_counted():
    tables = claims_tables(RESULTS)
    head, *counts = tables["claims"].columns
    assert [head, counts[0], *counts[1:]] == ["experiment", "claims", *HOLDS]
    rows = [[0 if cell == NONE else int(cell) for cell in row[1:]] for row in tables["claims"].rows]
    for total, *each in rows:
        assert total == sum(each)
    assert rows[-1] == [sum(column) for column in zip(*rows[:-1], strict=True)]
    assert rows[-1][0] == sum(len(t.rows) for name, t in tables.items() if name != "claims")


def test_the_shares_of_four_rules_counted_again():
    """From the lines of the table of runs, in plain Python."""
    with lzma.open(RESULTS / "arithmetic/runs.jsonl.xz", "rt") as file:
        lines = [json.loads(line) for line in file][1:]
    for rules, paper in ((5, 1885 / 2000), (6, 1801 / 2000)):  # the paper's: 2,000 uses
        shares = []
        for line in lines:
            if line["variant"] == f"arithmetic-{rules}-rules":
                uses = [sum(row[rule] for row in line["test"]["table"]) for rule in range(rules)]
                shares.append(sum(sorted(uses)[-4:]) / sum(uses))
        reached = sum(share >= paper for share in shares)
        claim = claim_of("arithmetic", f"of {rules} rules")
        finding = find(claim, read_results(RESULTS / "arithmetic"))
        assert finding.ours == f"{statistics.median(shares):.0%} in the median seed"
        assert finding.reason.startswith(f"{reached} of {len(shares)} seeds reach")
        assert claim.paper == f"{paper:.0%} of uses"


def test_the_readme_has_the_first_claims():
    rows = {row[0]: list(row[1:]) for row in verdicts_table(RESULTS).rows}
    for name, experiment in OF_THE_PAPER.items():
        claim, finding, _ = check(experiment, RESULTS / name)[0]
        page = f"[{experiment.subject}](docs/experiments/{name}.md)"
        expected = [claim.says, finding.ours, f"**{finding.holds}**"]
        assert rows.get(page, expected) == expected
        assert (page in rows) == (RESULTS / name).exists()


def test_a_page_with_the_markers_is_filled(tmp_path):
    page, readme = tmp_path / "claims.md", tmp_path / "readme.md"
    page.write_text("A\n<!-- table: claims sprites -->\nstale\n<!-- end -->\nB\n")
    readme.write_text("<!-- table: verdicts -->\n<!-- end -->\n")
    out, _ = call("table", str(RESULTS), "--into", str(readme), str(page))
    assert f"{page}: table claims sprites updated" in out
    text = page.read_text()
    assert text.startswith("A\n<!-- table: claims sprites -->\n| claim | paper | ours | holds? |")
    assert text.endswith("presets sprites` |\n<!-- end -->\nB\n")
    assert "stale" not in text
    assert "(docs/experiments/balls.md)" in readme.read_text()
