"""World models: actions, transitions, roll-outs and the contrastive loss, against plain loops."""

import itertools

import pytest
import torch
from torch import nn

from nps.models.contrastive import (
    Moments,
    contrastive,
    energies_after,
    energy,
    negative_moments,
    negatives,
)
from nps.models.transitions import PerSlot, make_transition
from nps.models.world_model import Actions, WorldModel
from nps.rules import RuleConfig
from nps.training.stack import Stack

KINDS = ("snps", "pnps", "gnn", "attention", "mlp", "identity")
M, D, COUNT = 3, 4, 6


class Flat(nn.Module):
    """An encoder of images of 1 × 1 pixel, whose channels are the slots."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.scale * images[:, 0, 0].unflatten(-1, (M, D))


def model_of(
    kind: str,
    seed: int = 0,
    encoding: str = "copied",
    selection: str = "linear",
    num_rules: int = 1,
    **settings: object,
) -> WorldModel:
    torch.manual_seed(seed)
    actions = Actions(COUNT, M, encoding)
    rules = RuleConfig(num_rules, query="mlp" if selection == "mlp" else "linear", **settings)
    made = make_transition(
        kind,
        D,
        actions.dim,
        rules,
        slots=M,
        selection_per_slot=selection == "per-slot",
        index_dim=actions.index_dim,
        hidden_dim=16,
    )
    return WorldModel(Flat(), made, actions)


def images_of(count: int) -> torch.Tensor:
    return torch.randn(count, 1, 1, M * D, generator=torch.Generator().manual_seed(count))


def test_copied_and_factored_actions():
    copied, factored = Actions(COUNT, M, "copied"), Actions(COUNT, M, "factored")
    encoded = copied(torch.tensor([[5], [0]]))
    assert encoded.shape == (2, 1, M, COUNT)
    assert encoded[0, 0].tolist() == [[0, 0, 0, 0, 0, 1]] * M
    encoded = factored(torch.tensor([5, 0, 2]))
    assert (copied.dim, factored.dim) == (6, 2)
    assert encoded.tolist() == [
        [[0, 0], [0, 0], [0, 1]],
        [[1, 0], [0, 0], [0, 0]],
        [[0, 0], [1, 0], [0, 0]],
    ]
    numbered = Actions(COUNT, M, "numbered")
    assert (numbered.dim, numbered.index_dim, factored.index_dim) == (5, 3, 0)
    action = torch.tensor([[5, 0], [2, 2]])
    assert torch.equal(numbered(action)[..., :2], factored(action))
    assert torch.equal(numbered(action)[..., 2:], torch.eye(M).expand(2, 2, M, M))
    for encoding in ("factored", "numbered"):
        with pytest.raises(ValueError, match="count: got 7 actions, expected a multiple of"):
            Actions(7, M, encoding)


@pytest.mark.parametrize("kind", ["snps", "pnps"])
def test_rules_see_the_index_of_slots_and_selection_does_not(kind):
    """Slots that are equal except for their index have equal scores, and change differently."""
    model = model_of(kind, encoding="numbered", null_handicap=1e6, num_rules=2).eval()
    slots, action = torch.randn(1, 1, D).expand(1, M, D), torch.tensor([5])
    new, trace = model.traced(slots, action)
    first, second, acting = trace.rule_scores[0, 0]
    torch.testing.assert_close(first, second)
    assert not torch.allclose(first, acting)
    if kind == "pnps":
        assert trace.rule[0, 0, 0] == trace.rule[0, 0, 1]
        assert not torch.allclose(new[0, 0], new[0, 1])


@pytest.mark.parametrize("encoding", ["copied", "factored", "numbered"])
@pytest.mark.parametrize("kind", KINDS)
def test_roll_outs_are_repeated_predictions(kind, encoding):
    model = model_of(kind, encoding=encoding, selection="mlp").eval()
    images, actions = images_of(5), torch.randint(COUNT, (5, 3))
    with torch.no_grad():
        rolled = model.rollout(model.encode(images), actions)
        first = model(images, actions[:, 0])
        second = model.predict(first, actions[:, 1])
    assert rolled.shape == (5, 3, M, D)
    torch.testing.assert_close(rolled[:, 0], first)
    torch.testing.assert_close(rolled[:, 1], second)
    assert torch.equal(first, model.encode(images)) == (kind == "identity")


def test_rules_change_one_slot_and_the_gnn_all():
    images, action = images_of(5), torch.randint(COUNT, (5,))
    for kind, changed in {"snps": 1, "gnn": M, "mlp": M}.items():
        model = model_of(kind).eval()
        before, after = model.encode(images), model(images, action)
        assert ((before != after).any(-1).sum(-1) == changed).all(), kind


def test_the_action_chooses_the_primary_slot_unless_it_cancels():
    """One rule, a copied action: a linear selection does not see it, the two others do."""
    images = images_of(1).expand(COUNT, -1, -1, -1)
    seen = {}
    for selection in ("linear", "mlp", "per-slot"):
        seen[selection] = 0
        for seed in range(20):
            model = model_of("snps", seed, selection=selection).eval()
            before, after = model.encode(images), model(images, torch.arange(COUNT))
            primary = (before != after).any(-1).float().argmax(-1)
            seen[selection] += len(primary.unique()) > 1
    assert seen["linear"] == 0
    assert seen["mlp"] > 0
    assert seen["per-slot"] > 0


@pytest.mark.parametrize("selection", ["linear", "mlp", "per-slot"])
@pytest.mark.parametrize("kind", ["snps", "pnps"])
def test_the_trace_is_that_of_the_layer(kind, selection):
    options = {"num_rules": 3, "stages": 2, "self_context": False, "selection": selection}
    model = model_of(kind, **options).eval()
    slots, action = model.encode(images_of(5)), torch.randint(COUNT, (5,))
    new, trace = model.traced(slots, action)
    assert torch.equal(new, model.predict(slots, action))
    transition = model.transition
    together = torch.cat([slots, model.actions(action)], -1)
    changed, own = transition.layer(together, selection=transition.features, return_trace=True)
    assert torch.equal(new, changed[..., :D])
    for part, theirs in zip(trace, own, strict=True):
        assert torch.equal(part, theirs)
    assert trace.rule.shape == (5, 2, M)
    assert (trace.context != torch.arange(M)).all()
    still = ~trace.fired.any(1)
    assert torch.equal(new[still], slots[still])


def test_what_has_no_rules_leaves_no_trace():
    model = model_of("gnn")
    with pytest.raises(ValueError, match="got GNNTransition, expected a RuleTransition"):
        model.traced(torch.zeros(1, M, D), torch.zeros(1, dtype=torch.long))


def test_per_slot_is_a_matrix_for_each_position():
    layer, slots = PerSlot(M, D, 5), torch.randn(2, 7, M, D)
    expected = torch.stack([slots[..., m, :] @ layer.weight[m] for m in range(M)], -2)
    torch.testing.assert_close(layer(slots), expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # attention, under vmap
@pytest.mark.parametrize("selection", ["linear", "per-slot"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_predicts_what_each_model_does(kind, selection):
    images, action = images_of(6), torch.randint(COUNT, (6,))
    models = [model_of(kind, seed, selection=selection) for seed in (0, 1)]
    size = models[0].noise_size
    assert (size > 0) == (kind in ("snps", "pnps"))
    noise = torch.rand(2, 6, size)
    alone = [model(images, action, noise[s]) for s, model in enumerate(models)]
    still = [model.eval()(images, action).detach() for model in models]
    stack = Stack([model.train() for model in models])
    stacked = stack.each(lambda model, noise: model(images, action, noise), noise)
    torch.testing.assert_close(stacked, torch.stack(alone), rtol=1e-4, atol=1e-5)
    stack.model.eval()
    with torch.no_grad():
        stacked = stack.each(lambda model: model(images, action))
    torch.testing.assert_close(stacked, torch.stack(still), rtol=1e-4, atol=1e-5)


def test_the_loss_is_that_of_a_plain_loop():
    predicted, after, state, other = torch.randn(4, 5, M, D).unbind()
    far = 0.3 * other + state
    positive, negative = contrastive(predicted, after, state, far, hinge=2.0, sigma=0.7)
    for b in range(5):
        near = far = 0.0
        for m in range(M):
            for d in range(D):
                near += (predicted[b, m, d] - after[b, m, d]).item() ** 2 / M
                far += (0.3 * other[b, m, d]).item() ** 2 / M
        assert positive[b].item() == pytest.approx(near / (2 * 0.7**2), rel=1e-4)
        rest = 2.0 - far / (2 * 0.7**2)
        assert negative[b].item() == pytest.approx(max(0.0, rest), rel=1e-4, abs=1e-6)
    assert 0 < (negative > 0).sum() <= 5


@pytest.mark.parametrize("kind", ["snps", "pnps"])
def test_energies_after_single_updates_equal_loops(kind):
    model = model_of(kind, 0, num_rules=2)
    images, action = images_of(4), torch.randint(COUNT, (4,))
    state, after = model.encode(images), torch.randn(4, M, D)
    log_prior, updated = model.every_update(state, action)
    assert updated.shape == (*log_prior.shape, D)
    alone = kind == "pnps"
    found = energies_after(updated, state, after, alone=alone)
    for b, p, r, c in itertools.product(range(4), *map(range, log_prior.shape[1:])):
        new = state[b].clone()
        new[p] = updated[b, p, r, c]
        if alone:
            expected = (new[p] - after[b, p]).square().sum() / M / (2 * 0.5**2)
        else:
            expected = energy(new, after[b])
        torch.testing.assert_close(found[b, p, r, c], expected)


@pytest.mark.parametrize("kind", ["snps", "pnps"])
def test_the_likeliest_update_is_the_prediction(kind):
    model = model_of(kind, 0, num_rules=2).eval()
    slots, action = torch.randn(20, M, D), torch.randint(COUNT, (20,))
    _, updated = model.every_update(slots, action)
    predicted, trace = model.traced(slots, action)
    fired = trace.rule[:, 0]
    for b, p in (fired >= 0).nonzero().tolist():
        rule, context = fired[b, p], trace.context[b, 0, p]
        torch.testing.assert_close(predicted[b, p], updated[b, p, rule, context])


def test_energy_with_c_swm_s_sigma_is_twice_the_distance():
    one = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    assert energy(one, torch.zeros(2, 2)).item() == 2.0 * (0 + 2) / 2


def test_negatives_come_from_where_they_should():
    episodes, length, count = 4, 11, 400
    index = torch.arange(count)
    now = Moments(index % episodes, index % length)
    noise = torch.rand(count, 2)
    state, draw = torch.randn(count, M, D), noise[:, 0]
    assert len(negative_moments("batch", now, noise, episodes, length).time) == 0
    shuffled = negatives("batch", state, state[:0], noise)
    assert torch.equal(shuffled, state[draw.argsort()])
    assert not torch.equal(shuffled, state)

    same = negative_moments("episode", now, noise, episodes, length)
    assert torch.equal(same.episode, now.episode[:200])
    assert (same.time != now.time[:200]).all()
    assert set(same.time.tolist()) == set(range(length))
    half = negatives("episode", state, torch.zeros(200, M, D), noise)
    assert torch.equal(half[:200], torch.zeros(200, M, D))
    assert torch.equal(half[200:], shuffled[200:])

    aligned = negative_moments("time-aligned", now, noise, episodes, length)
    assert torch.equal(aligned.time, now.time)
    assert (aligned.episode != now.episode).all()
    assert set(aligned.episode.tolist()) == set(range(episodes))
    assert negatives("time-aligned", state, shuffled, noise) is shuffled


def test_bad_input():
    with pytest.raises(ValueError, match="kind: got 'rnn', expected one of snps"):
        make_transition("rnn", D, 2, RuleConfig(1), slots=M)
    with pytest.raises(ValueError, match="slots: got 0, expected at least 1"):
        make_transition("snps", D, 2, RuleConfig(1), slots=0)
    with pytest.raises(ValueError, match="encoding: got 'one', expected one of copied"):
        Actions(4, 2, "one")
