"""The paper's claims on five Atari games (section 4.3, appendix F.3)."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from nps.experiments.atari.games import PAPER, TITLES
from nps.experiments.atari.pairs import PAIRS, PAPER_PAIR
from nps.experiments.claims import Claim, Finding, better, together
from nps.experiments.results import Result
from nps.experiments.world_models.config import HORIZONS
from nps.experiments.world_models.report import METRICS
from nps.worlds.atari_games import Name

STEPS = ", ".join(map(str, HORIZONS[:-1])) + f" and {HORIZONS[-1]} steps"
OF_THE_PAPER = {
    "5 slots of 64": "the slots of its physics setup, five of 64",
    "slot attention": "the encoder of its physics setup too",
}
"""Setting of `PAIRS` -> what else "the same setup as the physics environment" may mean."""
RANKINGS = {"h1": "H@1", "mrr": "MRR"}


def over_seeds(runs: Sequence[Result], metric: str) -> list[float]:
    """In per cent, one a seed: the mean over the games."""
    by_seed: dict[int, list[float]] = {}
    for run in runs:
        by_seed.setdefault(run.seed, []).append(100 * run.number(metric))
    return [statistics.fmean(games) for games in by_seed.values()]


def means(runs: Sequence[Result], metric: str) -> str:
    """After each number of steps."""
    found = (statistics.fmean(over_seeds(runs, f"{metric}_{step}")) for step in HORIZONS)
    return ", ".join(f"{mean:.1f}" for mean in found)


def of(games: set[str], runs: Sequence[Result]) -> list[Result]:
    return [run for run in runs if run.config["game"] in games]


def ahead_on_average(ranking: str, rival: str) -> Callable[..., Finding]:
    """Whether a model is ahead of its rival in the mean of the games that both have played."""

    def decide(ours: list[Result], theirs: list[Result]) -> Finding:
        games = {run.config["game"] for run in ours} & {run.config["game"] for run in theirs}
        ours, theirs = of(games, ours), of(games, theirs)
        missing = [title for game, title in TITLES.items() if game not in games]
        steps = [f"{ranking}_{step}" for step in HORIZONS]
        of_games = f"{len(games)} game{'s' * (len(games) > 1)}"
        without = f"without {', '.join(missing)}; " * bool(missing)
        return Finding(
            f"mean {RANKINGS[ranking]} of {of_games} after {STEPS} {means(ours, ranking)}, {rival} "
            f"{means(theirs, ranking)}",
            together(*(better(over_seeds(ours, m), over_seeds(theirs, m)) for m in steps)),
            f"{without}copying the input has {means(ours, f'copy_{ranking}')}",
        )

    return decide


def published(game: Name, model: str, metric: str) -> float:
    """The paper's mean."""
    cell = PAPER[game][model].split(", ")[METRICS.index(metric)]
    return float(cell.split(" ± ")[0])


def ahead_in(game: Name, *steps: int) -> Claim:
    """The claim of the paper's table on a game: ahead of the GNN after these numbers of steps."""
    h1 = {
        model: ", ".join(str(published(game, model, f"h1_{step}")) for step in HORIZONS)
        for model in PAPER[game]
    }

    def decide(nps: list[Result], gnn: list[Result]) -> Finding:
        metrics = [f"{ranking}_{step}" for ranking in RANKINGS for step in steps]
        parts = [
            better(
                over_seeds(nps, metric),
                over_seeds(gnn, metric),
                margin=published(game, "NPS", metric) - published(game, "GNN", metric),
            )
            for metric in metrics
        ]
        return Finding(
            f"H@1 {means(nps, 'h1')}, GNN {means(gnn, 'h1')}",
            together(*parts),
            f"judged by H@1 and MRR; copying the input has H@1 {means(nps[:1], 'copy_h1')}",
        )

    after = " and ".join(map(str, steps))
    when = "" if steps == HORIZONS else f" after {after} steps"
    return Claim(
        f"appendix F.3, table {11 + list(PAPER).index(game)}",
        f"better than a GNN in {TITLES[game]}{when}",
        f"H@1 after {STEPS} {h1['NPS']} against {h1['GNN']}",
        PAPER_PAIR,
        decide,
        game,
    )


CLAIMS = (
    Claim(
        "section 4.3, figure 6 (b)",
        "better than a GNN",
        "mean H@1, plotted",
        PAPER_PAIR,
        ahead_on_average("h1", "GNN"),
    ),
    Claim(
        "appendix F.3, figure 13",
        "better than a GNN in MRR",
        "mean MRR, plotted",
        PAPER_PAIR,
        ahead_on_average("mrr", "GNN"),
    ),
    *(
        Claim(
            "section 4.3, figure 6 (b)",
            f"better than a GNN, with {slots}",
            "mean H@1, plotted",
            PAIRS[setting],
            ahead_on_average("h1", "GNN"),
        )
        for setting, slots in OF_THE_PAPER.items()
    ),
    ahead_in("pong", *HORIZONS),
    ahead_in("space_invaders", *HORIZONS[1:]),
    Claim(
        "a comment of appendix F.3",
        "5 rules are better than one",
        "H@1, plotted",
        ("atari-nps-5", "atari-nps"),
        ahead_on_average("h1", "one rule"),
    ),
)
