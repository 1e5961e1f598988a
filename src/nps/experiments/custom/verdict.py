"""What can be concluded from the shares of predicted steps, in a few sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nps.experiments.custom.shares import Share, shares
from nps.experiments.world_models.config import ENOUGH, HORIZONS
from nps.experiments.world_models.headline import in_steps


def verdict(tests: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    """What can be concluded from the test metrics of one or several seeds, and what cannot.

    Args:
        tests: the metrics of each seed.
        config: the settings of the runs; those of older versions may lack some.
    """
    if tests[0]["distinct_observations"] == 1:
        return "All held-out observations are equal: there is nothing to predict."
    *rows, every = shares(tests)
    if every.copied == 100:
        return "Nothing changes within a held-out roll-out: there is nothing to predict."
    judged = [row for row in rows if row.enough]
    few = [row for row in rows if not row.enough]
    sentences = [_comparison(judged)] if judged else []
    if judged and not all(_mostly_right(row) for row in judged):
        sentences += _advice(config)
    sentences += _too_few(few)
    sentences += _dropped(rows, config)
    return " ".join(sentences)


def compare(rows: Mapping[str, Sequence[Share]]) -> str:
    """Whether one of several models predicts more of all steps than the others, as a sentence."""
    every = {name: of[-1] for name, of in rows.items()}
    best = max(every, key=lambda name: every[name].predicted)
    others = [share for name, share in every.items() if name != best]
    ahead = all(_lowest(every[best]) > _highest(share) for share in others)
    if ahead and all(share.enough for share in every.values()):
        return f"{best} predicts more steps than {' and '.join(n for n in every if n != best)}."
    why = "intervals overlap" if not ahead else f"fewer than {ENOUGH} roll-outs"
    return f"No difference between {' and '.join(every)} can be concluded ({why})."


def _lowest(share: Share) -> float:
    return min(share.low, *(share.over_seeds or (share.low,)))


def _highest(share: Share) -> float:
    return max(share.high, *(share.over_seeds or (share.high,)))


def _comparison(judged: Sequence[Share]) -> str:
    """One sentence: where it is better than copying the input, and where not."""
    better = [row for row in judged if row.better]
    differ = [row for row in judged if row.seeds_differ]
    rest = [row for row in judged if not row.better and not row.seeds_differ]
    parts = []
    if better:
        wrong = "" if all(map(_mostly_right, better)) else _wrong(better)
        parts.append(f"better than copying the input after {_steps(better)}{wrong}")
    if rest:
        worse = all(row.gain_high < 0 for row in rest)
        guess = all(row.low <= row.chance for row in rest)
        what = "worse than copying the input" if worse else "no better than copying the input"
        if guess:
            what += ", and no better than chance," if worse else " or than chance"
        parts.append(f"{what} after {_steps(rest, 'or')}")
    if differ:
        parts.append(
            f"better than copying the input on average after {_steps(differ)}, but the seeds "
            "differ too much to conclude it"
        )
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _too_few(few: Sequence[Share]) -> list[str]:
    """What cannot be concluded from so few roll-outs."""
    if not few:
        return []
    shown, unclear = [row for row in few if row.better], [row for row in few if not row.better]
    sentences = []
    if shown:
        sentences.append(
            f"After {_steps(shown)} it is better than copying the input on the {_count(shown)} "
            f"there, but fewer than {ENOUGH} cannot show by how much, or which of two models is "
            "better."
        )
    if unclear:
        sentences.append(
            f"After {_steps(unclear)} the test has only {_count(unclear)}: whether the model is "
            f"better than copying the input there cannot be concluded from fewer than {ENOUGH}."
        )
    return [*sentences, "Record more episodes, or hold out more of them (--held-out)."]


def _count(rows: Sequence[Share]) -> str:
    """`2 roll-outs`, `17 to 27 roll-outs`."""
    counts = sorted({row.rollouts for row in rows})
    text = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return f"{text} roll-out{'' if counts == [1] else 's'}"


def _mostly_right(row: Share) -> bool:
    return row.better and row.predicted >= 50


def _wrong(better: Sequence[Share]) -> str:
    worst = min(better, key=lambda row: row.predicted)
    return (
        f", but only {worst.predicted:.0f} % of the predictions are right after {_steps([worst])}"
    )


def _advice(config: Mapping[str, Any]) -> list[str]:
    if config.get("frames", 1) == 1:
        return [
            "One frame may not hold the state: try --frames 2. "
            "Or the training was too short (--epochs)."
        ]
    return ["The training may have been too short (--epochs), or the model too small."]


def _dropped(rows: Sequence[Share], config: Mapping[str, Any]) -> list[str]:
    """Name the horizons that were requested but that no held-out episode reaches."""
    wanted = config.get("test_steps", max(HORIZONS))
    longest = int(rows[-1].steps)
    dropped = [step for step in sorted({*HORIZONS, wanted}) if longest < step <= wanted]
    if not dropped:
        return []
    return [
        f"No held-out episode has more than {longest} step{'s' if longest > 1 else ''}: "
        f"left out {' and '.join(map(str, dropped))}."
    ]


def _steps(rows: Sequence[Share], word: str = "and") -> str:
    return in_steps((row.steps for row in rows), word)
