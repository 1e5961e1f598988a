"""The layers under torch's own machinery give what they give eagerly: compile, vmap, export, DDP.

Noise is passed in, so that training steps can be compared number by number.
"""

import copy
import io

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap
from torch.utils.checkpoint import checkpoint

from nps import ConvRules, ParallelNPS, SequentialNPS

BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])


@pytest.fixture(autouse=True)
def _fresh_compiler():
    yield
    torch._dynamo.reset()


def make(kind, seed=0, **options):
    torch.manual_seed(seed)
    return kind(6, 4, key_dim=8, hidden_dim=16, **options)


def run(call, layer, slots, **arguments):
    """Output, trace and every gradient."""
    slots = slots.clone().requires_grad_()
    new, trace = call(slots, return_trace=True, **arguments)
    weights = torch.linspace(-1, 1, new.numel()).reshape(new.shape)
    grads = torch.autograd.grad((new * weights).sum(), [slots, *layer.parameters()])
    return new, trace, grads


def assert_same_run(a, b):
    torch.testing.assert_close(a[0], b[0])
    assert torch.equal(a[1].rule, b[1].rule)
    assert torch.equal(a[1].context, b[1].context)
    torch.testing.assert_close(a[1].rule_scores, b[1].rule_scores)
    torch.testing.assert_close(a[1].context_scores, b[1].context_scores)
    for x, y in zip(a[2], b[2], strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


# -- compile ---------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_compiled_equals_eager(kind, training):
    layer = make(kind, stages=2, dropout=0.35, self_context=False).train(training)
    slots, mask = torch.randn(8, 5, 6), torch.rand(8, 5) < 0.8
    noise = torch.rand(layer.noise_shape(8, slots=5))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    call = {"slot_mask": mask, "noise": noise}
    assert_same_run(run(compiled, layer, slots, **call), run(layer, layer, slots, **call))


@BOTH
def test_compiled_equals_eager_with_a_frozen_and_a_disabled_rule(kind):
    layer = make(kind)
    layer.rules.freeze(1)
    slots = torch.randn(8, 5, 6)
    noise = torch.rand(layer.noise_shape(8, slots=5))
    with layer.rules.disabled(2):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert_same_run(
            run(compiled, layer, slots, noise=noise), run(layer, layer, slots, noise=noise)
        )


def test_compiled_equals_eager_on_feature_maps():
    torch.manual_seed(0)
    layer = ParallelNPS(3, 2, rules=ConvRules(2, 3, hidden_dim=4))
    slots = torch.randn(4, 3, 3, 5, 5)
    noise = torch.rand(layer.noise_shape(4, slots=3))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_same_run(run(compiled, layer, slots, noise=noise), run(layer, layer, slots, noise=noise))


def test_compiled_code_follows_surgery():
    layer = make(SequentialNPS).eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    slots = torch.randn(20, 5, 6)
    torch.testing.assert_close(compiled(slots), layer(slots))
    with layer.rules.disabled(0):
        off = compiled(slots)
        torch.testing.assert_close(off, layer(slots))
    assert not torch.allclose(off, compiled(slots))
    layer.rules.remove(0)
    torch.testing.assert_close(compiled(slots), off)


@pytest.mark.slow
@BOTH
def test_inductor_equals_eager(kind):
    layer = make(kind, stages=2, dropout=0.35)
    slots = torch.randn(8, 5, 6)
    noise = torch.rand(layer.noise_shape(8, slots=5))
    compiled = torch.compile(layer, fullgraph=True)
    assert_same_run(run(compiled, layer, slots, noise=noise), run(layer, layer, slots, noise=noise))


# -- vmap ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_stacked_models_equal_the_loop_over_them(kind, training):
    options = {"stages": 2, "dropout": 0.35, "self_context": False}
    models = [make(kind, seed, **options).train(training) for seed in range(3)]
    slots, mask = torch.randn(3, 7, 5, 6), torch.rand(3, 7, 5) < 0.8
    noise = torch.rand(3, *models[0].noise_shape(7, slots=5))
    params, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def call(params, buffers, slots, mask, noise):
        arguments = {"slot_mask": mask, "noise": noise, "return_trace": True}
        return functional_call(base, (params, buffers), (slots,), arguments)

    new, trace = vmap(call)(params, buffers, slots, mask, noise)
    grads = torch.autograd.grad(new.square().sum(), list(params.values()))
    for s, model in enumerate(models):
        expected, its_trace = model(slots[s], slot_mask=mask[s], noise=noise[s], return_trace=True)
        torch.testing.assert_close(new[s], expected)
        assert torch.equal(trace.rule[s], its_trace.rule)
        assert torch.equal(trace.context[s], its_trace.context)
        its_grads = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
        for grad, its_grad in zip(grads, its_grads, strict=True):
            torch.testing.assert_close(grad[s], its_grad, rtol=1e-4, atol=1e-5)


@BOTH
def test_stacked_models_may_each_have_their_own_dropout_and_temperature(kind):
    layer = make(kind, dropout=0.35)
    slots = torch.randn(3, 7, 5, 6)
    noise = torch.rand(3, *layer.noise_shape(7, slots=5))
    dropout, temperature = torch.tensor([0.0, 0.35, 0.6]), torch.tensor([0.5, 1.0, 2.0])

    def call(slots, noise, dropout, temperature):
        layer.dropout, layer.temperature = dropout, temperature
        return layer(slots, noise=noise)

    new = vmap(call)(slots, noise, dropout, temperature)
    grads = torch.autograd.grad(new.square().sum(), list(layer.parameters()))
    alone = [call(*x) for x in zip(slots, noise, dropout, temperature, strict=True)]
    torch.testing.assert_close(new, torch.stack(alone))
    expected = torch.autograd.grad(torch.stack(alone).square().sum(), list(layer.parameters()))
    for grad, its_grad in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, its_grad, rtol=1e-4, atol=1e-5)


@BOTH
def test_compiled_stacked_models_have_the_same_gradients(kind):
    layer = make(kind)
    slots, noise = torch.randn(3, 7, 5, 6), torch.rand(3, *layer.noise_shape(7, slots=5))
    stacked = vmap(lambda slots, noise: layer(slots, noise=noise))
    compiled = torch.compile(stacked, fullgraph=True, backend="aot_eager")
    ours, expected = (
        torch.autograd.grad(f(slots, noise).square().sum(), list(layer.parameters()))
        for f in (compiled, stacked)
    )
    for grad, its_grad in zip(ours, expected, strict=True):
        assert (its_grad != 0).any()
        torch.testing.assert_close(grad, its_grad, rtol=1e-4, atol=1e-5)


@BOTH
def test_gradients_per_sample(kind):
    layer = make(kind, stages=2)
    slots = torch.randn(4, 5, 6)
    noise = torch.rand(layer.noise_shape(4, slots=5))
    params = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(params, slots, noise):
        return functional_call(layer, params, (slots,), {"noise": noise}).square().sum()

    grads = vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(params, slots, noise)
    for b in range(4):
        expected = torch.autograd.grad(
            layer(slots[b], noise=noise[b]).square().sum(), list(layer.parameters())
        )
        for grad, its_grad in zip(grads.values(), expected, strict=True):
            torch.testing.assert_close(grad[b], its_grad, rtol=1e-4, atol=1e-5)


# -- recomputation ---------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("given", [True, False], ids=["noise given", "drawn by torch"])
def test_checkpointed_equals_plain(kind, reentrant, given):
    layer = make(kind, stages=2, dropout=0.35)
    first, second = (torch.rand(layer.noise_shape(8, slots=5)) for _ in range(2))
    noises = (first, second) if given else (None, None)

    def two_steps(slots):
        return layer(layer(slots, noise=noises[0]), noise=noises[1])

    slots = torch.randn(8, 5, 6, requires_grad=True)
    found = []
    for call in (two_steps, lambda x: checkpoint(two_steps, x, use_reentrant=reentrant)):
        torch.manual_seed(3)
        new = call(slots)
        torch.manual_seed(4)  # recomputing must not depend on what was drawn in between
        layer.zero_grad()
        slots.grad = None
        new.square().sum().backward()
        found.append([new, slots.grad, *(p.grad for p in layer.parameters())])
    for plain, recomputed in zip(*found, strict=True):
        assert torch.equal(plain, recomputed)


@BOTH
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_a_generator_cannot_be_recomputed(kind, reentrant):
    layer, generator = make(kind), torch.Generator()
    slots = torch.randn(8, 5, 6, requires_grad=True)
    new = checkpoint(lambda x: layer(x, noise=generator), slots, use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match=r"^noise: got a torch\.Generator inside") as caught:
        new.sum().backward()
    assert "\n" not in str(caught.value)
    layer(slots, noise=generator).sum().backward()  # without checkpointing it is fine


# -- export ----------------------------------------------------------------------------------------


@BOTH
def test_exported_equals_eager_at_another_batch_size(kind):
    layer = make(kind, stages=2).eval()
    program = torch.export.export(
        layer, (torch.randn(4, 5, 6),), dynamic_shapes=({0: torch.export.Dim("batch", min=2)},)
    )
    slots = torch.randn(9, 5, 6)
    torch.testing.assert_close(program.module()(slots), layer(slots))


def test_exported_with_mask_and_trace():
    layer = make(ParallelNPS).eval()
    slots, mask = torch.randn(4, 5, 6), torch.rand(4, 5) < 0.7
    call = {"slot_mask": mask, "return_trace": True}
    program = torch.export.export(layer, (slots,), call)
    new, trace = program.module()(slots, **call)
    expected, its_trace = layer(slots, **call)
    torch.testing.assert_close(new, expected)
    assert torch.equal(trace.rule, its_trace.rule)


# -- distributed -----------------------------------------------------------------------------------


@pytest.fixture
def process_group(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@BOTH
@pytest.mark.parametrize("convolutional", [False, True])
def test_distributed_equals_plain(kind, convolutional, process_group):
    torch.manual_seed(0)
    rules = ConvRules(4, 6, hidden_dim=4) if convolutional else None
    layer = kind(6, 4, stages=2, rules=rules)
    slots = torch.randn(8, 5, 6, *((3, 3) if convolutional else ()))
    noise = torch.rand(layer.noise_shape(8, slots=5))
    expected = layer(slots, noise=noise)
    grads = torch.autograd.grad(expected.square().sum(), list(layer.parameters()))
    distributed = torch.nn.parallel.DistributedDataParallel(layer)
    for _ in range(2):  # the second step fails if the first left a parameter without gradient
        layer.zero_grad()
        new = distributed(slots, noise=noise)
        new.square().sum().backward()
    assert torch.equal(new, expected)
    for p, grad in zip(layer.parameters(), grads, strict=True):
        torch.testing.assert_close(p.grad, grad)


# -- copies ----------------------------------------------------------------------------------------


@BOTH
def test_a_deep_copy_is_equal_and_independent(kind):
    layer = make(kind, stages=2).eval()
    layer.rules.freeze(1)
    slots = torch.randn(50, 5, 6)
    before = layer(slots)
    other = copy.deepcopy(layer)
    assert torch.equal(other(slots), before)
    other.rules.remove(0)
    other.rules.unfreeze(0)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    assert torch.equal(layer(slots), before)
    assert len(layer.rules) == 4
    assert layer.rules.frozen == [1]


@BOTH
def test_state_dict_round_trip(kind):
    layer, other = make(kind, stages=2).eval(), make(kind, 1, stages=2).eval()
    slots = torch.randn(50, 5, 6)
    assert not torch.equal(other(slots), layer(slots))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(slots), layer(slots))
