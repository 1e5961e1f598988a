"""Evaluation computes only the rules that fire, and nobody can tell from the numbers.

The dense form, which a gradient needs, is the second implementation: with gradients on, an
evaluation layer computes every rule. Bits are compared within the sparse form alone.
"""

import copy
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call, stack_module_state, vmap
from torch.utils.flop_counter import FlopCounterMode

from nps import ConvRules, MLPRules, ParallelNPS, SequentialNPS
from nps.kernels.rules.dispatch import Blocks, supported

KINDS = [SequentialNPS, ParallelNPS]
BOTH = pytest.mark.parametrize("kind", KINDS)
CONVOLUTIONAL = pytest.mark.parametrize("convolutional", [False, True], ids=["mlp", "conv"])


def one_hot(rule, n, dtype=torch.float32):
    """Rule -1 is no rule."""
    return (rule.unsqueeze(-1) == torch.arange(n)).to(dtype)


def make_rules(n, slot_dim=6, hidden_dim=16, seed=0, convolutional=False):
    torch.manual_seed(seed)
    rules = (ConvRules if convolutional else MLPRules)(n, slot_dim, hidden_dim=hidden_dim).eval()
    with torch.no_grad():
        for bias in (rules.bias_in, rules.bias_out):
            bias.normal_()
    return rules


def make_rows(t, slot_dim=6, convolutional=False):
    return torch.randn(t, 2, slot_dim, *((4, 3) if convolutional else ())).unbind(1)


def make_layer(kind, n, *, slot_dim=6, hidden_dim=16, convolutional=False, **options):
    rules = make_rules(n, slot_dim, hidden_dim, convolutional=convolutional)
    return kind(slot_dim, n, rules=rules, **options).eval()


def make_slots(*batch, slot_dim=6, convolutional=False):
    return torch.randn(*batch, slot_dim, *((4, 3) if convolutional else ()))


def dense(rules, primary, context, choice):
    assert torch.is_grad_enabled()
    return rules(primary, context, choice).detach()


def sparse(module, *args, **kwargs):
    with torch.no_grad():
        return module(*args, **kwargs)


# -- the layout ------------------------------------------------------------------------------------


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    t=st.integers(1, 200),
    n=st.integers(1, 20),
    size=st.sampled_from([1, 3, 8]),
    skew=st.floats(0.1, 5.0),
    static=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_row_lies_in_a_block_of_its_rule(t, n, size, skew, static, seed):
    torch.manual_seed(seed)
    rule = (torch.rand(t) ** skew * (n + 1)).long() - 1
    blocks = Blocks.of(one_hot(rule, n), size, static=static)
    fired = rule >= 0
    assert torch.equal(blocks.fired, fired)
    assert torch.equal(blocks.rule[blocks.place // size][fired], rule[fired])
    assert torch.equal(blocks.source.flatten()[blocks.place][fired], torch.arange(t)[fired])
    needed = sum(-(-int((rule == i).sum()) // size) for i in range(n))
    if not static:
        assert len(blocks.rule) == max(1, needed)


@pytest.mark.parametrize("t", [1, 2, 31, 32, 33, 64, 1000])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_static_number_of_blocks_is_enough_and_tight(t, n):
    # The worst case: one row more than full blocks for as many rules as possible.
    worst = torch.cat([torch.arange(min(n, t)), torch.zeros(max(0, t - n), dtype=torch.long)])
    needed = len(Blocks.of(one_hot(worst, n), 32, static=False).rule)
    bound = len(Blocks.of(one_hot(worst, n), 32, static=True).rule)
    assert needed <= bound <= needed + 1


def test_the_static_layout_gives_the_same_results():
    rule, (x, y) = torch.randint(-1, 5, (100,)), torch.randn(2, 100, 3)
    choice, scale = one_hot(rule, 5), torch.randn(5)
    results = [
        Blocks.of(choice, 8, static=static).run(
            x,
            y,
            lambda pair, rule: pair[..., :3] * scale[rule][:, None, None] + pair[..., 3:],
            at_once,
        )
        for static, at_once in [(False, 1), (False, 3), (True, 100), (True, 4)]
    ]
    expected = torch.where(rule.unsqueeze(-1) >= 0, x * scale[rule].unsqueeze(-1) + y, 0.0)
    assert all(torch.equal(result, expected) for result in results)


# -- the same values as the dense form -------------------------------------------------------------


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    n=st.sampled_from([1, 2, 3, 10, 64]),
    t=st.sampled_from([1, 2, 31, 32, 33, 100, 700]),
    slot_dim=st.sampled_from([1, 3, 16, 17]),
    hidden_dim=st.sampled_from([1, 5, 32]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    seed=st.integers(0, 1000),
)
def test_rules_equal_the_dense_form(n, t, slot_dim, hidden_dim, dtype, seed):
    rules = make_rules(n, slot_dim, hidden_dim, seed).to(dtype)
    primary, context = (x.to(dtype) for x in make_rows(t, slot_dim))
    rule = torch.randint(-1, n, (t,))
    choice = one_hot(rule, n)
    new, expected = (f(rules, primary, context, choice) for f in (sparse, dense))
    assert new.dtype == expected.dtype
    torch.testing.assert_close(new, expected)
    assert (new[rule < 0] == 0).all()


@pytest.mark.parametrize("t", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_convolutional_rules_equal_the_dense_form(t, n, dtype):
    rules = make_rules(n, convolutional=True).to(dtype)
    primary, context = (x.to(dtype) for x in make_rows(t, convolutional=True))
    rule = torch.randint(-1, n, (t,))
    choice = one_hot(rule, n)
    new = sparse(rules, primary, context, choice)
    torch.testing.assert_close(new, dense(rules, primary, context, choice))
    assert (new[rule < 0] == 0).all()


@CONVOLUTIONAL
@pytest.mark.parametrize("winner", [-1, 0, 2])
def test_all_rows_on_one_rule_or_on_none(convolutional, winner):
    rules = make_rules(3, convolutional=convolutional)
    rows = make_rows(600, convolutional=convolutional)
    choice = one_hot(torch.full((600,), winner), 3)
    torch.testing.assert_close(sparse(rules, *rows, choice), dense(rules, *rows, choice))


@CONVOLUTIONAL
def test_no_rows(convolutional):
    rules = make_rules(3, convolutional=convolutional)
    rows = make_rows(0, convolutional=convolutional)
    assert sparse(rules, *rows, torch.zeros(0, 3)).shape == rows[0].shape


@BOTH
@CONVOLUTIONAL
@pytest.mark.parametrize("n", [1, 4, 20])
@pytest.mark.parametrize("batch", [(), (1,), (30,), (2, 0), (3, 2, 5)], ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
def test_layers_equal_the_dense_form(kind, convolutional, n, batch, masked):
    layer = make_layer(kind, n, convolutional=convolutional, stages=2, self_context=not masked)
    slots = make_slots(*batch, 5, convolutional=convolutional)
    call = {"slot_mask": torch.rand(*batch, 5) < 0.6 if masked else None, "return_trace": True}
    new, trace = sparse(layer, slots, **call)
    expected, its_trace = layer(slots, **call)
    torch.testing.assert_close(new, expected.detach())
    assert torch.equal(trace.rule, its_trace.rule)
    assert torch.equal(trace.context, its_trace.context)
    assert not new.requires_grad


@BOTH
def test_layers_equal_the_dense_form_with_frozen_and_disabled_rules(kind):
    layer = make_layer(kind, 5, stages=3)
    layer.rules.freeze(1)
    with torch.no_grad():
        layer.rules.weight_out[1] += 1.0  # what an optimiser would do
    slots = make_slots(200, 4)
    with layer.rules.disabled(2), layer.rules.disabled(3):
        torch.testing.assert_close(sparse(layer, slots), layer(slots).detach())


@BOTH
@CONVOLUTIONAL
def test_autocast_equals_the_dense_form(kind, convolutional):
    layer = make_layer(kind, 5, convolutional=convolutional)
    slots = make_slots(40, 4, convolutional=convolutional)
    with torch.autocast("cpu", torch.bfloat16):
        new, expected = sparse(layer, slots), layer(slots).detach()
    assert new.dtype == torch.float32
    assert not torch.equal(expected, layer(slots))
    torch.testing.assert_close(new, expected, rtol=1e-2, atol=1e-2)


# -- only the rules that fire ----------------------------------------------------------------------


@CONVOLUTIONAL
def test_a_rule_that_does_not_fire_is_not_computed(convolutional):
    rules = make_rules(6, convolutional=convolutional)
    rows = make_rows(300, convolutional=convolutional)
    choice = one_hot(2 * torch.randint(0, 3, (300,)), 6)
    expected = sparse(rules, *rows, choice)
    with torch.no_grad():
        for p in rules.parameters():
            p[1::2] = float("nan")
    assert torch.equal(sparse(rules, *rows, choice), expected)
    assert dense(rules, *rows, choice).isnan().all()


def test_slots_of_the_null_rule_are_not_computed():
    layer = make_layer(ParallelNPS, 3)
    seen = []
    layer.rules.register_forward_pre_hook(lambda _, args: seen.append(args[2].sum(-1)))
    _, trace = sparse(layer, make_slots(40, 4), return_trace=True)
    assert torch.equal(seen[0].reshape(40, 1, 4) > 0, trace.fired)
    assert 0 < trace.fired.sum() < 160


@CONVOLUTIONAL
def test_the_work_does_not_grow_with_the_rules(convolutional):
    rows = make_rows(300, convolutional=convolutional)

    def work(n):
        rules = make_rules(n, convolutional=convolutional)
        with FlopCounterMode(display=False) as counter:
            sparse(rules, *rows, one_hot(torch.arange(300) % 4, n))
        return counter.get_total_flops()

    assert work(4) == work(64) > 0


# -- bits ------------------------------------------------------------------------------------------


@CONVOLUTIONAL
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("slot_dim", "hidden_dim"), [(3, 5), (17, 33), (64, 128), (160, 32)])
def test_a_row_does_not_depend_on_its_company(convolutional, threads, dtype, slot_dim, hidden_dim):
    """Alone, in any order, beside any number of rows of any rules, after others were removed."""
    t, before = 40 if convolutional else 1100, torch.get_num_threads()
    rules = make_rules(6, slot_dim, hidden_dim, convolutional=convolutional).to(dtype)
    rows = [x.to(dtype) for x in make_rows(t, slot_dim, convolutional)]
    rule = torch.randint(-1, 6, (t,))
    torch.set_num_threads(threads)
    try:
        new = sparse(rules, *rows, one_hot(rule, 6))
        subsets = [torch.tensor([i]) for i in range(0, t, t // 8)]
        subsets += [torch.randperm(t)[:k] for k in (2, 9, 33, t)]
        for subset in subsets:
            again = sparse(rules, *(x[subset] for x in rows), one_hot(rule[subset], 6))
            assert torch.equal(again, new[subset])
        rules.remove(2)
        rules.remove(0)
        kept = (rule == 1) | (rule > 2)
        moved = one_hot(rule - (rule > 0).long() - (rule > 2).long(), 4)
        assert torch.equal(sparse(rules, *rows, moved)[kept], new[kept])
        alone = copy.deepcopy(rules)
        for _ in range(3):
            alone.remove(1)  # rule 1 of the six is left
        mine = rule == 1
        assert torch.equal(sparse(alone, *rows, one_hot(mine.long() - 1, 1))[mine], new[mine])
    finally:
        torch.set_num_threads(before)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    convolutional=st.booleans(),
    n=st.integers(2, 6),
    m=st.integers(1, 5),
    batch=st.integers(1, 40),
    slot_dim=st.sampled_from([3, 16, 17]),
    stages=st.integers(1, 3),
)
def test_removing_or_disabling_a_rule_keeps_the_others(
    kind, convolutional, n, m, batch, slot_dim, stages
):
    layer = make_layer(
        kind, n, slot_dim=slot_dim, hidden_dim=33, convolutional=convolutional, stages=stages
    )
    slots = make_slots(batch, m, slot_dim=slot_dim, convolutional=convolutional)
    new, trace = sparse(layer, slots, return_trace=True)
    for i in range(n):
        kept = (trace.rule != i).flatten(1).all(1)
        with layer.rules.disabled(i):
            assert torch.equal(sparse(layer, slots)[kept], new[kept])
        other = copy.deepcopy(layer)
        other.rules.remove(i)
        assert torch.equal(sparse(other, slots)[kept], new[kept])


@BOTH
@CONVOLUTIONAL
def test_an_example_does_not_depend_on_its_batch(kind, convolutional):
    """Bit for bit, as long as no two scores are so close that rounding decides between them."""
    layer = make_layer(kind, 5, convolutional=convolutional, stages=3)
    slots = make_slots(50, 4, convolutional=convolutional)
    new = sparse(layer, slots)
    for i in range(0, 50, 7):
        assert torch.equal(sparse(layer, slots[i]), new[i])


# -- when ------------------------------------------------------------------------------------------


def test_the_dense_form_is_kept_where_a_gradient_needs_it():
    x, p = torch.randn(2), torch.randn(2, requires_grad=True)
    assert supported(x)
    assert not supported(x, p)
    with torch.no_grad():
        assert supported(x, p)
        assert not vmap(lambda x: torch.tensor(supported(x, p)))(x.expand(3, 2)).any()


@BOTH
def test_evaluation_with_gradients_reaches_every_rule(kind):
    """Of the embedding and, by the straight-through choice, of rules that fire nowhere."""
    layer = make_layer(kind, 6)
    _, trace = layer(make_slots(3, 2), return_trace=True)
    assert len(trace.rule.unique()) < 6
    layer(make_slots(3, 2)).square().sum().backward()
    assert (layer.rules.embedding.grad != 0).any(-1).all()


@BOTH
def test_compiled_without_gradients_equals_eager(kind):
    layer = make_layer(kind, 4, stages=2)
    slots = make_slots(8, 5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(sparse(compiled, slots), sparse(layer, slots))
    torch._dynamo.reset()


@BOTH
def test_exported_without_gradients_equals_eager(kind):
    layer = make_layer(kind, 4)
    dynamic = ({0: torch.export.Dim("batch", min=2)},)
    with torch.no_grad():
        program = torch.export.export(layer, (make_slots(4, 5),), dynamic_shapes=dynamic)
    slots = make_slots(9, 5)
    torch.testing.assert_close(program.module()(slots), sparse(layer, slots))


@BOTH
def test_stacked_models_without_gradients_equal_the_loop(kind):
    models = [make_layer(kind, 4) for _ in range(3)]
    slots = make_slots(3, 7, 5)
    params, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    with torch.no_grad():
        new = vmap(lambda *state: functional_call(base, state[:2], state[2:]))(
            params, buffers, slots
        )
    for s, model in enumerate(models):
        torch.testing.assert_close(new[s], sparse(model, slots[s]))


@BOTH
@CONVOLUTIONAL
def test_nothing_is_read_off_the_device(kind, convolutional, monkeypatch):
    """Meta tensors have no values: whoever reads one fails, and every shape is static."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # knows no meta device
    layer = make_layer(kind, 4, convolutional=convolutional, stages=2).to("meta")
    slots = make_slots(8, 5, convolutional=convolutional).to("meta")
    assert sparse(layer, slots).shape == slots.shape
    with pytest.raises(RuntimeError, match="meta"):
        sparse(layer, slots).sum().item()
