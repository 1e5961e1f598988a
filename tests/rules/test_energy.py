"""Every update at once, and the free energy over them, against loops over slots, rules, contexts.

The loops take a score at a time from `reference.py`, and each update from the layer's own step 4,
called with one-hot choices.
"""

import itertools
import math
from contextlib import ExitStack

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from nps import ConvRules, MLPRules, ParallelNPS, SequentialNPS
from nps.interactions import Routing
from nps.models.digits import OperandNPS
from nps.rules import GatedNPS, GatedParallelNPS, RuleSet, free_energy
from nps.rules.choice import log_shares
from nps.rules.config import MAX_HANDICAP
from nps.rules.energy import regret
from tests.rules import reference
from tests.rules.test_algorithms import SMALL, make, random_mask
from tests.rules.test_bad_input import assert_refused

KINDS = [SequentialNPS, ParallelNPS]
BOTH = pytest.mark.parametrize("kind", KINDS)


def shares(scores, may, temperature):
    """Softmax over what may be chosen; equal shares if nothing may."""
    if not any(may):
        return [1 / len(may)] * len(may)
    weights = [
        math.exp(s.item() / temperature) if m else 0.0 for s, m in zip(scores, may, strict=True)
    ]
    return [weight / sum(weights) for weight in weights]


def prior_by_loops(layer, seen, alive, enabled):
    """The probability of every slot, rule and context of one batch element."""
    m, n, t = len(seen), len(enabled), layer.temperature
    k = [reference.project(layer.select.key, layer.rules.embedding[i]) for i in range(n)]
    q = [reference.project(layer.select.query, seen[j]) for j in range(m)]
    scores = [[reference.dot(q[j], k[i]) for i in range(n)] for j in range(m)]
    may = [[alive[j] and enabled[i] for i in range(n)] for j in range(m)]
    keys = [reference.project(layer.bind.key, x) for x in seen]
    contexts = []
    for j in range(m):
        query = reference.project(layer.bind.query, seen[j])
        others = [alive[i] and (layer.self_context or i != j) for i in range(m)]
        contexts.append(shares([reference.dot(query, key) for key in keys], others, t))
    if isinstance(layer, SequentialNPS):
        flat = shares([s for row in scores for s in row], [x for row in may for x in row], t)
        pairs = [flat[j * n : (j + 1) * n] for j in range(m)]
        prior = [[[pairs[j][i] * c for c in contexts[j]] for i in range(n)] for j in range(m)]
        return torch.tensor(prior, dtype=torch.float64)
    prior = torch.zeros(m, n + 1, m, dtype=torch.float64)
    joint = layer.rules.joint_key()
    for j in range(m):
        k_j = reference.project(layer.slot_key, seen[j])
        null = reference.dot(layer.null_rule, k_j) - layer.null_handicap
        sides = [any(may[j]), layer.null_handicap < MAX_HANDICAP or not any(may[j])]
        won, lost = shares([reference.dot(joint, k_j), null], sides, t)
        for i, share in enumerate(shares(scores[j], may[j], t)):
            for c in range(m):
                prior[j, i, c] = won * share * contexts[j][c]
        prior[j, n, j] = lost
    return prior


def updates_by_steps(layer, slots, alive, enabled):
    """Slot p after each update, from the layer's step 4."""
    m, n = len(slots), len(enabled)
    nulls = int(isinstance(layer, ParallelNPS))
    new = slots[:, None, None].expand(m, n + nulls, m, *slots.shape[1:]).clone()
    one_hot, rules = torch.eye(m).to(slots), torch.eye(n).to(slots)
    for p in range(m):
        for r in range(n):
            for c in range(m):
                if not (alive[p] and enabled[r]):
                    continue
                seen = alive[c] and (layer.self_context or c != p)
                rows = m if nulls else 1
                rule = rules[r].expand(rows, n)
                context = (one_hot[c] * seen).expand(rows, m)
                new[p, r, c] = layer.apply_rule(slots, one_hot[p], rule, context)[p]
    return new


def assert_equals_loops(layer, slots, slot_mask=None, disabled=(), selection=None):
    log_prior, updated = layer.every_update(slots, slot_mask=slot_mask, selection=selection)
    enabled = [i not in disabled for i in range(len(layer.rules))]
    for b in range(len(slots)):
        alive = [True] * slots.shape[1] if slot_mask is None else slot_mask[b].tolist()
        seen = slots[b].flatten(2).mean(-1) if slots.dim() == 5 else slots[b]
        seen = seen if selection is None else selection[b]
        seen = [x if a else torch.zeros_like(x) for x, a in zip(seen, alive, strict=True)]
        prior = prior_by_loops(layer, seen, alive, enabled)
        torch.testing.assert_close(log_prior[b].exp(), prior)
        total = prior.sum((-2, -1)) if isinstance(layer, ParallelNPS) else prior.sum()
        torch.testing.assert_close(total, torch.ones_like(total))
        zeroed = slots[b].clone()
        zeroed[[not a for a in alive]] = 0.0
        expected = updates_by_steps(layer, zeroed, alive, enabled)
        for p in range(len(alive)):
            expected[p] = expected[p] if alive[p] else slots[b, p]
        torch.testing.assert_close(updated[b], expected)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"self_context": False},
        {"temperature": 0.5, "dropout": 0.35, "stages": 2},
        {"hidden_layers": 2},
        {"query": "mlp"},
        {"selection_dim": 5},
        {"num_rules": 1},
    ],
    ids=str,
)
@BOTH
def test_equals_loops(kind, options, training):
    layer = make(kind, **options).train(training)
    slots = torch.randn(2, 3, 3, dtype=torch.float64)
    features = torch.randn(2, 3, 5, dtype=torch.float64) if "selection_dim" in options else None
    assert_equals_loops(layer, slots, selection=features)


@pytest.mark.parametrize("self_context", [True, False])
@pytest.mark.parametrize("disabled", [(), (1,), (0, 1, 2)], ids=str)
@BOTH
def test_masked_slots_and_disabled_rules_have_no_share(kind, disabled, self_context):
    layer = make(kind, self_context=self_context)
    slots, mask = torch.randn(4, 4, 3, dtype=torch.float64), random_mask(4, 4)
    with ExitStack() as stack:
        for i in disabled:
            stack.enter_context(layer.rules.disabled(i))
        assert_equals_loops(layer, slots, mask, disabled)


@pytest.mark.parametrize("handicap", [2.0, MAX_HANDICAP])
def test_the_null_rule_has_its_handicap(handicap):
    layer = make(ParallelNPS, null_handicap=handicap)
    assert_equals_loops(layer, torch.randn(2, 3, 3, dtype=torch.float64))


class Twice(MLPRules):
    def outputs(self, primary, context):
        return 2 * super().outputs(primary, context)


class Shift(RuleSet):
    """A rule set of one's own, of which only the forward pass is known."""

    def __init__(self, num_rules, slot_dim, hidden_dim):
        super().__init__(num_rules, slot_dim, hidden_dim, {"shift": ((slot_dim,), 1.0)})

    def forward(self, primary, context, choice):
        return choice @ self.shift + context - 2 * primary


@pytest.mark.parametrize("rules", [ConvRules, Twice, Shift])
@BOTH
def test_other_rule_sets(kind, rules):
    torch.manual_seed(0)
    layer = kind(3, 2, rules=rules(2, 3, hidden_dim=4), self_context=False).double()
    slot = (3, 4, 4) if rules is ConvRules else (3,)
    assert_equals_loops(layer, torch.randn(2, 3, *slot, dtype=torch.float64))


@BOTH
def test_rules_without_context_see_zeros_while_training(kind):
    layer = make(kind)
    slots = torch.randn(2, 3, 3, dtype=torch.float64)
    layer.without_context = True
    alone = layer.every_update(slots)[1][:, :, :3]
    torch.testing.assert_close(alone, alone[..., :1, :].expand_as(alone))
    assert_equals_loops(layer.eval(), slots)


def test_sequential_nps_applies_the_likeliest_update():
    layer = make(SequentialNPS, seed=3).eval()
    slots, row = torch.randn(20, 4, 3, dtype=torch.float64), torch.arange(20)
    log_prior, updated = layer.every_update(slots)
    pair = log_prior.logsumexp(-1).flatten(1).argmax(-1)
    p, r = pair // 3, pair % 3
    c = log_prior[row, p, r].argmax(-1)
    expected = slots.index_put((row, p), updated[row, p, r, c])
    torch.testing.assert_close(layer(slots), expected)


def test_parallel_nps_applies_the_likeliest_update_of_each_slot():
    layer = make(ParallelNPS, seed=3).eval()
    slots = torch.randn(20, 4, 3, dtype=torch.float64)
    log_prior, updated = layer.every_update(slots)
    fires = log_prior[:, :, :3].flatten(2).logsumexp(-1) > log_prior[:, :, 3].logsumexp(-1)
    assert fires.any()
    assert not fires.all()
    expected = slots.clone()
    for b, p in fires.nonzero().tolist():
        r = log_prior[b, p, :3].logsumexp(-1).argmax()
        expected[b, p] = updated[b, p, r, log_prior[b, p, r].argmax()]
    torch.testing.assert_close(layer(slots), expected)


@BOTH
def test_equivariant_to_the_order_of_slots(kind):
    layer, order = make(kind, self_context=False), torch.randperm(5)
    slots, mask = torch.randn(6, 5, 3, dtype=torch.float64), torch.rand(6, 5) < 0.7
    log_prior, updated = layer.every_update(slots, slot_mask=mask)
    moved = layer.every_update(slots[:, order], slot_mask=mask[:, order])
    torch.testing.assert_close(moved[0].exp(), log_prior[:, order][..., order].exp())
    lawful = (moved[0] > -1e20).unsqueeze(-1)  # what has no share may hold anything
    torch.testing.assert_close(
        torch.where(lawful, moved[1], 0.0),
        torch.where(lawful, updated[:, order][..., order, :], 0.0),
    )


@BOTH
def test_stacked_models_equal_the_loop_over_them(kind):
    options = {"self_context": False, "query": "mlp"}
    models = [make(kind, seed=seed, **options).float() for seed in range(3)]
    slots, mask, losses = torch.randn(3, 7, 5, 3), torch.rand(3, 7, 5) < 0.8, torch.rand(7, 5, 1, 5)
    params, buffers = stack_module_state(models)

    def energy(layer, slots, mask, temperature):
        log_prior, updated = layer.every_update(slots, slot_mask=mask)
        return free_energy(log_prior, losses + updated.square().sum(-1), temperature).sum()

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = models[0]

        def forward(self, *given):
            return energy(self.layer, *given)

    def call(params, buffers, *given):
        state = {f"layer.{name}": x for name, x in (params | buffers).items()}
        return functional_call(Call(), state, given)

    temperatures = torch.tensor([0.1, 1.0, 10.0])
    found = vmap(call)(params, buffers, slots, mask, temperatures)
    grads = torch.autograd.grad(found.sum(), list(params.values()), materialize_grads=True)
    for s, model in enumerate(models):
        expected = energy(model, slots[s], mask[s], temperatures[s])
        torch.testing.assert_close(found[s], expected)
        its_grads = torch.autograd.grad(
            expected, list(model.parameters()), allow_unused=True, materialize_grads=True
        )
        for grad, its_grad in zip(grads, its_grads, strict=True):
            torch.testing.assert_close(grad[s], its_grad, rtol=1e-4, atol=1e-5)


@BOTH
def test_autocast_leaves_the_scores_exact(kind):
    layer, slots = make(kind).float(), torch.randn(8, 4, 3)
    log_prior, updated = layer.every_update(slots)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast, its_updated = layer.every_update(slots)
        energy = free_energy(cast, its_updated.square().sum(-1), 0.1)
    assert torch.equal(cast, log_prior)
    assert its_updated.dtype == energy.dtype == torch.float32
    torch.testing.assert_close(its_updated, updated, rtol=0.05, atol=0.05)


# -- the free energy -------------------------------------------------------------------------------


def test_free_energy_equals_a_loop():
    log_prior, losses = torch.randn(2, 6, 3, 2, 3, dtype=torch.float64)
    log_prior = log_prior.flatten(1).log_softmax(-1).view_as(log_prior)
    of_stages, of_slots = (free_energy(log_prior, losses, 0.3, dims=dims) for dims in (3, 2))
    for b in range(6):
        by_slot = [
            sum(
                math.exp(log_prior[b, p, r, c].item() - losses[b, p, r, c].item() / 0.3)
                for r in range(2)
                for c in range(3)
            )
            for p in range(3)
        ]
        assert of_stages[b].item() == pytest.approx(-0.3 * math.log(sum(by_slot)))
        assert of_slots[b].tolist() == pytest.approx([-0.3 * math.log(total) for total in by_slot])


def test_slots_that_choose_on_their_own_have_their_own_free_energy():
    """Algorithm 2 with a loss that is a sum over slots: the sum over joint outcomes factorises."""
    layer, t = make(ParallelNPS, num_rules=2), 0.3
    slots, target = torch.randn(2, 2, 3, dtype=torch.float64)
    log_prior, updated = layer.every_update(slots)
    losses = (updated - target[:, None, None]).square().sum(-1)
    total = 0.0
    for first, second in itertools.product(itertools.product(range(3), range(2)), repeat=2):
        chosen = (0, *first), (1, *second)
        shares = sum(log_prior[choice].item() for choice in chosen)
        total += math.exp(shares - sum(losses[choice].item() for choice in chosen) / t)
    found = free_energy(log_prior, losses, t, dims=2).sum().item()
    assert found == pytest.approx(-t * math.log(total))


@pytest.mark.parametrize("kind", KINDS)
def test_regret_equals_a_loop(kind):
    layer = make(kind, self_context=False)
    slots, mask = torch.randn(5, 3, 3, dtype=torch.float64), random_mask(5, 3)
    log_prior, updated = layer.every_update(slots, slot_mask=mask)
    losses = updated.square().sum(-1).detach()
    alone = kind is ParallelNPS  # each slot chooses for itself
    found = regret(log_prior, losses, dims=2 if alone else 3)
    assert found.shape == ((5, 3) if alone else (5,))
    for b, choice in itertools.product(range(5), range(3) if alone else [None]):
        prior, loss = (x[b] if choice is None else x[b, choice] for x in (log_prior, losses))
        pairs = list(zip(prior.flatten().exp().tolist(), loss.flatten().tolist(), strict=True))
        best = min(loss for share, loss in pairs if share > 0)
        expected = sum(share * loss for share, loss in pairs) - best
        assert (found[b] if choice is None else found[b, choice]).item() == pytest.approx(expected)


def test_regret_is_in_units_of_the_loss_and_ignores_what_no_choice_can_change():
    log_prior, losses = torch.randn(2, 6, 12, dtype=torch.float64)
    log_prior = log_prior.log_softmax(-1)
    found = regret(log_prior, losses, dims=1)
    assert (found > 0).all()
    torch.testing.assert_close(regret(log_prior, 3.0 * losses + 7.0, dims=1), 3.0 * found)
    sure = log_shares(-1e4 * losses, None, 1.0)
    assert regret(sure, losses, dims=1).abs().max() < 1e-9


def test_schedules_of_the_temperature():
    log_prior, losses = torch.randn(2, 6, 3, 2, 3)
    assert torch.equal(
        free_energy(log_prior, losses, torch.tensor(0.3)), free_energy(log_prior, losses, 0.3)
    )
    own = torch.rand(6) + 0.1
    expected = [
        free_energy(log_prior[b], losses[b], own[b].item(), dims=2).tolist() for b in range(6)
    ]
    found = free_energy(log_prior, losses, own[:, None].expand(6, 3), dims=2)
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("layer_temperature", [1.0, 0.5])
def test_the_gradient_to_the_scores_is_prior_minus_posterior(layer_temperature):
    scores, losses = torch.randn(2, 6, 12, dtype=torch.float64)
    scores.requires_grad_()
    prior = (scores / layer_temperature).softmax(-1)
    t = 0.2
    free_energy(log_shares(scores, None, layer_temperature), losses, t, dims=1).sum().backward()
    posterior = prior * (-losses / t).exp()
    posterior = posterior / posterior.sum(-1, keepdim=True)
    torch.testing.assert_close(scores.grad, t * (prior - posterior).detach() / layer_temperature)


def test_from_the_best_loss_to_the_expected_loss():
    log_prior, losses = torch.randn(6, 12, dtype=torch.float64).log_softmax(-1), torch.rand(6, 12)
    losses = losses.double()
    cold, hot = (free_energy(log_prior, losses, t, dims=1) for t in (1e-6, 1e4))
    torch.testing.assert_close(cold, losses.amin(-1), rtol=0, atol=1e-4)
    torch.testing.assert_close(hot, (log_prior.exp() * losses).sum(-1), rtol=0, atol=1e-4)


@BOTH
def test_everything_learns(kind):
    layer = make(kind)
    slots, target = torch.randn(2, 16, 4, 3, dtype=torch.float64)
    log_prior, updated = layer.every_update(slots)
    losses = (updated - target[:, :, None, None]).square().sum(-1)
    free_energy(log_prior, losses, 0.1, dims=3 if kind is SequentialNPS else 2).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.abs().sum() > 0, name


# -- wrong input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("losses", {"losses": torch.zeros(6, 3, 3, 3)}),
        ("losses", {"losses": None}),
        ("log_prior", {"log_prior": [0.0]}),
        *[("temperature", {"temperature": t}) for t in (0.0, -1.0, math.inf, math.nan, "1", None)],
        *[("dims", {"dims": dims}) for dims in (0, 5, 2.0, True)],
    ],
    ids=str,
)
def test_wrong_argument_of_free_energy(name, change):
    call = {"log_prior": torch.zeros(6, 3, 2, 3), "losses": torch.zeros(6, 3, 2, 3)}
    call |= {"temperature": 0.1, **change}
    assert_refused(lambda: free_energy(**call), name)


@BOTH
def test_wrong_argument_of_every_update(kind):
    layer = make(kind).float()
    assert_refused(lambda: layer.every_update(torch.zeros(2, 4, 5)), "slots")
    assert_refused(lambda: layer.every_update(torch.full((2, 4, 3), math.nan)), "slots")
    slots = torch.zeros(2, 4, 3)
    assert_refused(lambda: layer.every_update(slots, slot_mask=torch.ones(2, 3)), "slot_mask")
    assert_refused(lambda: layer.every_update(slots, selection=torch.zeros(2, 4, 1)), "selection")


@pytest.mark.parametrize("kind", [GatedNPS, GatedParallelNPS, OperandNPS])
def test_layers_with_other_steps_are_refused(kind):
    layer = kind(3, 2, **SMALL)
    assert_refused(lambda: layer.every_update(torch.zeros(2, 4, 3)), f"{kind.__name__} has its own")


def test_layers_without_scores_are_refused():
    layer = Routing(3, 2, num_slots=4)
    assert_refused(lambda: layer.every_update(torch.zeros(2, 4, 3)), "Routing")
