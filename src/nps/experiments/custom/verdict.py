"""What the shares of predicted steps allow one to conclude, as a table and in a few sentences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nps.experiments.world_models.config import HORIZONS

ENOUGH = 30
"""Roll-outs from which a verdict is given."""
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
"""Number of seeds -> half-width of the 95 % interval of their mean, in standard errors (Student's
t); beyond ten 2.2 is close enough."""
ALL = "all"


@dataclass(frozen=True)
class Share:
    """One row: the share of right predictions after so many steps, all numbers in per cent.

    Of several seeds all numbers are means, also the ends of their intervals over roll-outs.
    """

    steps: str
    """A number, or `all`."""
    predicted: float
    low: float
    high: float
    copied: float
    """Share of the copy-input baseline."""
    gain_low: float
    gain_high: float
    """Interval of the difference to it."""
    chance: float
    rollouts: int
    over_seeds: tuple[float, float] | None
    """95 % interval over seeds, if there are several."""

    @property
    def enough(self) -> bool:
        return self.rollouts >= ENOUGH

    @property
    def better(self) -> bool:
        """Better than copying the input and than chance, beyond the intervals."""
        among_seeds = self.over_seeds is None or self.over_seeds[0] > max(self.copied, self.chance)
        return self.gain_low > 0 and self.low > self.chance and among_seeds

    @property
    def cells(self) -> list[str]:
        """The row as text; see `COLUMNS`."""
        cells = [
            "all steps" if self.steps == ALL else self.steps,
            f"{self.predicted:.1f}",
            _interval(self.low, self.high),
            f"{self.copied:.1f}",
            f"{self.chance:.2g}",
            str(self.rollouts),
        ]
        return cells if self.over_seeds is None else [*cells, _interval(*self.over_seeds)]


COLUMNS = ("Steps", "Predicted", "95 % interval", "Copy the input", "Chance", "Roll-outs")
OVER_SEEDS = "95 % over seeds"
CAPTION = (
    "Predicted: held-out steps, in per cent, whose true observation is the nearest to the "
    "prediction among all distinct observations of the held-out episodes; k that are equally near "
    "count 1/k. 95 % interval: bootstrap over roll-outs. Copy the input: the observation is the "
    "first one of its roll-out again. Chance: one of the distinct observations at random."
)


def has_shares(test: Mapping[str, Any]) -> bool:
    """False for test metrics of older versions."""
    return "chance" in test and f"predicted_{ALL}" in test


def shares(tests: Sequence[Mapping[str, Any]]) -> list[Share]:
    """A row for each number of steps, and one for all steps, of the test metrics of some seeds."""
    names = [key.removeprefix("predicted_") for key in tests[0] if key.startswith("predicted_")]
    steps = sorted((name for name in names if name.isdigit()), key=int)
    return [_share(tests, step) for step in (*steps, ALL)]


def _share(tests: Sequence[Mapping[str, Any]], step: str) -> Share:
    def mean(key: str) -> float:
        return 100 * statistics.fmean(test[key] for test in tests)

    return Share(
        steps=step,
        predicted=mean(f"predicted_{step}"),
        low=mean(f"predicted_low_{step}"),
        high=mean(f"predicted_high_{step}"),
        copied=mean(f"copied_{step}"),
        gain_low=mean(f"gain_low_{step}"),
        gain_high=mean(f"gain_high_{step}"),
        chance=mean("chance"),
        rollouts=min(test[f"predicted_rollouts_{step}"] for test in tests),
        over_seeds=_over_seeds([100 * test[f"predicted_{step}"] for test in tests]),
    )


def _over_seeds(numbers: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of their mean, or None for a single number."""
    count = len(numbers)
    if count == 1:
        return None
    half = T_95.get(count, 2.2) * statistics.stdev(numbers) / math.sqrt(count)
    middle = statistics.fmean(numbers)
    return max(0.0, middle - half), min(100.0, middle + half)


def verdict(tests: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> str:
    """What can be concluded from the test metrics of one seed or several, and what can not.

    Args:
        tests: the metrics of each seed.
        config: the settings of the runs; those of older versions may lack some.
    """
    if tests[0]["distinct_observations"] == 1:
        return "All held-out observations are equal: there is nothing to predict."
    rows = shares(tests)[:-1]
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
    rest = [row for row in judged if not row.better]
    parts = []
    if better:
        wrong = "" if all(map(_mostly_right, better)) else _wrong(better)
        parts.append(f"better than copying the input after {_steps(better)}{wrong}")
    if rest:
        worse = all(row.gain_high < 0 for row in rest)
        what = "worse than" if worse else "no better than"
        chance = " or than chance" if all(row.low <= row.chance for row in rest) else ""
        parts.append(f"{what} copying the input{chance} after {_steps(rest, 'or')}")
    sentence = "; ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _too_few(few: Sequence[Share]) -> list[str]:
    """What so few roll-outs do not show."""
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
    """Name the numbers of steps that were asked for and that no held-out episode has."""
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
    """`1, 5 and 10 steps`."""
    *first, last = (row.steps for row in rows)
    text = f"{', '.join(first)} {word} {last}" if first else last
    return f"{text} step" if text == "1" else f"{text} steps"


def _interval(low: float, high: float) -> str:
    return f"{low:.0f} to {high:.0f}"
