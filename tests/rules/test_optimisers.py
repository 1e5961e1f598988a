"""Optimisers survive a change of the number of rules, or fail loudly; nothing stops to learn."""

import copy

import pytest
import torch

from nps import ConvRules, MLPRules, ParallelNPS, SequentialNPS

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
    "one by one": lambda p: torch.optim.Adam(p, lr=0.05, foreach=False),
}
EACH = pytest.mark.parametrize("name", OPTIMISERS)


def make(kind, num_rules=4, seed=0):
    torch.manual_seed(seed)
    return kind(6, num_rules, key_dim=8, hidden_dim=16)


def step(layer, optimiser, seed):
    generator = torch.Generator().manual_seed(seed)
    optimiser.zero_grad()
    slots = torch.randn(32, 4, 6, generator=generator)
    loss = layer(slots, noise=generator).square().mean()
    loss.backward()
    optimiser.step()
    return loss  # keeps the graph alive, as a training loop does


def surgery(rules, operation, optimiser):
    if operation == "add":
        rules.add(2, optimizer=optimiser)
        return [0, 1, 2, 3, None, None]
    rules.remove(1, optimizer=optimiser)
    return [0, 2, 3]


OPERATIONS = pytest.mark.parametrize("operation", ["add", "remove"])


# -- made before the change ------------------------------------------------------------------------


@BOTH
@EACH
@OPERATIONS
def test_an_optimiser_without_a_step_trains_all_rules(kind, name, operation):
    layer = make(kind)
    optimiser = OPTIMISERS[name](layer.parameters())
    surgery(layer.rules, operation, None)
    before = {key: p.detach().clone() for key, p in layer.rules.named_parameters()}
    for seed in range(3):
        step(layer, optimiser, seed)
    for key, parameter in layer.rules.named_parameters():
        assert (parameter != before[key]).flatten(1).any(1).all(), key


@BOTH
@EACH
@OPERATIONS
def test_an_optimiser_that_is_passed_continues(kind, name, operation):
    """The moments are those that a new optimiser would have been given row by row."""
    layer = make(kind)
    optimiser = OPTIMISERS[name](layer.parameters())
    losses = [step(layer, optimiser, seed) for seed in range(3)]
    old = copy.deepcopy(optimiser.state_dict())
    names = [key for key, _ in layer.named_parameters()]
    rows = surgery(layer.rules, operation, optimiser)

    oracle = make(kind, len(rows), seed=1)
    oracle.load_state_dict(layer.state_dict())
    other = OPTIMISERS[name](oracle.parameters())
    for position, state in old["state"].items():
        if names[position].startswith("rules."):
            for key, moment in state.items():
                if key != "step" and moment is not None:
                    nothing = torch.zeros_like(moment[0])
                    picked = [nothing if row is None else moment[row] for row in rows]
                    state[key] = torch.stack(picked)
    other.load_state_dict(old)
    for seed in range(3, 6):
        losses += [step(layer, optimiser, seed), step(oracle, other, seed)]
        for mine, its in zip(layer.parameters(), oracle.parameters(), strict=True):
            assert torch.equal(mine, its)


@pytest.mark.parametrize("name", ["momentum", "Adam", "one by one"])
@OPERATIONS
def test_an_optimiser_with_moments_that_is_not_passed_fails_loudly(name, operation):
    layer = make(SequentialNPS)
    optimiser = OPTIMISERS[name](layer.parameters())
    step(layer, optimiser, 0)
    surgery(layer.rules, operation, None)
    with pytest.raises(RuntimeError, match="size"):
        step(layer, optimiser, 1)


@OPERATIONS
def test_gradients_before_a_step_are_kept(operation):
    layer = make(SequentialNPS)
    layer(torch.randn(20, 4, 6)).square().sum().backward()
    before = {key: p.grad.clone() for key, p in layer.rules.named_parameters()}
    rows = surgery(layer.rules, operation, None)
    for key, parameter in layer.rules.named_parameters():
        for place, row in enumerate(rows):
            expected = 0 if row is None else before[key][row]
            assert (parameter.grad[place] == expected).all(), key


def test_resize_passes_the_optimiser_on():
    rules = MLPRules(4, 3)
    optimiser = torch.optim.Adam(rules.parameters())
    for n in (6, 2, 2):
        rules.embedding.sum().backward()
        optimiser.step()
        rules.resize(n, optimizer=optimiser)
        assert len(rules) == len(rules.names) == n
        assert len(optimiser.state[rules.embedding]["exp_avg"]) == n


def test_new_rules_learn_in_a_frozen_model():
    layer = make(SequentialNPS).requires_grad_(False)
    layer.rules.freeze(*range(4))
    layer.rules.add()
    before = layer.rules.embedding.detach().clone()
    step(layer, torch.optim.SGD([p for p in layer.parameters() if p.requires_grad], lr=1.0), 0)
    layer.rules.state_dict()  # puts frozen values back
    assert (layer.rules.embedding != before).any(1).tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("operation", ["add", "remove"])
@pytest.mark.parametrize("wrong", ["another model's", "no optimiser"])
def test_the_wrong_optimiser_is_refused_before_anything_changes(operation, wrong):
    rules = MLPRules(3, 4)
    optimiser = torch.optim.Adam(MLPRules(3, 4).parameters()) if wrong[0] == "a" else "adam"
    with pytest.raises(ValueError, match=r"^optimizer: got "):
        getattr(rules, operation)(1, optimizer=optimiser)
    assert len(rules) == len(rules.names) == 3


# -- loading ---------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("convolutional", [False, True])
def test_another_number_of_rules_is_refused(kind, convolutional):
    def build(n):
        return kind(6, n, kernel_size=3) if convolutional else kind(6, n)

    layer, saved = build(4), build(6)
    saved.rules.names[0] = "push"
    saved.rules.freeze(3)
    before = {key: value.clone() for key, value in layer.rules.state_dict().items()}
    optimiser = torch.optim.SGD(layer.parameters(), lr=1.0)
    message = r"rules\.embedding: got 6 rules, expected 4; call rules\.resize\(6\) before"
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=message):
            layer.load_state_dict(saved.state_dict(), strict=strict)
    assert layer.rules.names == [f"rule {i}" for i in range(4)]
    assert layer.rules.frozen == []
    after = layer.rules.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())

    layer.rules.resize(6)
    layer.load_state_dict(saved.state_dict())
    assert layer.rules.names[0] == "push"
    assert layer.rules.frozen == [3]
    trained = {id(p) for group in optimiser.param_groups for p in group["params"]}
    assert {id(p) for p in layer.parameters()} == trained


def test_a_rule_set_alone_names_its_own_method():
    with pytest.raises(RuntimeError, match=r"embedding: got 2 rules, expected 3; call resize\(2\)"):
        ConvRules(3, 4).load_state_dict(ConvRules(2, 4).state_dict())
