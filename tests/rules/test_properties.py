"""What holds of both layers whatever they learn: equivariance, sparsity, masks, types, noise.

The properties that the public call promises, each on random layers and slots.
"""

import itertools

import pytest
import torch

from nps import ConvRules, ParallelNPS, SequentialNPS, interactions

KINDS = [SequentialNPS, ParallelNPS]
BOTH = pytest.mark.parametrize("kind", KINDS)
INTEGER = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}


def make(kind, slot_dim=6, num_rules=4, seed=0, **options):
    torch.manual_seed(seed)
    return kind(slot_dim, num_rules, **options)


def same_bits(a, b):
    """Equal to the bit: tells -0.0 from 0.0, and lets NaN equal itself."""
    return a.dtype == b.dtype and torch.equal(a.view(INTEGER[a.dtype]), b.view(INTEGER[b.dtype]))


def assert_same_trace(a, b):
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x, y)


# -- permutations of slots -------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("query", ["linear", "mlp"])
@pytest.mark.parametrize("self_context", [True, False])
def test_equivariant_to_a_permutation_of_slots(kind, query, self_context):
    layer = make(kind, stages=3, query=query, self_context=self_context).eval()
    slots = torch.randn(20, 5, 6)
    order = torch.tensor([3, 0, 4, 1, 2])
    place = order.argsort()  # where each slot went
    new, trace = layer(slots, return_trace=True)
    moved, moved_trace = layer(slots[:, order], return_trace=True)
    torch.testing.assert_close(moved, new[:, order])
    assert torch.equal(moved_trace.rule, trace.rule[..., order])
    context = trace.context[..., order]
    assert torch.equal(moved_trace.context, torch.where(context < 0, -1, place[context]))
    torch.testing.assert_close(moved_trace.rule_scores, trace.rule_scores[..., order, :])
    expected = trace.context_scores[..., order, :][..., order]
    torch.testing.assert_close(moved_trace.context_scores, expected)


@BOTH
def test_equivariant_with_mask_and_selection_features(kind):
    layer = make(kind, stages=2, selection_dim=3).eval()
    slots, selection, mask = torch.randn(20, 4, 6), torch.randn(20, 4, 3), torch.rand(20, 4) < 0.7
    order = torch.tensor([2, 3, 0, 1])
    new = layer(slots, selection=selection, slot_mask=mask)
    moved = layer(slots[:, order], selection=selection[:, order], slot_mask=mask[:, order])
    torch.testing.assert_close(moved, new[:, order])


# -- what changes, and what it depends on ----------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_a_sequential_stage_changes_exactly_one_slot(training):
    layer = make(SequentialNPS).train(training)
    slots = torch.randn(50, 5, 6)
    new, trace = layer(slots, return_trace=True)
    changed = (new != slots).any(-1)
    assert (changed.sum(-1) == 1).all()
    assert torch.equal(changed, trace.fired[:, 0])


@pytest.mark.parametrize("training", [True, False])
def test_one_slot_a_stage_fires_in_a_sequential_trace(training):
    layer = make(SequentialNPS, stages=4).train(training)
    slots = torch.randn(50, 5, 6)
    new, trace = layer(slots, return_trace=True)
    assert ((trace.rule >= 0).sum(-1) == 1).all()
    assert ((trace.context >= 0).sum(-1) == 1).all()
    assert torch.equal(trace.rule >= 0, trace.context >= 0)
    assert torch.equal((new != slots).any(-1), trace.fired.any(-2))


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_slots_that_do_not_fire_come_back_bit_for_bit(kind, training):
    layer = make(kind, stages=2).train(training)
    slots = torch.randn(50, 5, 6)
    new, trace = layer(slots, return_trace=True)
    fired = trace.fired.any(-2)
    assert fired.any()
    assert not fired.all()
    assert same_bits(new[~fired], slots[~fired])
    assert (new[fired] != slots[fired]).any(-1).all()


@BOTH
def test_slots_that_do_not_fire_keep_the_sign_of_zero(kind):
    layer = make(kind).eval()
    slots = torch.where(torch.rand(50, 5, 6) < 0.5, -0.0, torch.randn(50, 5, 6))
    new, trace = layer(slots, return_trace=True)
    kept = ~trace.fired[:, 0]
    assert same_bits(new[kept], slots[kept])


@BOTH
def test_an_overflow_stays_in_its_own_slot(kind):
    # The update is too large for float16, rightly infinite where it lands; nowhere else.
    layer = make(kind).eval().half()
    with torch.no_grad():
        layer.rules.weight_out.mul_(1e5)
    slots = torch.randn(50, 5, 6, dtype=torch.float16) * 100
    for gradients in (False, True):  # with them, the other rules' overflows make it NaN
        with torch.set_grad_enabled(gradients):
            new, trace = layer(slots, return_trace=True)
        fired = trace.fired[:, 0]
        assert (new[fired].isnan() if gradients else new[fired].isinf()).any()
        assert same_bits(new[~fired], slots[~fired])


@BOTH
def test_the_change_of_a_slot_depends_on_it_and_its_context_alone(kind):
    # Selection sees features of its own, so the choices cannot move with the slots.
    layer = make(kind, selection_dim=3).eval()
    slots, selection = torch.randn(30, 5, 6), torch.randn(30, 5, 3)
    new, trace = layer(slots, selection=selection, return_trace=True)
    checked = 0
    for b, p in trace.fired[:, 0].nonzero().tolist():
        c = trace.context[b, 0, p].item()
        others = [j for j in range(5) if j not in (p, c)]
        other_slots = slots.clone()
        other_slots[b, others] += 100 * torch.randn(len(others), 6)
        again, its_trace = layer(other_slots, selection=selection, return_trace=True)
        assert torch.equal(its_trace.rule, trace.rule)
        assert torch.equal(again[b, p], new[b, p])
        if c != p:  # and it does depend on these two
            other_slots[b, c] += 1
            assert not torch.equal(layer(other_slots, selection=selection)[b, p], new[b, p])
            checked += 1
    assert checked > 5


@BOTH
def test_the_jacobian_of_a_slot_is_zero_but_for_it_and_its_context(kind):
    layer = make(kind, selection_dim=3, self_context=False).eval()
    slots, selection = torch.randn(5, 6), torch.randn(5, 3)
    _, trace = layer(slots, selection=selection, return_trace=True)
    p = trace.fired[0].nonzero()[0].item()
    c = trace.context[0, p].item()
    jacobian = torch.autograd.functional.jacobian(lambda v: layer(v, selection=selection)[p], slots)
    felt = (jacobian != 0).any(-1).any(0).nonzero().flatten().tolist()
    assert felt == sorted({p, c})


# -- masks -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("filler", [float("nan"), float("inf"), 7.0, -0.0])
def test_masked_slots_come_back_bit_for_bit_whatever_they_hold(kind, training, filler):
    layer = make(kind, stages=3).train(training)
    slots, mask = torch.randn(50, 5, 6), torch.rand(50, 5) < 0.6
    slots[~mask] = filler
    new = layer(slots, slot_mask=mask)
    assert same_bits(new[~mask], slots[~mask])
    assert torch.isfinite(new[mask]).all()
    assert not torch.equal(new[mask], slots[mask])


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_masked_slots_are_neither_primary_nor_context(kind, training):
    layer = make(kind, stages=3).train(training)
    mask = torch.rand(100, 5) < 0.5
    _, trace = layer(torch.randn(100, 5, 6), slot_mask=mask, return_trace=True)
    assert not trace.fired[~mask.unsqueeze(-2).expand_as(trace.fired)].any()
    contexts = trace.context[trace.fired]
    batch = trace.fired.nonzero()[:, 0]
    assert (contexts >= 0).all()
    assert mask[batch, contexts].all()


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_what_masked_slots_hold_changes_nothing(kind, training):
    layer = make(kind, stages=2).train(training)
    slots, mask = torch.randn(50, 5, 6), torch.rand(50, 5) < 0.6
    noise = torch.rand(layer.noise_shape(50, slots=5))
    other = torch.where(mask.unsqueeze(-1), slots, float("nan"))
    a, trace_a = layer(slots, slot_mask=mask, noise=noise, return_trace=True)
    b, trace_b = layer(other, slot_mask=mask, noise=noise, return_trace=True)
    assert torch.equal(a[mask], b[mask])
    assert_same_trace(trace_a, trace_b)


@BOTH
def test_selection_features_of_masked_slots_may_hold_anything(kind):
    layer = make(kind, stages=2, selection_dim=3).eval()
    slots, selection, mask = torch.randn(50, 5, 6), torch.randn(50, 5, 3), torch.rand(50, 5) < 0.6
    expected = layer(slots, selection=selection, slot_mask=mask)
    selection[~mask] = float("nan")
    assert torch.equal(layer(slots, selection=selection, slot_mask=mask), expected)


@BOTH
def test_masked_slots_act_as_if_they_were_not_there(kind):
    layer = make(kind, stages=2).eval()
    slots = torch.randn(50, 5, 6)
    keep = torch.tensor([0, 2, 3])
    mask = torch.zeros(50, 5, dtype=torch.bool)
    mask[:, keep] = True
    new = layer(slots, slot_mask=mask)
    torch.testing.assert_close(new[:, keep], layer(slots[:, keep]))


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_gradients_are_finite_when_masked_slots_hold_nan(kind, training):
    layer = make(kind, stages=2).train(training)
    slots, mask = torch.randn(20, 5, 6), torch.rand(20, 5) < 0.6
    slots[~mask] = float("nan")
    slots.requires_grad_()
    layer(slots, slot_mask=mask)[mask].square().sum().backward()
    assert torch.isfinite(slots.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_rows_without_slots_fire_nothing(kind, training):
    layer = make(kind, stages=2).train(training)
    slots, mask = torch.randn(8, 5, 6), torch.ones(8, 5, dtype=torch.bool)
    mask[::2] = False
    new, trace = layer(slots, slot_mask=mask, return_trace=True)
    assert same_bits(new[::2], slots[::2])
    assert (trace.rule[::2] == -1).all()
    assert (trace.context[::2] == -1).all()
    assert (trace.context_scores[::2] == 0).all()
    assert trace.fired[1::2].any()


# -- contexts --------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_a_slot_never_takes_itself_without_self_context(kind, training):
    layer = make(kind, stages=3, self_context=False).train(training)
    _, trace = layer(torch.randn(100, 3, 6), return_trace=True)
    own = torch.arange(3).expand_as(trace.context)
    assert (trace.context != own).all()
    assert (trace.context[trace.fired] >= 0).all()


@BOTH
def test_a_slot_may_take_itself_with_self_context(kind):
    layer = make(kind, stages=3)
    _, trace = layer(torch.randn(100, 3, 6), return_trace=True)
    own = torch.arange(3).expand_as(trace.context)
    assert (trace.context == own).any()


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_a_lone_slot_without_self_context_sees_zero(kind, training):
    layer = make(kind, self_context=False).train(training)
    slots = torch.randn(40, 1, 6)
    new, trace = layer(slots, return_trace=True)
    assert (trace.context == -1).all()
    fired = trace.fired[:, 0, 0]
    assert fired.any()
    outputs = layer.rules.outputs(slots[:, 0], torch.zeros(40, 6))
    update = outputs[trace.rule[:, 0, 0].clamp(min=0), torch.arange(40)]
    torch.testing.assert_close(new[fired, 0], (slots[:, 0] + update)[fired])


@BOTH
def test_the_only_unmasked_slot_has_no_context_without_self_context(kind):
    layer = make(kind, self_context=False, stages=2).eval()
    mask = torch.tensor([True, False, False]).expand(40, 3)
    new, trace = layer(torch.randn(40, 3, 6), slot_mask=mask, return_trace=True)
    assert trace.fired[..., 0].any()
    assert (trace.context == -1).all()
    assert torch.isfinite(new).all()


# -- shapes and traces -----------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3), (2, 1, 3), (2, 1, 2, 2), (0,)])
def test_any_number_of_leading_dimensions(kind, lead, training):
    layer = make(kind, stages=2).train(training)
    slots = torch.randn(*lead, 5, 6)
    noise = torch.rand(layer.noise_shape(*lead, slots=5))
    new, trace = layer(slots, noise=noise, return_trace=True)
    assert new.shape == slots.shape
    assert trace.rule.shape == trace.context.shape == trace.fired.shape == (*lead, 2, 5)
    assert trace.rule_scores.shape == (*lead, 2, 5, 4)
    assert trace.context_scores.shape == (*lead, 2, 5, 5)
    assert trace.rule.dtype == trace.context.dtype == torch.int64
    flat, flat_trace = layer(
        slots.reshape(-1, 5, 6), noise=noise.reshape(-1, 2, noise.shape[-1]), return_trace=True
    )
    torch.testing.assert_close(flat.reshape(slots.shape), new)
    assert torch.equal(flat_trace.rule.reshape(trace.rule.shape), trace.rule)
    assert torch.equal(flat_trace.context.reshape(trace.context.shape), trace.context)


@BOTH
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 4), (5, 1)])
def test_one_slot_and_one_rule_work(kind, m, n, training):
    layer = make(kind, num_rules=n, stages=2).train(training)
    slots = torch.randn(40, m, 6, requires_grad=True)
    new, trace = layer(slots, return_trace=True)
    new.square().sum().backward()
    assert torch.isfinite(new).all()
    assert torch.isfinite(slots.grad).all()
    assert trace.fired.any()
    assert trace.rule.max() < n
    assert trace.context.max() < m


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_context_scores_are_zero_exactly_where_nothing_fired(kind, training):
    layer = make(kind, stages=2).train(training)
    _, trace = layer(torch.randn(30, 5, 6), return_trace=True)
    assert (trace.context_scores[~trace.fired] == 0).all()
    assert (trace.context_scores[trace.fired] != 0).all()


@BOTH
def test_traced_scores_decide_in_evaluation(kind):
    layer = make(kind, stages=2).eval()
    _, trace = layer(torch.randn(30, 5, 6), return_trace=True)
    assert torch.equal(trace.rule[trace.fired], trace.rule_scores.argmax(-1)[trace.fired])
    assert torch.equal(trace.context[trace.fired], trace.context_scores.argmax(-1)[trace.fired])
    if kind is SequentialNPS:
        best = trace.rule_scores.flatten(-2).argmax(-1) // 4
        assert torch.equal(trace.fired.long().argmax(-1), best)


@BOTH
def test_the_trace_changes_nothing(kind):
    layer = make(kind, stages=2)
    slots = torch.randn(10, 5, 6)
    noise = torch.rand(layer.noise_shape(10, slots=5))
    assert torch.equal(layer(slots, noise=noise), layer(slots, noise=noise, return_trace=True)[0])


@BOTH
def test_stages_compose(kind):
    layer = make(kind, stages=3)
    slots = torch.randn(10, 5, 6)
    noise = torch.rand(layer.noise_shape(10, slots=5))
    expected, trace = layer(slots, noise=noise, return_trace=True)
    layer.stages = 1
    for k in range(3):
        slots, stage = layer(slots, noise=noise[:, k : k + 1], return_trace=True)
        assert torch.equal(stage.rule[:, 0], trace.rule[:, k])
    assert torch.equal(slots, expected)


@BOTH
def test_feature_maps_as_slots(kind):
    torch.manual_seed(0)
    layer = kind(3, 4, stages=2, rules=ConvRules(4, 3, hidden_dim=8))
    slots = torch.randn(20, 4, 3, 5, 6, requires_grad=True)
    mask = torch.rand(20, 4) < 0.8
    new, trace = layer(slots, slot_mask=mask, return_trace=True)
    fired = trace.fired.any(-2)
    assert new.shape == slots.shape
    assert trace.rule.shape == (20, 2, 4)
    assert same_bits(new[~fired], slots[~fired])
    assert not fired[~mask].any()
    assert (new[fired] != slots[fired]).flatten(1).any(-1).all()
    new.square().sum().backward()
    assert torch.isfinite(slots.grad).all()


# -- gradients -------------------------------------------------------------------------------------


def grad_of_rule_keys(layer, slots):
    """Gradient at the keys R_i W^k, (N, key_dim): the straight-through path alone."""
    kept = []

    def keep(module, inputs, output):
        output.retain_grad()
        kept.append(output)

    handle = layer.select.key.register_forward_hook(keep)
    layer(slots).square().sum().backward()
    handle.remove()
    return kept[0].grad


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_the_gradient_reaches_every_rule_from_one_element(kind, training):
    layer = make(kind, num_rules=5).train(training)
    slots = torch.randn(1, 4, 6)
    grad = grad_of_rule_keys(layer, slots)
    assert (grad != 0).any(-1).all()
    assert (layer.rules.embedding.grad != 0).any(-1).all()


@BOTH
def test_only_rules_that_fire_have_a_gradient_in_their_action(kind):
    layer = make(kind, num_rules=5, stages=2)
    slots = torch.randn(1, 3, 6)
    new, trace = layer(slots, return_trace=True)
    new.square().sum().backward()
    used = [i for i in range(5) if (trace.rule == i).any()]
    felt = (layer.rules.bias_out.grad != 0).any(-1).nonzero().flatten().tolist()
    assert felt == used
    assert len(used) < 5


def test_the_null_rule_learns_from_slots_that_did_not_fire():
    layer = make(ParallelNPS).eval()
    slots = torch.randn(20, 5, 6)
    new, trace = layer(slots, return_trace=True)
    quiet = ~trace.fired[:, 0]
    assert quiet.any()
    new[quiet].square().sum().backward()
    assert (layer.null_rule.grad != 0).any()
    assert (layer.rules.applicability.grad != 0).flatten(1).any(-1).all()


# -- noise -----------------------------------------------------------------------------------------


@BOTH
def test_evaluation_is_deterministic_and_draws_nothing(kind):
    layer = make(kind, stages=2, dropout=0.35).eval()
    slots = torch.randn(20, 5, 6)
    before = torch.get_rng_state()
    a, trace_a = layer(slots, return_trace=True)
    b, trace_b = layer(slots, return_trace=True)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a, b)
    assert_same_trace(trace_a, trace_b)


@BOTH
def test_evaluation_ignores_passed_noise(kind):
    layer = make(kind, stages=2).eval()
    slots = torch.randn(20, 5, 6)
    noise = torch.rand(layer.noise_shape(20, slots=5))
    assert torch.equal(layer(slots, noise=noise), layer(slots))


@BOTH
@pytest.mark.parametrize("dropout", [0.0, 0.35])
def test_a_generator_equals_its_numbers_passed(kind, dropout):
    layer = make(kind, stages=2, dropout=dropout)
    slots = torch.randn(20, 5, 6)
    shape = layer.noise_shape(20, slots=5)
    noise = torch.rand(shape, generator=torch.Generator().manual_seed(7))
    before = torch.get_rng_state()
    drawn = layer(slots, noise=torch.Generator().manual_seed(7))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(drawn, layer(slots, noise=noise))
    assert not torch.equal(drawn, layer(slots, noise=torch.Generator().manual_seed(8)))


@BOTH
def test_the_global_generator_is_the_default(kind):
    layer = make(kind, stages=2)
    slots = torch.randn(20, 5, 6)
    torch.manual_seed(3)
    drawn = layer(slots)
    torch.manual_seed(3)
    assert torch.equal(drawn, layer(slots, noise=torch.rand(layer.noise_shape(20, slots=5))))
    assert not torch.equal(drawn, layer(slots))


@BOTH
def test_a_schedule_may_hold_dropout_and_temperature_as_tensors(kind):
    layer = make(kind, stages=2, dropout=0.35, temperature=0.7)
    slots = torch.randn(20, 5, 6, requires_grad=True)
    noise = torch.rand(layer.noise_shape(20, slots=5))

    def run():
        new = layer(slots, noise=noise)
        return new, *torch.autograd.grad(new.square().sum(), [slots, *layer.parameters()])

    expected = run()
    layer.dropout, layer.temperature = torch.tensor(0.35), torch.tensor(0.7)
    assert noise.shape == layer.noise_shape(20, slots=5)
    for a, b in zip(run(), expected, strict=True):
        torch.testing.assert_close(a, b)
    layer.dropout = torch.tensor(0.0)  # is not looked at: its numbers are still drawn
    assert noise.shape == layer.noise_shape(20, slots=5)
    kept = layer(slots, noise=noise)
    layer.dropout = 0.0
    choices = layer.noise_shape(20, slots=5)[-1]
    torch.testing.assert_close(kept, layer(slots, noise=noise[..., :choices]))


def test_sequential_choices_follow_the_softmax_over_pairs():
    layer = make(SequentialNPS, num_rules=3)
    slots = torch.randn(4, 6) * 0.3
    _, trace = layer(slots.expand(20_000, 4, 6), return_trace=True)
    p = trace.rule_scores[0, 0].flatten().softmax(-1)
    pair = trace.fired[:, 0].long().argmax(-1) * 3 + trace.rule[:, 0].amax(-1)
    frequency = pair.bincount(minlength=12) / 20_000
    assert ((frequency - p).abs() < 5 * (p * (1 - p) / 20_000).sqrt() + 1e-4).all()


def test_parallel_choices_follow_their_softmaxes():
    layer = make(ParallelNPS, num_rules=3)
    slots = torch.randn(4, 6) * 0.3
    _, trace = layer(slots.expand(20_000, 4, 6), return_trace=True)
    fired = trace.fired[:, 0]
    key = layer.slot_key(slots)
    p = torch.sigmoid(key @ (layer.rules.joint_key() - layer.null_rule))
    bound = 5 * (p * (1 - p) / 20_000).sqrt() + 1e-4
    assert ((fired.float().mean(0) - p).abs() < bound).all()
    for m in range(4):
        rules = trace.rule[fired[:, m], 0, m]
        p = trace.rule_scores[0, 0, m].softmax(-1)
        bound = 5 * (p * (1 - p) / len(rules)).sqrt() + 1e-4
        assert ((rules.bincount(minlength=3) / len(rules) - p).abs() < bound).all()


# -- selection features ----------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_a_selection_function_equals_its_tensor_at_one_stage(kind, training):
    layer = make(kind, selection_dim=12).train(training)
    slots = torch.randn(20, 5, 6)
    noise = torch.rand(layer.noise_shape(20, slots=5))
    both = lambda v: torch.cat([v, v.abs()], -1)  # noqa: E731
    a, trace_a = layer(slots, selection=both, noise=noise, return_trace=True)
    b, trace_b = layer(slots, selection=both(slots), noise=noise, return_trace=True)
    assert torch.equal(a, b)
    assert_same_trace(trace_a, trace_b)


@BOTH
def test_a_selection_function_sees_the_slots_of_each_stage(kind):
    layer = make(kind, stages=3).eval()
    slots = torch.randn(20, 5, 6)
    seen = []

    def features(v):
        seen.append(v)
        return v

    new = layer(slots, selection=features)
    assert torch.equal(new, layer(slots))
    assert len(seen) == 3
    assert torch.equal(seen[0], slots)
    assert not torch.equal(seen[1], seen[0])
    assert not torch.equal(seen[2], seen[1])


@BOTH
def test_a_selection_tensor_stays_the_same_at_each_stage(kind):
    layer = make(kind, stages=3).eval()
    slots = torch.randn(20, 5, 6)
    _, trace = layer(slots, selection=slots, return_trace=True)
    assert torch.equal(trace.rule[:, 1], trace.rule[:, 0])
    assert torch.equal(trace.rule[:, 2], trace.rule[:, 0])
    assert torch.equal(trace.rule_scores[:, 2], trace.rule_scores[:, 0])


# -- types -----------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("whole", [False, True], ids=["autocast", "layer too"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_in_its_own_type(kind, dtype, whole, training):
    layer = make(kind, stages=3, dropout=0.35).train(training)
    if whole:
        layer = layer.to(dtype)
    slots = (10 * torch.randn(20, 5, 6)).to(dtype).requires_grad_()
    mask = torch.rand(20, 5) < 0.8
    with torch.autocast("cpu", dtype, enabled=not whole):
        new, trace = layer(slots, slot_mask=mask, return_trace=True)
    assert new.dtype == dtype
    assert torch.isfinite(new).all()
    fired = trace.fired.any(-2)
    assert same_bits(new[~fired], slots[~fired])
    new.float().square().mean().backward()
    assert slots.grad.dtype == dtype
    assert torch.isfinite(slots.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_slots_choose_as_in_float32(kind, dtype):
    layer = make(kind).eval()
    slots = torch.randn(200, 5, 6).to(dtype)
    with torch.autocast("cpu", dtype):
        other, half = layer(slots, return_trace=True)
    new, full = layer(slots.float(), return_trace=True)
    assert torch.equal(half.rule, full.rule)
    assert torch.equal(half.context, full.context)
    torch.testing.assert_close(other.float(), new, rtol=2e-2, atol=2e-2)


@BOTH
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_half_precision_layer_scores_in_float32(kind, dtype):
    layer = make(kind).to(dtype).eval()
    slots = torch.randn(50, 5, 6).to(dtype)
    _, half = layer(slots, return_trace=True)
    _, full = layer.float()(slots.float(), return_trace=True)
    torch.testing.assert_close(half.rule_scores, full.rule_scores)
    torch.testing.assert_close(half.context_scores, full.context_scores)


SEVERAL = {
    "SequentialNPS": lambda: SequentialNPS(8, 3),
    "ParallelNPS": lambda: ParallelNPS(8, 3),
    "Routing": lambda: interactions.Routing(8, 3, num_slots=5),
    "GNN": lambda: interactions.GNN(8),
    "Attention": lambda: interactions.Attention(8),
    "TransformerLayer": lambda: interactions.TransformerLayer(8),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", SEVERAL)
def test_another_type_than_the_weights_is_refused_as_by_a_linear_layer(name, training):
    layer, linear = SEVERAL[name]().train(training), torch.nn.Linear(8, 8)
    types = torch.float32, torch.float64, torch.bfloat16, torch.float16
    for weights, given in itertools.permutations(types, 2):
        slots = torch.randn(2, 5, 8).to(given)
        for module in (layer, linear):
            module.to(weights)
            with pytest.raises(RuntimeError) as caught:
                module(slots)
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", SEVERAL)
def test_autocast_takes_the_types_that_a_linear_layer_takes(name):
    layer, linear = SEVERAL[name](), torch.nn.Linear(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        for module in (layer, linear):
            module(torch.randn(2, 5, 8).bfloat16())
            with pytest.raises(RuntimeError):
                module(torch.randn(2, 5, 8).double())


@BOTH
def test_selection_of_another_type_is_refused(kind):
    layer = make(kind, selection_dim=3)
    with pytest.raises(RuntimeError, match=r"^selection: got torch\.float64, expected"):
        layer(torch.randn(2, 5, 6), selection=torch.randn(2, 5, 3).double())


@BOTH
@pytest.mark.parametrize("training", [True, False])
def test_autocast_works_and_changes_no_choice(kind, training):
    layer = make(kind).train(training)
    slots = torch.randn(200, 5, 6)
    noise = torch.rand(layer.noise_shape(200, slots=5))
    plain, trace = layer(slots, noise=noise, return_trace=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        new, cast = layer(slots, noise=noise, return_trace=True)
    assert new.dtype == torch.float32
    assert torch.equal(cast.rule, trace.rule)
    assert torch.equal(cast.context, trace.context)
    torch.testing.assert_close(new, plain, rtol=2e-2, atol=2e-2)
    new.square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@BOTH
def test_gradients_and_no_grad_give_the_same_values(kind):
    layer = make(kind, stages=2)
    slots = torch.randn(20, 5, 6)
    noise = torch.rand(layer.noise_shape(20, slots=5))
    expected = layer(slots, noise=noise)
    with torch.no_grad():
        assert torch.equal(layer(slots, noise=noise), expected)
