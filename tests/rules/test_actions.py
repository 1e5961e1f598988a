"""The chosen rules' action in training, against the formula written out."""

import pytest
import torch

from nps import ConvRules, ParallelNPS, SequentialNPS
from nps.rules import MLPRules


def written_out(x, choice, weight_in, bias_in, weight_out, bias_out):
    """Σ_i choice_i · (relu(x W_i + b_i) W'_i + b'_i), one rule after the other."""
    out = torch.zeros(len(x), weight_out.shape[-1], dtype=x.dtype)
    for i in range(len(weight_in)):
        action = (x @ weight_in[i] + bias_in[i]).relu() @ weight_out[i] + bias_out[i]
        out = out + choice[:, i, None] * action
    return out


def make(rows, n, rule=None, hidden_layers=1):
    """Rules, slots of size 3, and a choice for each row; where a rule is -1 none was chosen."""
    torch.manual_seed(rows + n)
    rules = MLPRules(n, 3, hidden_dim=5, hidden_layers=hidden_layers).double()
    with torch.no_grad():
        for p in rules.parameters():
            p.normal_()
    index = torch.randint(-1, n, (rows,)) if rule is None else torch.full((rows,), rule)
    choice = torch.nn.functional.one_hot(index.clamp(min=0), n) * (index >= 0).unsqueeze(-1)
    primary, context = torch.randn(2, rows, 3, dtype=torch.float64)
    return rules, [x.double().requires_grad_() for x in (primary, context, choice)]


@pytest.mark.parametrize("rows", [1, 2, 17, 200])
@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_values_and_gradients(rows, n):
    """To every input, the choice of every rule included."""
    rules, given = make(rows, n)
    primary, context, choice = given
    weights = [rules.weight_in, rules.bias_in, rules.weight_out, rules.bias_out]
    g = torch.randn(rows, 3, dtype=torch.float64)
    ours = rules(primary, context, choice)
    theirs = written_out(torch.cat([primary, context], -1), choice, *weights)
    torch.testing.assert_close(ours, theirs)
    inputs = [*given, *weights]
    grads = torch.autograd.grad(ours, inputs, g), torch.autograd.grad(theirs, inputs, g)
    for mine, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("rule", [-1, 2])
def test_all_rows_alike(rule):
    rules, given = make(9, 4, rule)
    weights = [rules.weight_in, rules.bias_in, rules.weight_out, rules.bias_out]
    ours = rules(*given)
    torch.testing.assert_close(ours, written_out(torch.cat(given[:2], -1), given[2], *weights))
    for gradient in torch.autograd.grad(ours.sum(), weights, materialize_grads=True):
        others = [i for i in range(4) if i != rule]
        assert gradient[others].abs().max() == 0
        assert rule < 0 or gradient[rule].abs().max() > 0


@pytest.mark.parametrize("hidden_layers", [1, 2])
def test_training_and_evaluation_give_the_same(hidden_layers):
    rules, given = make(50, 4, hidden_layers=hidden_layers)
    torch.testing.assert_close(rules(*given), rules.eval()(*given))


class TwiceMLP(MLPRules):
    def outputs(self, primary, context):
        return 2 * super().outputs(primary, context)


class TwiceConv(ConvRules):
    def outputs(self, primary, context):
        return 2 * super().outputs(primary, context)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(
    ("stock", "own", "slot"), [(MLPRules, TwiceMLP, (3,)), (ConvRules, TwiceConv, (3, 4, 4))]
)
@pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
def test_overridden_outputs_are_used(kind, stock, own, slot, training):
    """One stage of a layer: the same choices, and twice the update."""
    torch.manual_seed(0)
    layer = kind(3, 4, rules=stock(4, 3, hidden_dim=5)).train(training)
    twice = kind(3, 4, rules=own(4, 3, hidden_dim=5)).train(training)
    twice.load_state_dict(layer.state_dict())
    slots = torch.randn(9, 5, *slot)
    noise = torch.rand(layer.noise_shape(9, slots=5)) if training else None
    update = layer(slots, noise=noise) - slots
    assert update.abs().max() > 0
    torch.testing.assert_close(twice(slots, noise=noise) - slots, 2 * update, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
def test_rules_that_start_at_zero_change_nothing_and_learn(kind):
    torch.manual_seed(0)
    layer = kind(6, 4, stages=2, zero_start=True)
    slots = torch.randn(8, 5, 6)
    assert torch.equal(layer(slots), slots)
    for _ in range(2):  # the output layers move first, and what is before them after that
        layer(slots).square().sum().backward()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter -= 0.01 * parameter.grad
    assert layer.rules.weight_in.grad.abs().sum() > 0
    assert not torch.equal(layer(slots), slots)
    layer.rules.add(1)
    assert not layer.rules.weight_out[-1].any()
