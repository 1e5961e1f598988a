"""Optimisers survive a change of the number of rules, or fail loudly; nothing stops learning."""

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
    "fused": lambda p: torch.optim.Adam(p, lr=0.05, fused=True),
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
@pytest.mark.parametrize("passed", [True, False], ids=["passed", "not passed"])
def test_an_optimiser_with_moments_continues(kind, name, operation, passed):
    """The moments are those that a new optimiser would have been given row by row."""
    layer = make(kind)
    optimiser = OPTIMISERS[name](layer.parameters())
    losses = [step(layer, optimiser, seed) for seed in range(3)]
    old = copy.deepcopy(optimiser.state_dict())
    names = [key for key, _ in layer.named_parameters()]
    rows = surgery(layer.rules, operation, optimiser if passed else None)

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


@pytest.mark.parametrize("name", ["momentum", "Adam", "fused"])
def test_a_replaced_rule_starts_without_moments(name):
    """The number of rules is the same again, so that no shape tells of the change."""
    layer = make(SequentialNPS)
    optimiser = OPTIMISERS[name](layer.parameters())
    step(layer, optimiser, 0)
    moments = {
        key: {k: m.clone() for k, m in optimiser.state[p].items() if k != "step"}
        for key, p in layer.rules.named_parameters()
    }
    layer.rules.remove(0)
    layer.rules.add()
    for key, parameter in layer.rules.named_parameters():
        for k, before in moments[key].items():
            now = optimiser.state[parameter][k]
            assert torch.equal(now[:3], before[1:]), key
            assert not now[3].any(), key


@OPERATIONS
def test_all_optimisers_that_have_taken_steps_follow(operation):
    layer = make(SequentialNPS)
    both = [OPTIMISERS[name](layer.parameters()) for name in ("Adam", "momentum")]
    for optimiser in both:
        step(layer, optimiser, 0)
    surgery(layer.rules, operation, both[0])
    for key, parameter in layer.rules.named_parameters():
        assert both[0].state[parameter]["exp_avg"].shape == parameter.shape, key
        assert both[1].state[parameter]["momentum_buffer"].shape == parameter.shape, key


@pytest.mark.parametrize("name", ["momentum", "Adam", "one by one", "fused"])
@OPERATIONS
def test_loaded_moments_of_another_number_of_rules_are_refused(name, operation):
    """Fused Adam crashed the process, or applied moments to the wrong rules."""
    layer = make(SequentialNPS)
    optimiser = OPTIMISERS[name](layer.parameters())
    step(layer, optimiser, 0)
    loaded = OPTIMISERS[name](layer.parameters())
    loaded.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    rows = surgery(layer.rules, operation, None)
    before = [p.detach().clone() for p in layer.parameters()]
    message = rf"^optimizer: got moments of 4 rules, expected {len(rows)}; .* as optimizer=$"
    with pytest.raises(RuntimeError, match=message):
        step(layer, loaded, 1)
    assert all(torch.equal(p, b) for p, b in zip(layer.parameters(), before, strict=True))
    step(layer, optimiser, 1)
    step(layer, OPTIMISERS[name](layer.parameters()), 2)


def test_moments_that_exist_before_the_first_step_are_refused_or_passed():
    layer = make(SequentialNPS)
    optimiser, passed = (torch.optim.Adagrad(layer.parameters()) for _ in range(2))
    layer.rules.add(optimizer=passed)
    with pytest.raises(RuntimeError, match="got moments of 4 rules, expected 5"):
        step(layer, optimiser, 0)
    step(layer, passed, 0)


def test_factored_moments_are_not_taken_for_old_ones():
    """Adafactor's moment of the columns has one row, as many as there were rules at first."""
    layer = make(SequentialNPS, 1)
    layer.rules.add(2)
    optimiser = torch.optim.Adafactor(layer.parameters())
    for seed in range(2):
        step(layer, optimiser, seed)


@OPERATIONS
def test_an_optimiser_with_a_compiled_step_follows_too(operation):
    torch._dynamo.reset()
    layer, plain = make(SequentialNPS), make(SequentialNPS)
    optimiser = OPTIMISERS["Adam"](layer.parameters())
    other = OPTIMISERS["Adam"](plain.parameters())
    optimiser.step = torch.compile(optimiser.step, backend="eager")
    losses = [step(layer, optimiser, 0), step(plain, other, 0)]
    for each in (layer, plain):
        torch.manual_seed(0)
        surgery(each.rules, operation, None)
    losses += [step(layer, optimiser, 1), step(plain, other, 1)]
    for mine, its in zip(layer.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, its)


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
