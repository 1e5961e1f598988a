"""Tables of rules: what stands in which cell."""

import numpy as np

from nps.inspect.rules import rule_table, usage
from nps.rules import MLPRules

OPERATIONS = ("up", "down", "turn")
TABLE = np.array([[5, 0], [1, 4], [7, 2]])


def test_usage_stands_beside_the_papers():
    plain = usage(OPERATIONS, TABLE, "c")
    assert plain.columns == ["", "rule 0", "rule 1"]
    assert plain.rows[2] == ["turn", "7", "2"]
    beside = usage(OPERATIONS, TABLE.tolist(), "c", [[9, 8, 7], [6, 5, 4]])
    assert beside.columns[3:] == ["paper 1", "paper 2", "paper 3"]
    assert beside.rows[0] == ["up", "5", "0", "9", "8", "7"]
    assert beside.rows[2] == ["turn", "7", "2", "–", "–", "–"]  # the paper has no such operation


def test_rules_with_what_they_serve():
    rules = MLPRules(2, 3, rule_dim=4, hidden_dim=5)
    rules.names[1] = "falls"
    rules.freeze(1)
    table = rule_table(rules, OPERATIONS, TABLE)
    size = 4 + 6 * 5 + 5 + 5 * 3 + 3
    assert table.rows[0] == ["0", "rule 0", "up, turn", "13", str(size), "no"]
    assert table.rows[1] == ["1", "falls", "down", "6", str(size), "yes"]
    idle = rule_table(rules, OPERATIONS, [[1, 0], [1, 0], [1, 0]])
    assert idle.rows[1][2:4] == ["–", "0"]
