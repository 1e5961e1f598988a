"""Rules with more than one hidden layer, against an ordinary MLP for each rule."""

import copy

import pytest
import torch
from torch import nn

from nps import MLPRules, ParallelNPS, SequentialNPS

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
DEPTH = pytest.mark.parametrize("depth", [1, 2, 4])


def make_rules(depth, n=3, size=5):
    torch.manual_seed(0)
    rules = MLPRules(n, size, hidden_dim=7, hidden_layers=depth).double()
    with torch.no_grad():
        for name, parameter in rules.named_parameters():
            if name != "embedding":
                parameter.normal_()
    return rules


def ordinary(rules, i):
    """Rule i as torch writes it."""
    between = [f"_{k}" for k in range(1, rules.hidden_layers)]
    layers = []
    for name in ["_in", *between, "_out"]:
        weight, bias = getattr(rules, "weight" + name)[i], getattr(rules, "bias" + name)[i]
        linear = nn.Linear(*weight.shape).double()
        linear.weight, linear.bias = nn.Parameter(weight.t().clone()), nn.Parameter(bias.clone())
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@DEPTH
@pytest.mark.parametrize("training", [True, False])
def test_each_row_gets_its_rule_s_mlp(depth, training):
    rules = make_rules(depth).train(training)
    primary, context = torch.randn(2, 40, 5, dtype=torch.float64)
    chosen = torch.arange(40) % 4  # the last is no rule
    choice = nn.functional.one_hot(chosen, 4)[:, :3].double()
    with torch.set_grad_enabled(training):
        update = rules(primary, context, choice)
    for row, rule in enumerate(chosen.tolist()):
        x = torch.cat([primary[row], context[row]])
        expected = torch.zeros(5, dtype=torch.float64) if rule == 3 else ordinary(rules, rule)(x)
        torch.testing.assert_close(update[row], expected)


@DEPTH
def test_gradients_are_the_mlps(depth):
    rules = make_rules(depth).train()
    primary, context = torch.randn(2, 12, 5, dtype=torch.float64)
    choice = torch.rand(12, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.linspace(-1, 2, 60, dtype=torch.float64).view(12, 5)
    (rules(primary, context, choice) * weights).sum().backward()
    x = torch.cat([primary, context], -1)
    for i in range(3):
        mlp = ordinary(rules, i)
        out = mlp(x)
        torch.testing.assert_close(choice.grad[:, i], (out * weights).sum(-1))
        (out * weights * choice[:, i : i + 1].detach()).sum().backward()
        torch.testing.assert_close(rules.weight_in.grad[i], mlp[0].weight.grad.t())
        torch.testing.assert_close(rules.bias_out.grad[i], mlp[-1].bias.grad)
        if depth > 1:
            torch.testing.assert_close(rules.weight_1.grad[i], mlp[2].weight.grad.t())


@BOTH
def test_layers_learn_evaluate_and_keep_the_others_after_a_removal(kind):
    torch.manual_seed(0)
    layer = kind(6, 3, hidden_dim=8, hidden_layers=2)
    slots = torch.randn(64, 4, 6)
    layer(slots).square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.rules.parameters())
    layer.eval()
    with torch.no_grad():
        before, trace = layer(slots, return_trace=True)
        dense = copy.deepcopy(layer)
    torch.testing.assert_close(dense(slots), before)  # with gradients: every rule is computed
    layer.rules.remove(1)
    with torch.no_grad():
        after = layer(slots)
    same = (trace.rule != 1).flatten(1).all(1)
    assert same.any()
    assert torch.equal(after[same], before[same])


def test_one_hidden_layer_is_saved_as_ever():
    names = {"embedding", "weight_in", "bias_in", "weight_out", "bias_out", "_extra_state"}
    assert set(MLPRules(2, 3).state_dict()) == names
    assert set(MLPRules(2, 3, hidden_layers=2).state_dict()) == names | {"weight_1", "bias_1"}


@pytest.mark.parametrize("bad", [0, -1, 1.5, True])
def test_bad_numbers_of_layers(bad):
    with pytest.raises((ValueError, TypeError), match="hidden_layers"):
        MLPRules(2, 3, hidden_layers=bad)
