"""The layers equal plain loops over the lines of Algorithms 1 and 2 (`reference.py`).

Values, traces and straight-through gradients with respect to the slots, the selection features and
every parameter, in float64. The layers make their noise in float32: training has that tolerance.
"""

from contextlib import ExitStack

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nps import ConvRules, MLPRules, ParallelNPS, SequentialNPS
from nps.rules.config import MAX_HANDICAP
from tests.rules import reference

KINDS = [SequentialNPS, ParallelNPS]
LOOPS = {SequentialNPS: reference.sequential, ParallelNPS: reference.parallel}
SMALL = {"rule_dim": 5, "key_dim": 4, "hidden_dim": 6}


def make(kind, slot_dim=3, num_rules=3, seed=0, **options):
    torch.manual_seed(seed)
    return unlike_new(kind(slot_dim, num_rules, **SMALL, **options).double())


def unlike_new(module):
    """Move every parameter: what starts at zero or small would hide its part of a comparison."""
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return module


def random_mask(*shape):
    """Some slots out; the first batch element keeps one slot, the last keeps none."""
    mask = torch.rand(shape) < 0.6
    rows = mask.view(-1, shape[-1])
    rows[-1] = False
    rows[0] = torch.arange(shape[-1]) == shape[-1] - 1
    return mask


def assert_equals_loops(layer, slots, training, disabled=(), **call):
    layer.train(training)
    noise = None
    if training:
        noise = torch.rand(layer.noise_shape(*slots.shape[:-2], slots=slots.shape[-2]))
    slots.requires_grad_()
    selection = call.get("selection")
    inputs = {"slots": slots, **dict(layer.named_parameters())}
    if isinstance(selection, torch.Tensor):
        inputs["selection"] = selection.requires_grad_()

    new, trace = layer(slots, noise=noise, return_trace=True, **call)
    expected = LOOPS[type(layer)](layer, slots, noise=noise, disabled=disabled, **call)

    close = {"rtol": 1e-5, "atol": 1e-6} if training else {"rtol": 1e-9, "atol": 1e-10}
    assert torch.equal(trace.rule, expected.rule)
    assert torch.equal(trace.context, expected.context)
    torch.testing.assert_close(new, expected.slots, **close, equal_nan=True)
    torch.testing.assert_close(trace.rule_scores, expected.rule_scores, **close)
    torch.testing.assert_close(trace.context_scores, expected.context_scores, **close)

    weights = torch.randn_like(new)
    ours, theirs = (
        torch.autograd.grad(
            (torch.nan_to_num(out) * weights).sum(),
            inputs.values(),
            allow_unused=True,
            materialize_grads=True,
        )
        for out in (new, expected.slots)
    )
    for name, a, b in zip(inputs, ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **close, msg=lambda text, name=name: f"{name}: {text}")


@settings(derandomize=True, max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    lead=st.lists(st.integers(1, 2), max_size=3),
    m=st.integers(1, 4),
    n=st.integers(1, 4),
    stages=st.integers(1, 3),
    dropout=st.sampled_from([0.0, 0.35]),
    self_context=st.booleans(),
    masked=st.booleans(),
    training=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_equals_loops_at_any_shape(
    kind, lead, m, n, stages, dropout, self_context, masked, training, seed
):
    options = {"stages": stages, "dropout": dropout, "self_context": self_context}
    layer = make(kind, num_rules=n, seed=seed, **options)
    slots = torch.randn(*lead, m, 3, dtype=torch.float64)
    mask = random_mask(*lead, m) if masked else None
    assert_equals_loops(layer, slots, training, slot_mask=mask)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dropout", [0.0, 0.35])
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops(kind, stages, dropout, training):
    layer = make(kind, stages=stages, dropout=dropout)
    assert_equals_loops(layer, torch.randn(3, 4, 3, dtype=torch.float64), training)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    "options",
    [
        {"query": "mlp"},
        {"context_query": "mlp"},
        {"query": "mlp", "context_query": "linear"},
        {"self_context": False},
        {"query": "mlp", "self_context": False, "dropout": 0.35},
        {"context_gradient": "update"},
        {"context_dropout": 0.5},
        {"context_dropout": 0.3, "dropout": 0.35, "self_context": False},
        {"context_gradient": "update", "self_context": False, "query": "mlp"},
        {"temperature": 0.3},
        {"temperature": 7.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops_with_options(kind, options, training):
    layer = make(kind, stages=2, **options)
    assert_equals_loops(layer, torch.randn(2, 3, 3, dtype=torch.float64), training)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("handicap", [0.7, 1e6])
def test_equals_loops_with_a_handicap_of_the_null_rule(handicap, training):
    layer = make(KINDS[1], stages=2, null_handicap=handicap)
    slots = torch.randn(5, 3, 3, dtype=torch.float64)
    assert_equals_loops(layer, slots, training)
    _, trace = layer(slots, return_trace=True)
    assert trace.fired.all() == (handicap == 1e6)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("self_context", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_contexts_that_learn_from_updates_equal_loops_with_masks(kind, self_context, training):
    layer = make(kind, stages=2, self_context=self_context, context_gradient="update")
    slots = torch.randn(4, 3, 3, dtype=torch.float64)
    assert_equals_loops(layer, slots, training, slot_mask=random_mask(4, 3))


@pytest.mark.parametrize("options", [{}, {"context_gradient": "update"}], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_rules_that_are_alone_see_no_context_in_training(kind, options):
    layer = make(kind, **options)
    slots = torch.randn(6, 4, 3, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(6, slots=4), dtype=torch.float64)
    tested = layer.eval()(slots)
    layer.without_context = True
    torch.testing.assert_close(layer(slots), tested, rtol=0, atol=0)
    new, trace = layer.train()(slots, noise=noise, return_trace=True)
    seen = torch.zeros(24, 3, dtype=torch.float64)
    fired = trace.rule[..., 0, :].flatten()  # one stage
    rule = torch.nn.functional.one_hot(fired.clamp(min=0), len(layer.rules)).double()
    update = layer.rules(slots.flatten(0, 1), seen, rule)
    expected = slots + torch.where(fired >= 0, update.T, 0.0).T.view_as(slots)
    torch.testing.assert_close(new, expected)
    layer.without_context = False
    assert (layer(slots, noise=noise) - new).abs().max() > 1e-3


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("self_context", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops_with_masks(kind, self_context, training):
    layer = make(kind, stages=2, self_context=self_context, dropout=0.35)
    mask = random_mask(4, 4)
    slots = torch.randn(4, 4, 3, dtype=torch.float64)
    slots[~mask] = float("nan")
    assert_equals_loops(layer, slots, training, slot_mask=mask)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops_with_selection_features(kind, masked, training):
    layer = make(kind, stages=2, selection_dim=5)
    slots = torch.randn(3, 4, 3, dtype=torch.float64)
    selection = torch.randn(3, 4, 5, dtype=torch.float64)
    mask = random_mask(3, 4) if masked else None
    assert_equals_loops(layer, slots, training, selection=selection, slot_mask=mask)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops_with_a_selection_function(kind, training):
    layer = make(kind, stages=3, selection_dim=6)
    slots = torch.randn(2, 3, 3, dtype=torch.float64)
    both = lambda v: torch.cat([v, v.square()], -1)  # noqa: E731
    assert_equals_loops(layer, slots, training, selection=both)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("without", [(0,), (1, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops_with_disabled_rules(kind, without, training):
    layer = make(kind, stages=2)
    slots = torch.randn(3, 4, 3, dtype=torch.float64)
    with ExitStack() as stack:
        for i in without:
            stack.enter_context(layer.rules.disabled(i))
        assert_equals_loops(layer, slots, training, disabled=without)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_loops_after_surgery(kind):
    # A removed rule's share stays in the joint bid of Algorithm 2 (`retired`).
    layer = make(kind, num_rules=4, stages=2)
    layer.rules.remove(1)
    layer.rules.add(2)
    layer.rules.remove(0)
    assert len(layer.rules) == 4
    assert_equals_loops(layer, torch.randn(3, 4, 3, dtype=torch.float64), training=True)


@pytest.mark.parametrize("kind", KINDS)
def test_some_slots_fire_and_some_do_not(kind):
    # Guards the tests above: a comparison in which nothing ever fires would hold for any rule.
    layer = make(kind, stages=2).eval()
    _, trace = layer(torch.randn(50, 4, 3, dtype=torch.float64), return_trace=True)
    assert trace.fired.any()
    assert not trace.fired.all()
    assert trace.rule[trace.fired].unique().numel() > 1
    assert trace.context[trace.fired].unique().numel() > 1


def linear_maps_of(conv):
    """The same rules as 1 x 1 convolutions on 1 x 1 maps, as matrices."""
    rules = MLPRules(len(conv), conv.slot_dim, rule_dim=conv.rule_dim, hidden_dim=conv.hidden_dim)
    rules = rules.double()
    with torch.no_grad():
        rules.embedding.copy_(conv.embedding)
        rules.weight_in.copy_(conv.weight_in[..., 0, 0].transpose(1, 2))
        rules.weight_out.copy_(conv.weight_out[..., 0, 0].transpose(1, 2))
        rules.bias_in.copy_(conv.bias_in)
        rules.bias_out.copy_(conv.bias_out)
    return rules


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("kind", KINDS)
def test_convolutional_rules_on_one_pixel_equal_mlp_rules(kind, training):
    torch.manual_seed(0)
    conv = unlike_new(ConvRules(3, 4, rule_dim=5, hidden_dim=6, kernel_size=1).double())
    maps = kind(4, 3, stages=2, rules=conv).double().train(training)
    flat = kind(4, 3, stages=2, rules=linear_maps_of(conv)).double().train(training)
    missing = flat.load_state_dict(
        {k: v for k, v in maps.state_dict().items() if "weight_" not in k and "bias_" not in k},
        strict=False,
    )
    assert all(name.startswith("rules.") for name in missing.missing_keys)
    slots = torch.randn(5, 3, 4, dtype=torch.float64)
    noise = torch.rand(flat.noise_shape(5, slots=3))
    expected = flat(slots, noise=noise)
    new = maps(slots[..., None, None], noise=noise)[..., 0, 0]
    torch.testing.assert_close(new, expected)
    assert not torch.equal(new, slots)


def test_each_convolutional_rule_is_its_own_two_convolutions():
    torch.manual_seed(0)
    rules = unlike_new(ConvRules(3, 2, hidden_dim=4).double())
    a, b = torch.randn(2, 5, 2, 6, 7, dtype=torch.float64)
    for i in range(3):
        first = torch.nn.Conv2d(4, 4, 3, padding=1).double()
        second = torch.nn.Conv2d(4, 2, 3, padding=1).double()
        first.weight.data, first.bias.data = rules.weight_in[i].data, rules.bias_in[i].data
        second.weight.data, second.bias.data = rules.weight_out[i].data, rules.bias_out[i].data
        expected = second(first(torch.cat([a, b], 1)).relu())
        choice = torch.eye(3, dtype=torch.float64)[i].expand(5, 3)
        torch.testing.assert_close(rules(a, b, choice), expected)


def test_a_null_rule_that_never_wins_is_as_good_as_absent():
    """At the largest handicap its bids are not computed; a little below, they are, and lose."""
    torch.manual_seed(0)
    slots, noise = torch.randn(6, 5, 4), torch.Generator
    found = []
    for handicap in (MAX_HANDICAP, MAX_HANDICAP / 2):
        torch.manual_seed(1)
        layer = ParallelNPS(4, 3, hidden_layers=2, null_handicap=handicap, self_context=False)
        new, trace = layer(slots, noise=noise().manual_seed(2), return_trace=True)
        new.square().sum().backward()
        assert trace.fired.all()
        found.append((new, {n: p.grad for n, p in layer.named_parameters()}))
    (first, gradients), (second, others) = found
    assert torch.equal(first, second)
    for name, gradient in others.items():
        if gradients[name] is None:  # of what bids alone
            assert (gradient == 0).all(), name
        else:
            torch.testing.assert_close(gradients[name], gradient)
    assert gradients["null_rule"] is None
