"""Rules whose MLP is known exactly must be read as the sentence they are."""

import pytest
import torch

from nps.inspect.symbolic import read_rule
from nps.rules import MLPRules


def linear_rule(matrix: list[list[float]], bias: list[float] = (0.0, 0.0)) -> MLPRules:
    """An MLP that computes (primary, context) @ matrix + bias: pairs of units for both signs."""
    rules = MLPRules(1, 2, rule_dim=3, hidden_dim=8)
    with torch.no_grad():
        rules.weight_in.zero_()
        rules.bias_in.zero_()
        rules.weight_out.zero_()
        rules.bias_out.copy_(torch.tensor([bias]))
        for i in range(4):
            rules.weight_in[0, i, 2 * i] = 1.0
            rules.weight_in[0, i, 2 * i + 1] = -1.0
            rules.weight_out[0, 2 * i] = torch.tensor(matrix[i])
            rules.weight_out[0, 2 * i + 1] = -torch.tensor(matrix[i])
    return rules


@pytest.mark.parametrize(
    ("matrix", "bias", "sentence"),
    [
        ([[0, 0], [0, 0], [1, 0], [0, 0]], (0, 0), "x ← x + x_context"),
        ([[0, 0], [0, 0], [0, 0], [0, -1]], (0, 0), "y ← y - y_context"),
        ([[0.5, 0], [0, 0], [0.5, 0], [0, 0]], (0, 0), "x ← 1.50·x + 0.50·x_context"),
        ([[-1, 0], [0, 0], [1, 0], [0, 0]], (0, 0), "x ← x_context"),
        ([[0, 0], [0, 0], [0, 0], [0, 0]], (0, 0.25), "y ← y + 0.25"),
        ([[-2, 0], [0, 0], [0, 0], [0, 1]], (0, 0), "x ← -x, y ← y + y_context"),
        ([[0, 0], [0, 0], [0, 0], [0, 0]], (0, 0), "nothing changes"),
        ([[-1, 0], [0, 0], [0, 0], [0, 0]], (0, 0), "x ← 0"),
    ],
)
def test_sentences(matrix, bias, sentence):
    torch.manual_seed(0)
    reading = read_rule(linear_rule(matrix, bias), 0, torch.rand(50, 2), torch.rand(50, 2), "xy")
    assert reading.sentence == sentence
    assert reading.uses == 50
    assert reading.r2 == pytest.approx(1.0, abs=1e-5) or reading.r2 != reading.r2


def test_r2_tells_a_rule_that_is_not_linear():
    torch.manual_seed(0)
    rules = MLPRules(2, 2, hidden_dim=8)
    with torch.no_grad():
        rules.weight_in.mul_(4.0)
        rules.weight_out.mul_(20.0)
    primary, context = torch.randn(400, 2), torch.randn(400, 2)
    reading = read_rule(rules, 1, primary, context, "xy")
    update = rules.outputs(primary, context)[1].detach()
    design = torch.cat([primary, context, torch.ones(400, 1)], -1)
    fit = design @ torch.linalg.lstsq(design, update).solution
    expected = 1 - ((update - fit) ** 2).sum() / ((update - update.mean(0)) ** 2).sum()
    assert reading.r2 == pytest.approx(expected.item(), abs=1e-4)
    assert reading.r2 < 0.99


def test_unused_rules_say_so():
    rules = MLPRules(1, 2)
    assert read_rule(rules, 0, torch.rand(0, 2), torch.rand(0, 2), "xy").sentence == "never used"
    assert read_rule(rules, 0, torch.rand(3, 2), torch.rand(3, 2), "xy").sentence == "hardly used"
