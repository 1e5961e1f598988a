"""A layer that decides how many slots fire: against a plain loop, and its two ends."""

import pytest
import torch
from torch.nn import functional as F

from nps.rules import AdaptiveNPS, ParallelNPS, free_energy, worth_loss
from nps.rules.config import MAX_HANDICAP

SIZES = {"rule_dim": 5, "key_dim": 7, "hidden_dim": 8}


def layer_of(**options):
    """A layer whose worth depends on its slots."""
    torch.manual_seed(0)
    layer = AdaptiveNPS(6, 4, **(SIZES | options))
    torch.nn.init.normal_(layer.worth_network[-1].weight)
    torch.nn.init.zeros_(layer.worth_network[-1].bias)
    return layer


def plain_of(layer):
    """Parallel NPS with the same weights, whose null rule never wins."""
    options = {**SIZES, "self_context": layer.self_context, "query": layer.config.query}
    plain = ParallelNPS(6, 4, null_handicap=MAX_HANDICAP, **options)
    shared = {k: v for k, v in layer.state_dict().items() if not k.startswith("worth_network")}
    plain.load_state_dict(plain.state_dict() | shared)
    return plain.train(layer.training)


@pytest.mark.parametrize("most", [None, 1, 2])
@pytest.mark.parametrize("masked", [False, True])
def test_slots_that_are_worth_it_change_as_in_algorithm_2(most, masked):
    """Slot by slot: the update of parallel NPS, where the network says that it is worth it."""
    layer = layer_of(most=most, self_context=False).eval()
    slots = torch.randn(30, 5, 6)
    mask = torch.rand(30, 5) < 0.7 if masked else torch.ones(30, 5, dtype=torch.bool)
    changed, everywhere = plain_of(layer)(slots, slot_mask=mask, return_trace=True)
    ours, trace = layer(slots, slot_mask=mask, return_trace=True)
    network, count = layer.worth_network, 0
    for b in range(30):
        present = torch.where(mask[b, :, None], slots[b], 0.0)
        worth = {}
        for m in range(5):
            if everywhere.rule[b, 0, m] < 0:
                continue
            context = everywhere.context[b, 0, m]
            other = present[context] if context >= 0 else torch.zeros(6)
            pair = [present[m], present[m], other, other]  # selection sees the slots
            worth[m] = network(torch.cat(pair)).item()
        ranked = sorted((m for m in worth if worth[m] > 0), key=lambda m: -worth[m])
        fires = set(ranked[:most])
        count += len(fires)
        for m in range(5):
            if m in fires:
                torch.testing.assert_close(ours[b, m], changed[b, m])
                assert trace.rule[b, 0, m] == everywhere.rule[b, 0, m]
                assert trace.context[b, 0, m] == everywhere.context[b, 0, m]
            else:
                assert torch.equal(ours[b, m], slots[b, m])
                assert trace.rule[b, 0, m] == -1
    assert 0 < count < 150


@pytest.mark.parametrize("train", [True, False])
def test_a_proposal_is_parallel_nps_without_a_null_rule(train):
    layer = layer_of(context_gradient="update", context_dropout=0.3).train(train)
    plain = plain_of(layer)
    plain.context_gradient, plain.context_dropout = "update", 0.3
    slots, mask = torch.randn(7, 5, 6, requires_grad=True), torch.rand(7, 5) < 0.8
    noise = torch.rand(layer.noise_shape(7, slots=5)) if train else None
    assert layer.noise_shape(7, slots=5) == plain.noise_shape(7, slots=5)
    new, worth = layer.propose(slots, slot_mask=mask, noise=noise)
    expected = plain(slots, slot_mask=mask, noise=noise)
    torch.testing.assert_close(new, expected)
    ours, theirs = (torch.autograd.grad(x.square().sum(), slots)[0] for x in (new, expected))
    torch.testing.assert_close(ours, theirs)
    assert worth.shape == (7, 5)
    if train:  # a call in training fires everywhere, too
        torch.testing.assert_close(layer(slots, slot_mask=mask, noise=noise), expected)


def test_its_ends():
    layer, slots = layer_of().eval(), torch.randn(50, 5, 6)
    layer.most = 1
    assert (layer(slots, return_trace=True)[1].fired.sum(-1) <= 1).all()
    fresh = AdaptiveNPS(6, 4, **SIZES).eval()  # nobody told it what updates are worth
    assert fresh(slots, return_trace=True)[1].fired.all()
    fresh.most = 1
    assert not fresh(slots, return_trace=True)[1].fired.any()  # equals: none is the best


def test_worth_is_learned_beside_the_rules():
    """It reaches the network alone; labels are which updates helped by more than the price."""
    layer, slots = layer_of(), torch.randn(20, 5, 6, requires_grad=True)
    new, worth = layer.propose(slots)
    fired, kept = new.square().sum(-1), slots.square().sum(-1)
    loss = worth_loss(worth, fired, kept, price=0.05)
    helped = (kept - fired > 0.05).float()
    p = torch.sigmoid(worth)
    plain = -(helped * p.log() + (1 - helped) * (1 - p).log())
    torch.testing.assert_close(loss, plain)
    loss.sum().backward()
    assert slots.grad is None or not slots.grad.any()
    for name, parameter in layer.named_parameters():
        learns = parameter.grad is not None and bool(parameter.grad.any())
        assert learns == name.startswith("worth_network"), name
    assert 0 < helped.mean() < 1
    always = worth_loss(worth, fired, kept, price=-1e9)
    torch.testing.assert_close(always, F.softplus(-worth))


def test_it_finds_the_slots_that_change():
    """Slots with a flag go to where their context is; the others stay. 1,000 steps of training."""
    torch.manual_seed(0)
    layer = AdaptiveNPS(3, 1, hidden_dim=32, query="mlp", self_context=False)
    adam = torch.optim.Adam(layer.parameters(), 3e-3)

    def draw(count):
        slots = torch.cat([torch.randn(count, 4, 2), torch.zeros(count, 4, 1)], -1)
        slots[..., 2] = torch.rand(count, 4) < 0.25
        return slots, torch.where(slots[..., 2:] > 0, slots * torch.tensor([-1.0, 1.0, 1.0]), slots)

    for _ in range(1_000):
        slots, target = draw(128)
        new, worth = layer.propose(slots)
        fired, kept = ((x - target).square().sum(-1) for x in (new, slots))
        loss = (fired + worth_loss(worth, fired, kept, price=0.02)).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    slots, target = draw(500)
    new, trace = layer.eval()(slots, return_trace=True)
    moves = (target - slots).square().sum(-1) > 0.05
    fired = trace.fired[:, 0]
    assert fired[moves].float().mean() > 0.97
    assert fired[slots[..., 2] == 0].float().mean() < 0.02
    assert (new - target).square().sum(-1).mean() < 0.02


def test_it_sees_what_selection_sees():
    layer = layer_of(selection_dim=3).eval()
    slots, features = torch.randn(50, 5, 6), torch.randn(50, 5, 3)
    new, trace = layer(slots, selection=features, return_trace=True)
    with torch.no_grad():
        _, worth = layer.propose(slots, selection=features)
        _, other = layer.propose(slots, selection=features + 0.5)
    assert torch.equal(trace.fired[:, 0], worth > 0)
    assert torch.equal((new != slots).any(-1), worth > 0)
    assert not torch.equal(worth, other)


def test_settings_and_weights_come_back():
    layer = layer_of(most=2).eval()
    assert layer.config.most == 2
    again = AdaptiveNPS.from_config(layer.config, 6).eval()
    again.load_state_dict(layer.state_dict())
    slots = torch.randn(4, 5, 6)
    assert torch.equal(again(slots), layer(slots))
    layer.most = 1
    assert layer.config.most == 1
    torch.manual_seed(3)
    first = AdaptiveNPS(6, 4)
    torch.manual_seed(3)
    layer = AdaptiveNPS(6, 4)
    torch.manual_seed(3)
    layer.reset_parameters()
    for a, b in zip(first.parameters(), layer.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("most", [None, 2])
def test_under_transforms(most):
    layer, slots = layer_of(most=most).eval(), torch.randn(6, 5, 6)
    expected = layer(slots)
    torch.testing.assert_close(torch.func.vmap(layer)(slots), expected)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(slots), expected)
    proposed = torch.compile(layer.propose, fullgraph=True, backend="eager")(slots)
    for ours, theirs in zip(proposed, layer.propose(slots), strict=True):
        torch.testing.assert_close(ours, theirs)
    exported = torch.export.export(layer, (slots,)).module()
    torch.testing.assert_close(exported(slots), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(slots).dtype == slots.dtype
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(layer(slots[:, order]), expected[:, order])


def test_bad_input_is_one_line():
    with pytest.raises(ValueError, match=r"^most: got 0, expected at least 1$"):
        AdaptiveNPS(6, 4, most=0)
    with pytest.raises(ValueError, match=r"^rules: got feature maps, expected slots"):
        AdaptiveNPS(6, 4, kernel_size=3)
    layer, slots = layer_of(), torch.randn(2, 5, 6)
    with pytest.raises(ValueError, match=r"^stages: got 2, expected 1 for propose$"):
        layer_of(stages=2).propose(slots)
    with pytest.raises(ValueError, match="every_update: AdaptiveNPS has"):
        free_energy(*layer.every_update(slots), 1.0)
    _, worth = layer.propose(slots)
    with pytest.raises(ValueError, match=r"^fired: got shape \(2, 4\), expected \(2, 5\)"):
        worth_loss(worth, worth[:, :4], worth)
    with pytest.raises(ValueError, match="kept: got 1, expected a tensor"):
        worth_loss(worth, worth, 1)
    with pytest.raises(ValueError, match="price: got nan, expected a number"):
        worth_loss(worth, worth, worth, price=float("nan"))
