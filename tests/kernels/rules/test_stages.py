"""Accelerated stages equal the layers' own steps and the plain loops.

Values, traces and every gradient; alone, stacked by vmap, and differentiated twice. The Triton
kernels run here in Triton's interpreter where it is installed; test_stages_gpu.py has them
compiled.
"""

import copy
import importlib.util
import itertools

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from nps import ConvRules, ParallelNPS, SequentialNPS
from nps.kernels import rules as accelerated
from nps.kernels.rules import action, by_rule
from nps.kernels.rules.inputs import Stage
from nps.rules.projection import Projection
from tests.interpreter import interpreted
from tests.rules import reference

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
LOOPS = {SequentialNPS: reference.sequential, ParallelNPS: reference.parallel}
SIZES = [(5, 5, 10, 64), (3, 1, 1, 6), (4, 3, 7, 20), (2, 6, 1, 33), (1, 1, 4, 1), (40, 2, 3, 8)]
OPTIONS = [
    {},
    {"stages": 3},
    {"temperature": 0.3},
    {"dropout": 0.35},
    {"self_context": False},
    {"stages": 2, "temperature": 3.0, "dropout": 0.5, "self_context": False},
]


def make(kind, slot_dim=6, num_rules=4, dtype=torch.float64, device="cpu", **options):
    torch.manual_seed(0)
    layer = kind(slot_dim, num_rules, rule_dim=5, key_dim=4, hidden_dim=9, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return layer.to(device, dtype)


def step(layer, slots, noise, fused, on_scores=0.1, **call):
    """New slots, trace and all gradients, of a loss that also reads the scores."""
    with pytest.MonkeyPatch.context() as patch:
        if not fused:
            patch.setattr(accelerated, "supported", lambda *_: False)
        slots = slots.detach().clone().requires_grad_()
        new, trace = layer(slots, noise=noise, return_trace=True, **call)
    weights = torch.linspace(-1, 1, new.numel(), dtype=new.dtype, device=new.device)
    loss = (new * weights.view_as(new)).sum()
    if on_scores:
        scores = trace.rule_scores.square().sum() + trace.context_scores.sin().sum()
        loss = loss + on_scores * scores
    inputs = [slots, *layer.parameters()]
    grads = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return new, trace, grads


def assert_same(ours, theirs, **close):
    torch.testing.assert_close(ours[0], theirs[0], **close)
    assert torch.equal(ours[1].rule, theirs[1].rule)
    assert torch.equal(ours[1].context, theirs[1].context)
    torch.testing.assert_close(ours[1].rule_scores, theirs[1].rule_scores, **close)
    torch.testing.assert_close(ours[1].context_scores, theirs[1].context_scores, **close)
    for a, b in zip(ours[2], theirs[2], strict=True):
        torch.testing.assert_close(a, b, **close)


@pytest.fixture
def stages(monkeypatch):
    """A list that grows with every accelerated call."""
    seen = []
    real = accelerated.apply
    monkeypatch.setattr(accelerated, "apply", lambda *x: (seen.append(1), real(*x))[1])
    return seen


# -- the layers' own steps -------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("on_scores", [0.0, 0.1])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_the_steps(kind, size, on_scores, stages):
    b, m, n, d = size
    layer = make(kind, d, n)
    slots = torch.randn(b, m, d, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(b, slots=m))
    ours = step(layer, slots, noise, True, on_scores)
    assert len(stages) == 1
    assert_same(ours, step(layer, slots, noise, False, on_scores))
    assert len(stages) == 1


@BOTH
@pytest.mark.parametrize("stages_of_it", [1, 2])
@pytest.mark.parametrize(
    "loss",
    [
        lambda x: x.sum(),
        lambda x: x.mT.flatten().cumsum(0).sum(),
        lambda x: x.transpose(0, 1).flatten().cumsum(0).sum(),
    ],
    ids=["expanded", "transposed", "slots first"],
)
def test_slots_that_want_no_gradient(kind, loss, stages_of_it, stages):
    """The weights' gradients are the same; so they are from gradients of any strides."""
    layer = make(kind, stages=stages_of_it)
    slots = torch.randn(7, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(7, slots=5))
    found = []
    for wanted in (False, True):
        slots.requires_grad_(wanted)
        to = loss(layer(slots, noise=noise))
        found.append(torch.autograd.grad(to, [*layer.parameters()], materialize_grads=True))
    assert len(stages) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerated, "supported", lambda *_: False)
        steps = loss(layer(slots, noise=noise))
    expected = torch.autograd.grad(steps, [*layer.parameters()], materialize_grads=True)
    for each in found:
        torch.testing.assert_close(each, expected)


@BOTH
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("lead", [(), (7,), (2, 3)], ids=str)
def test_equals_the_steps_with_options(kind, lead, options, stages):
    layer = make(kind, **options)
    slots = torch.randn(*lead, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(*lead, slots=5))
    ours = step(layer, slots, noise, True)
    assert len(stages) == 1
    assert_same(ours, step(layer, slots, noise, False))


@BOTH
def test_equals_the_steps_in_single_precision(kind):
    layer = make(kind, dtype=torch.float32)
    slots = torch.randn(50, 5, 6)
    noise = torch.rand(layer.noise_shape(50, slots=5))
    ours, theirs = (step(layer, slots, noise, fused) for fused in (True, False))
    assert_same(ours, theirs, rtol=1e-4, atol=1e-4)


@BOTH
def test_equals_the_steps_with_frozen_and_disabled_rules(kind, stages):
    layer = make(kind)
    layer.rules.freeze(1)
    slots = torch.randn(50, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(50, slots=5))
    with layer.rules.disabled(2):
        ours, theirs = (step(layer, slots, noise, fused) for fused in (True, False))
    assert stages
    assert (ours[1].rule != 2).all()
    assert_same(ours, theirs)


@BOTH
def test_settings_on_the_device_equal_numbers(kind):
    layer = make(kind, dropout=0.35, temperature=0.7)
    slots = torch.randn(50, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(50, slots=5))
    theirs = step(layer, slots, noise, True)
    layer.dropout, layer.temperature = torch.tensor([0.35, 0.7], dtype=torch.float64)
    assert_same(step(layer, slots, noise, True), theirs)


@BOTH
def test_slots_and_gradients_may_lie_in_any_order_in_memory(kind):
    layer = make(kind)
    slots = torch.randn(6, 5, 7, dtype=torch.float64).permute(2, 1, 0).requires_grad_()
    noise = torch.rand(layer.noise_shape(7, slots=5))
    ours = torch.autograd.grad(layer(slots, noise=noise).permute(2, 0, 1).sum(), slots)
    plain = slots.detach().contiguous().requires_grad_()
    torch.testing.assert_close(ours, torch.autograd.grad(layer(plain, noise=noise).sum(), plain))


# -- the loops of the reference --------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_loops(kind, options, stages):
    layer = make(kind, 3, 3, **options)
    slots = torch.randn(3, 4, 3, dtype=torch.float64, requires_grad=True)
    noise = torch.rand(layer.noise_shape(3, slots=4))
    new, trace = layer(slots, noise=noise, return_trace=True)
    assert stages
    expected = LOOPS[kind](layer, slots, noise=noise)
    assert torch.equal(trace.rule, expected.rule)
    assert torch.equal(trace.context, expected.context)
    weights, inputs = torch.randn_like(new), [slots, *layer.parameters()]
    ours, theirs = (torch.autograd.grad((x * weights).sum(), inputs) for x in (new, expected.slots))
    for a, b in zip((new, *ours), (expected.slots, *theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# -- where it does not apply -----------------------------------------------------------------------


@BOTH
def test_everything_else_takes_the_steps(kind, stages):
    slots = torch.randn(4, 5, 6)
    plain = {"dtype": torch.float32}
    make(kind, query="mlp", **plain)(slots)
    make(kind, context_query="mlp", **plain)(slots)
    make(kind, hidden_layers=2, **plain)(slots)
    make(kind, context_gradient="update", **plain)(slots)
    make(kind, context_dropout=0.1, **plain)(slots)
    make(kind, **plain).eval()(slots)
    make(kind, dtype=torch.bfloat16)(slots.bfloat16())
    make(kind, rules=ConvRules(4, 6, hidden_dim=3), **plain)(torch.randn(4, 5, 6, 3, 3))
    layer = make(kind, **plain)
    layer(slots[:0])
    layer.without_context = True
    layer(slots)
    assert not stages


@BOTH
def test_a_projection_of_another_type_takes_the_steps(kind, stages):
    """Kernels read addresses: a matrix of doubles must never be read as one of floats."""
    layer = make(kind, dtype=torch.float32)
    layer.bind.double()
    assert layer(torch.randn(3, 5, 6)).dtype == torch.float32
    assert not stages


@BOTH
def test_watched_modules_are_called(kind, stages):
    layer, seen = make(kind, dtype=torch.float32), []
    for module in (layer.rules, layer.select.key, layer.bind):
        handle = module.register_forward_hook(lambda *_: seen.append(1))
        layer(torch.randn(4, 5, 6))
        handle.remove()
    assert len(seen) == 3
    assert not stages


PROJECTIONS = [
    *itertools.product([SequentialNPS, ParallelNPS], ["select.query", "select.key"]),
    *itertools.product([SequentialNPS, ParallelNPS], ["bind.query", "bind.key"]),
    (ParallelNPS, "slot_key"),
]


class Scaled(Projection):
    """A user's own projection: the stock one, times -3."""

    def forward(self, features):
        return -3 * super().forward(features)


def mlp_projection(old):
    new = Projection(old.out.in_features, old.out.out_features, "mlp").to(old.out.weight)
    new.out.weight.data.mul_(20)
    return new


def scaled_projection(old):
    new = Scaled(old.out.in_features, old.out.out_features).to(old.out.weight)
    new.load_state_dict(old.state_dict())
    return new


def with_hidden_layer(old):
    old.hidden = mlp_projection(old).hidden
    old.out = nn.Linear(old.hidden.out_features, old.out.out_features, False).to(old.out.weight)
    return old


def with_hook(old):
    old.register_forward_hook(lambda _module, _args, result: -3 * result)
    return old


def with_pre_hook(old):
    old.register_forward_pre_hook(lambda _module, args: -3 * args[0])
    return old


def with_own_forward(old):
    stock = old.forward
    old.forward = lambda features: -3 * stock(features)
    return old


CHANGES = [
    scaled_projection,
    mlp_projection,
    with_hidden_layer,
    with_hook,
    with_pre_hook,
    with_own_forward,
]


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize(("kind", "name"), PROJECTIONS)
def test_a_changed_projection_is_used(kind, name, change, training, stages, monkeypatch):
    """As by the plain loops, which here call the projections instead of reading their weights."""
    layer = make(kind).train(training)
    owner = layer.get_submodule(name.rpartition(".")[0])
    attribute = name.rpartition(".")[2]
    setattr(owner, attribute, change(getattr(owner, attribute)))
    monkeypatch.setattr(reference, "project", lambda module, x: module(x))
    slots = torch.randn(8, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(8, slots=5)) if training else None
    with torch.no_grad():
        new, trace = layer(slots, noise=noise, return_trace=True)
        expected = LOOPS[kind](layer, slots, noise=noise)
    assert torch.equal(trace.rule, expected.rule)
    assert torch.equal(trace.context, expected.context)
    torch.testing.assert_close(new, expected.slots, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trace.rule_scores, expected.rule_scores)
    torch.testing.assert_close(trace.context_scores, expected.context_scores)
    assert not stages


@BOTH
def test_a_parametrized_projection_stays_accelerated(kind, stages):
    layer = make(kind)
    for projection in (layer.select.query, layer.bind.key):
        nn.utils.parametrizations.weight_norm(projection.out)
        projection.out.parametrizations.weight.original0.data.mul_(1.5)
    slots = torch.randn(50, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(50, slots=5))
    ours = step(layer, slots, noise, True)
    assert len(stages) == 1
    assert_same(ours, step(layer, slots, noise, False))


def doubled(layer, slots, *rest):
    """A step of a user: the stock update, twice."""
    new = type(layer).__mro__[1].apply_rule(layer, slots, *rest)
    return slots + 2 * (new - slots)


@BOTH
@pytest.mark.parametrize("where", ["class", "instance"])
def test_an_overridden_step_is_taken_in_training_too(kind, where, stages):
    layer = make(kind)
    slots = torch.randn(7, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(7, slots=5))
    expected = slots + 2 * (layer(slots, noise=noise) - slots)
    grads = torch.autograd.grad(expected.sin().sum(), list(layer.parameters()))
    assert len(stages) == 1
    if where == "class":
        layer.__class__ = type("Doubled", (kind,), {"apply_rule": doubled})
    else:
        stock = layer.apply_rule
        layer.apply_rule = lambda slots, *rest: slots + 2 * (stock(slots, *rest) - slots)
    ours = layer(slots, noise=noise)
    assert len(stages) == 1
    torch.testing.assert_close(ours, expected)
    found = torch.autograd.grad(ours.sin().sum(), list(layer.parameters()))
    for a, b in zip(found, grads, strict=True):
        torch.testing.assert_close(a, b)


@BOTH
def test_a_subclass_without_steps_of_its_own_stays_accelerated(kind, stages):
    layer = make(kind)
    layer.__class__ = type("Named", (kind,), {"label": "mine"})
    layer(torch.randn(7, 5, 6, dtype=torch.float64))
    assert len(stages) == 1


# -- features, masks, disabled rules, autocast -----------------------------------------------------

FEATURES = ["tensor", "function"]


def call_of(layer, b, m, features=None, masked=False, dtype=torch.float64, device="cpu"):
    """Keyword arguments of a call. In the first element all slots are masked."""
    call, size = {}, {"dtype": dtype, "device": device}
    if features == "tensor":
        call["selection"] = torch.randn(b, m, layer.selection_dim, **size)
    elif features == "function":
        matrix = torch.randn(layer.slot_dim, layer.selection_dim, **size)
        call["selection"] = lambda slots: slots.sin() @ matrix
    if masked:
        mask = torch.rand(b, m, device=device) < 0.6
        mask[0], mask[1, 1:] = False, False
        call["slot_mask"] = mask
    return call


@BOTH
@pytest.mark.parametrize("features", [None, *FEATURES])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("options", [{}, OPTIONS[5]], ids=str)
def test_features_and_masks_equal_the_steps(kind, features, masked, options, stages):
    layer = make(kind, selection_dim=3 if features else None, **options)
    slots = torch.randn(30, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(30, slots=5))
    call = call_of(layer, 30, 5, features, masked)
    ours = step(layer, slots, noise, True, **call)
    assert len(stages) == (layer.stages if features == "function" else 1)
    assert_same(ours, step(layer, slots, noise, False, **call))


@BOTH
def test_gradients_reach_the_features(kind):
    layer = make(kind, selection_dim=3)
    slots = torch.randn(7, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(7, slots=5))
    seen = torch.randn(7, 5, 3, dtype=torch.float64, requires_grad=True)
    found = []
    for wanted in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not wanted:
                patch.setattr(accelerated, "supported", lambda *_: False)
            new = layer(slots, selection=seen, noise=noise)
        found.append(torch.autograd.grad(new.sin().sum(), seen)[0])
    assert (found[0] != 0).any()
    torch.testing.assert_close(*found)


@BOTH
def test_no_rule_or_context_left_equals_the_steps(kind, stages):
    layer = make(kind, self_context=False)
    slots = torch.randn(7, 1, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(7, slots=1))
    ours, theirs = (step(layer, slots, noise, fused) for fused in (True, False))
    assert (ours[1].context == -1).all()
    assert_same(ours, theirs)
    rules = layer.rules
    with rules.disabled(0), rules.disabled(1), rules.disabled(2), rules.disabled(3):
        ours, theirs = (step(layer, slots, noise, fused) for fused in (True, False))
    assert len(stages) == 2
    assert (ours[1].rule == -1).all()
    assert torch.equal(ours[0], slots)
    assert_same(ours, theirs)


def test_the_null_rule_may_have_a_handicap(stages):
    layer = make(ParallelNPS, null_handicap=1.5)
    slots = torch.randn(30, 5, 6, dtype=torch.float64)
    noise = torch.rand(layer.noise_shape(30, slots=5))
    ours, theirs = (step(layer, slots, noise, fused) for fused in (True, False))
    assert len(stages) == 1
    assert_same(ours, theirs)


@BOTH
def test_autocast_changes_nothing(kind, stages):
    layer = make(kind, dtype=torch.float32)
    slots = torch.randn(30, 5, 6)
    noise = torch.rand(layer.noise_shape(30, slots=5))
    expected = step(layer, slots, noise, True)
    with torch.autocast("cpu", torch.bfloat16):
        found = step(layer, slots, noise, True)
    assert len(stages) == 2
    assert_same(found, expected)


# -- transformations -------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_stacked_models_equal_each_alone(kind, options, stages):
    layer = make(kind, **options)
    models = [copy.deepcopy(layer) for _ in range(3)]
    with torch.no_grad():
        for model in models:
            for p in model.parameters():
                p.add_(0.3 * torch.randn_like(p))
    slots = torch.randn(3, 7, 5, 6, dtype=torch.float64)
    noise = torch.rand(3, *layer.noise_shape(7, slots=5))
    params, buffers = stack_module_state(models)

    def loss(params, buffers, slots, noise):
        return functional_call(layer, (params, buffers), (slots,), {"noise": noise}).sin().sum()

    together = vmap(torch.func.grad(loss))(params, buffers, slots, noise)
    assert stages
    for i, model in enumerate(models):
        new = model(slots[i], noise=noise[i])
        alone = torch.autograd.grad(new.sin().sum(), list(model.parameters()))
        for mine, grad in zip(together.values(), alone, strict=True):
            torch.testing.assert_close(mine[i], grad)


@BOTH
def test_models_may_be_stacked_twice(kind):
    layer = make(kind)
    slots = torch.randn(2, 3, 7, 5, 6, dtype=torch.float64, requires_grad=True)
    noise = torch.rand(2, 3, *layer.noise_shape(7, slots=5))
    new = vmap(vmap(lambda slots, noise: layer(slots, noise=noise)))(slots, noise)
    (ours,) = torch.autograd.grad(new.sin().sum(), slots)
    flat = layer(slots, noise=noise)
    (theirs,) = torch.autograd.grad(flat.sin().sum(), slots)
    torch.testing.assert_close(new, flat)
    torch.testing.assert_close(ours, theirs)


@BOTH
@pytest.mark.parametrize("options", [{}, {"temperature": 2.0, "dropout": 0.3}], ids=str)
def test_second_derivatives(kind, options):
    layer = make(kind, 3, 3, **options)
    slots = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)
    noise = torch.rand(layer.noise_shape(4, slots=3))
    inputs = [slots, *layer.parameters()]

    def second():
        loss = layer(slots, noise=noise).pow(3).sum()
        grads = torch.autograd.grad(loss, inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), inputs)

    ours = second()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accelerated, "supported", lambda *_: False)
        theirs = second()
    for a, b in zip(ours, theirs, strict=True):
        assert (b != 0).any()
        torch.testing.assert_close(a, b)


def test_jacobians_by_sample_equal_each_alone():
    layer = make(SequentialNPS)
    slots, noise = torch.randn(4, 5, 6, dtype=torch.float64), torch.rand(4, 1, 25)
    call = lambda slots, noise: layer(slots, noise=noise)  # noqa: E731
    together = vmap(torch.func.jacrev(call))(slots, noise)
    for i in range(4):
        alone = torch.autograd.functional.jacobian(lambda x, i=i: call(x, noise[i]), slots[i])
        torch.testing.assert_close(together[i], alone)


# -- the pieces ------------------------------------------------------------------------------------


def action_stage(s, n, i=6, h=5, d=3, device="cpu", dtype=torch.float64):
    """A stage that has nothing but the weights of its rules; (S,) models, or () for one."""
    torch.manual_seed(0)
    shapes = [(*s, n, i, h), (*s, n, h), (*s, n, h, d), (*s, n, d)]
    weights = [torch.randn(shape, dtype=dtype, device=device) / h**0.5 for shape in shapes]
    weights = [w.requires_grad_() for w in weights]
    rest = [torch.empty(0)] * 4
    return Stage(*rest, *weights, rest[0], None, None, 1.0, 0.0, True, 0.0), weights


def written_out(x, choice, weight_in, bias_in, weight_out, bias_out):
    """Σ_i choice_i · action_i(x), in ordinary operations."""
    hidden = (x.unsqueeze(-3) @ weight_in + bias_in.unsqueeze(-2)).relu()
    outputs = hidden @ weight_out + bias_out.unsqueeze(-2)
    return (choice.mT.unsqueeze(-1) * outputs).sum(-3)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(
    ("s", "t", "n"), [((), 1, 1), ((), 50, 4), ((3,), 20, 7), ((), 400, 5), ((1,), 9, 2)]
)
def test_action_and_its_gradient(skewed, s, t, n):
    stage, weights = action_stage(s, n)
    x = torch.randn(*s, t, 6, dtype=torch.float64, requires_grad=True)
    rule = torch.randint(n, (*s, t))
    if skewed:
        rule[..., 1:] = n - 1
    choice = torch.nn.functional.one_hot(rule, n).double().requires_grad_()
    g = torch.randn(*s, t, 3, dtype=torch.float64)
    expected = written_out(x, choice, *weights)
    with torch.no_grad():
        update, *kept = action.act(stage, x, rule)
        ours = action.act_gradient(stage, g, x, rule, *kept)
    torch.testing.assert_close(update, expected)
    theirs = torch.autograd.grad(expected, [x, choice, *weights], g)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("products", [float("inf"), -1], ids=["batched", "each"])
@pytest.mark.parametrize("rule", [[2] * 9, [3, 0, 0, 1, 3, 4], [1]], ids=str)
def test_both_forms_by_rule(products, rule, monkeypatch):
    monkeypatch.setattr(by_rule, "PRODUCTS", products)
    torch.manual_seed(0)
    rule, n = torch.tensor(rule), 5
    shapes = [(len(rule), 3), (len(rule), 6), (len(rule), 4), (n, 6, 4), (n, 4, 3)]
    g, x, mine, weight_in, weight_out = (torch.randn(y, dtype=torch.float64) for y in shapes)
    mine = mine.relu()
    before, counts = by_rule.count(rule, n)
    assert counts == torch.bincount(rule, minlength=n).tolist()
    found = by_rule.gradients(counts, before, rule, g, x, mine, weight_in, weight_out)
    expected = [torch.zeros_like(y) for y in found]
    for t, i in enumerate(rule.tolist()):
        passed = (weight_out[i] @ g[t]) * (mine[t] > 0)
        expected[0][t] = weight_in[i] @ passed
        expected[1][i] += torch.outer(x[t], passed)
        expected[2][i] += passed
        expected[3][i] += torch.outer(mine[t], g[t])
        expected[4][i] += g[t]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


# -- the kernels, interpreted ----------------------------------------------------------------------

NOT_COMPILED = pytest.mark.skipif(
    torch.cuda.is_available() or importlib.util.find_spec("triton") is None,
    reason="needs Triton, and no GPU: there the kernels themselves are tested",
)

CASES = [
    ((2, 5, 4, 20), {}),
    ((3, 3, 7, 6), OPTIONS[5]),
    ((2, 1, 1, 33), {"dropout": 0.35}),
    ((2, 1, 3, 5), {"self_context": False}),
]


def compare_kernels():
    """The GPU's implementation against the layers' own steps, and stacked against alone."""
    for kind, (size, options) in itertools.product(LOOPS, CASES):
        b, m, n, d = size
        for features, masked in itertools.product((None, "tensor"), (False, True)):
            layer = make(
                kind, d, n, torch.float32, selection_dim=7 if features else None, **options
            )
            slots, noise = torch.randn(b, m, d), torch.rand(layer.noise_shape(b, slots=m))
            call = call_of(layer, b, m, features, masked, torch.float32)
            ours, theirs = (step(layer, slots, noise, fused, **call) for fused in (True, False))
            assert_same(ours, theirs, rtol=1e-3, atol=1e-3)
        layer = make(kind, d, n, torch.float32, **options)
        loss = lambda slots, noise: layer(slots, noise=noise).sin().sum()  # noqa: B023, E731
        stacked = torch.randn(2, b, m, d), torch.rand(2, *noise.shape)
        together = torch.vmap(torch.func.grad(loss))(*stacked)
        alone = torch.stack([torch.func.grad(loss)(*x) for x in zip(*stacked, strict=True)])
        torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-3)


INTERPRETED = """
from nps.kernels import rules
from nps.kernels.rules import grouped
from tests.kernels.rules import test_stages

rules.ON_CPU.update(rules.ON_GPU)
grouped.GROUPED_FROM = {grouped_from}
test_stages.compare_kernels()
print("same")
"""


@pytest.mark.slow
@NOT_COMPILED
@pytest.mark.parametrize("grouped_from", [10**9, 0])
def test_kernels_in_the_interpreter(grouped_from):
    assert interpreted(INTERPRETED.replace("{grouped_from}", str(grouped_from))) == "same\n"
