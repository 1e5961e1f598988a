"""What `nps inspect` shows of a run of coordinate arithmetic."""

from __future__ import annotations

from nps.experiments.arithmetic.report import in_words
from nps.experiments.arithmetic.task import ArithmeticTask
from nps.inspect.report import Part
from nps.inspect.rules import rule_table, usage
from nps.models.arithmetic import CoordinateArithmetic
from nps.worlds.arithmetic import OPERATIONS


def inspect_arithmetic(task: ArithmeticTask, model: CoordinateArithmetic) -> list[Part]:
    """Which rule serves which operation, and the rules in words."""
    tested = task.test(model)
    caption = f"Uses on the test set; MSE {tested['mse']:.3g}"
    return [
        usage(OPERATIONS, tested["table"], caption),
        rule_table(model.layer.rules, OPERATIONS, tested["table"]),
        in_words(tested["rules"]),
    ]
