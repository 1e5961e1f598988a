"""Slot attention against the published algorithm in plain loops, and the laws it must keep."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.perception.slot_attention import GRU, SlotAttention
from nps.training.stack import Stack

B, N, M, D, FEATURES = 2, 7, 3, 6, 5


def made(dtype: torch.dtype = torch.float64, **options: object) -> SlotAttention:
    torch.manual_seed(0)
    model = SlotAttention(M, D, feature_dim=FEATURES, hidden_dim=8, **options)
    for parameter in model.parameters():  # nothing at zero or one, where a mistake would not show
        nn.init.normal_(parameter, std=0.7)
    return model.to(dtype)


def seen(dtype: torch.dtype = torch.float64, count: int = B) -> Tensor:
    return torch.randn(count, N, FEATURES, generator=torch.Generator().manual_seed(1)).to(dtype)


def by_hand(model: SlotAttention, features: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """One image, one feature, one slot after the other, with keys, values and torch's GRU cell."""
    cell = nn.GRUCell(D, D).double()
    all_slots, all_maps = [], []
    for image in features:
        inputs = [model.norm_features(x) for x in image]
        keys, values = [model.key(x) for x in inputs], [model.value(x) for x in inputs]
        slots = list(start)
        for _ in range(model.iterations):
            queries = [model.query(model.norm_slots(slot)) for slot in slots]
            won = []
            for key in keys:
                scores = torch.stack([key @ query / D**0.5 for query in queries])
                won.append(scores.exp() / scores.exp().sum())
            for m in range(M):
                total = sum(w[m] + 1e-8 for w in won)
                update = sum((w[m] + 1e-8) / total * v for w, v in zip(won, values, strict=True))
                state = torch.func.functional_call(
                    cell, dict(model.gru.named_parameters()), (update[None], slots[m][None])
                )[0]
                hidden = F.linear(model.norm_mlp(state), model.mlp[0].weight, model.mlp[0].bias)
                slots[m] = state + model.mlp[2](hidden.clamp(min=0))
        all_slots.append(torch.stack(slots))
        all_maps.append(torch.stack(won).T)
    return torch.stack(all_slots), torch.stack(all_maps)


def test_values_and_gradients_are_those_of_plain_loops():
    model, features = made(), seen().requires_grad_()
    inputs = [features, *model.parameters()]
    ours = model(features, return_attention=True)
    theirs = by_hand(model, features, model.start)
    weight = torch.linspace(-1, 2, B * M * D, dtype=torch.float64).view(B, M, D)
    results = []
    for slots, maps in (ours, theirs):
        loss = (slots * weight).sum() + (maps * maps).sum()
        results.append(torch.autograd.grad(loss, inputs))
    for mine, other in zip([*ours, *results[0]], [*theirs, *results[1]], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


def test_sampled_starts_are_mean_and_spread():
    model, features = made(start="sampled"), seen()
    noise = torch.randn(B, M, D, dtype=torch.float64)
    slots = model(features, noise=noise)
    for b in range(B):
        start = model.sampled.mean + model.sampled.log_spread.exp() * noise[b]
        expected, _ = by_hand(model, features[b : b + 1], start)
        torch.testing.assert_close(slots[b], expected[0])
    assert not torch.equal(model(features), model(features))  # another draw


def test_the_gru_is_torch_s():
    cell, ours = nn.GRUCell(5, 4).double(), GRU(5, 4).double()
    ours.load_state_dict(cell.state_dict())
    update, state = torch.randn(9, 5).double(), torch.randn(9, 4).double()
    torch.testing.assert_close(ours(update, state), cell(update, state))


def test_starts_in_another_order_give_slots_in_that_order():
    model, features, order = made(), seen(), torch.tensor([2, 0, 1])
    slots, maps = model(features, return_attention=True)
    with torch.no_grad():
        model.start.copy_(model.start[order].clone())
    moved, moved_maps = model(features, return_attention=True)
    torch.testing.assert_close(moved, slots[:, order])
    torch.testing.assert_close(moved_maps, maps[:, order])


def test_the_order_of_features_does_not_matter():
    model, features = made(), seen()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(2))
    slots, maps = model(features, return_attention=True)
    moved, moved_maps = model(features[:, order], return_attention=True)
    torch.testing.assert_close(moved, slots)
    torch.testing.assert_close(moved_maps, maps[..., order])


def test_slots_share_every_feature():
    _, maps = made(torch.float32)(seen(torch.float32), return_attention=True)
    assert maps.shape == (B, M, N)
    torch.testing.assert_close(maps.sum(1), torch.ones(B, N))


def test_the_same_image_has_the_same_slots_in_any_batch():
    model, features = made(), seen()
    torch.testing.assert_close(model(features.flip(0)), model(features).flip(0))


def test_a_stack_of_seeds_is_each_seed_alone():
    models = []
    for seed in (0, 1, 2):
        torch.manual_seed(seed)
        models.append(SlotAttention(M, D, feature_dim=FEATURES))
    features = seen(torch.float32, 3 * B).view(3, B, N, FEATURES)
    alone, gradients = [], []
    for model, mine in zip(models, features, strict=True):
        alone.append(model(mine))
        gradients.append(torch.autograd.grad(alone[-1].square().sum(), list(model.parameters())))
    stack = Stack(models)
    slots = stack.each(lambda model, x: model(x), features)
    torch.testing.assert_close(slots, torch.stack(alone))
    parts = stack.parts(stack.gradient(slots.square().sum((1, 2, 3))))
    for part, expected in zip(parts.values(), zip(*gradients, strict=True), strict=True):
        torch.testing.assert_close(part, torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_under_autocast_slots_are_float32():
    model, features = made(torch.float32), seen(torch.float32)
    expected = model(features)
    with torch.autocast("cpu", torch.bfloat16):
        same, rounded = model(features), model(features.bfloat16())
    assert rounded.dtype == torch.float32
    assert torch.equal(same, expected)  # float32 features stay what they are
    torch.testing.assert_close(rounded, expected, rtol=0.1, atol=0.1)


def test_bad_input():
    with pytest.raises(ValueError, match="iterations: got 0, expected at least 1"):
        SlotAttention(3, 4, iterations=0)
    with pytest.raises(ValueError, match="start: got 'zero', expected one of learned, sampled"):
        SlotAttention(3, 4, start="zero")
    with pytest.raises(ValueError, match=r"features: got shape \(2, 7, 6\), expected \(B, n, 5\)"):
        made()(torch.zeros(2, 7, 6))
