"""Batch normalisation with channels last and its activation, in both forms, against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional as F

from nps.capture import Captured
from nps.kernels import batch_norm as module
from nps.kernels.batch_norm import batch_norm
from nps.perception.extractors import Norm
from nps.training.stack import Stack
from tests.gradients import assert_not_derived_twice, kernels_take
from tests.interpreter import interpreted, kernels

SHAPES = [(4, 3, 3, 32), (7, 5, 5, 5), (6, 1, 1, 16), (50, 3), (3, 2, 100)]
SLOPES = [1.0, 0.0, 0.01]
NAMES = ["y", "mean", "variance", "to x", "to weight", "to bias"]


def inputs(shape, dtype=torch.float64, device="cpu", seeds=(), mean=3.0):
    """x, weight, bias, and statistics to give."""
    draw = torch.Generator().manual_seed(0)

    def normal(*size):
        return torch.randn(*seeds, *size, generator=draw, dtype=torch.float64)

    c = shape[-1]
    x = normal(*shape) * 2 + mean
    made = [x, normal(c) + 0.5, normal(c), normal(c) + mean, normal(c).square() + 0.1]
    return [v.to(device, dtype) for v in made]


def by_torch(x, weight, bias, given, slope):
    """The same with channels second, as torch requires, and the statistics by its `var`."""
    channels_second = x.movedim(-1, 1)
    mean, variance = given or (None, None)
    y = F.batch_norm(channels_second, mean, variance, weight, bias, given is None, eps=1e-5)
    y = F.leaky_relu(y, slope).movedim(1, -1)
    rows = x.detach().flatten(0, -2)
    return y, *(given or (rows.mean(0), rows.var(0, correction=0)))


def ours(x, weight, bias, given, slope):
    return batch_norm(x, weight, bias, given, slope=slope)


def with_gradients(call, tensors, slope, evaluates):
    """Outputs and gradients, in the order of NAMES."""
    *learned, mean, variance = (v.detach() for v in tensors)
    learned = [v.requires_grad_() for v in learned]
    y, *found = call(*learned, (mean, variance) if evaluates else None, slope)
    weights = torch.linspace(-1, 2, y.numel(), device=y.device, dtype=y.dtype).view_as(y)
    return [y.detach(), *found, *torch.autograd.grad((y * weights).sum(), learned)]


def in_basic_operations(x, weight, bias, given, slope):
    """The form that CUDA takes."""
    z, *found = module._in_basic_operations(x, weight, bias, given, 1e-5)
    return F.leaky_relu(z, slope), *found


def stacked(call):
    """The call for a stack of seeds."""

    def each(x, weight, bias, given, slope):
        dims = (0, 0, 0, None if given is None else (0, 0), None)
        return vmap(call, dims)(x, weight, bias, given, slope)

    return each


def one_by_one(call):
    def each(x, weight, bias, given, slope):
        given = [None] * len(x) if given is None else list(zip(*given, strict=True))
        rows = [call(*one, slope) for one in zip(x, weight, bias, given, strict=True)]
        return [torch.stack(values) for values in zip(*rows, strict=True)]

    return each


def assert_same(found, expected, tolerance):
    for name, a, b in zip(NAMES, found, expected, strict=True):
        far = tolerance * max(1.0, b.abs().max().item())
        torch.testing.assert_close(
            a.detach().cpu().double(), b.detach().cpu().double(), rtol=0, atol=far,
            msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip


BOTH = pytest.mark.parametrize("evaluates", [False, True], ids=["batch", "given"])


@BOTH
@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_torch_s(shape, slope, evaluates):
    exact = inputs(shape)
    expected = with_gradients(by_torch, exact, slope, evaluates)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        for call in (ours, in_basic_operations):
            found = with_gradients(call, [v.to(dtype) for v in exact], slope, evaluates)
            assert all(v.dtype == dtype for v in found)
            assert_same(found, expected, tolerance)


@BOTH
def test_a_stack_is_each_seed_alone(evaluates):
    tensors = inputs((4, 3, 3, 5), seeds=(3,))
    found = with_gradients(stacked(ours), tensors, 0.01, evaluates)
    assert_same(found, with_gradients(one_by_one(by_torch), tensors, 0.01, evaluates), 1e-9)


def test_a_stack_with_what_all_seeds_share_and_of_stacks():
    x, weight, bias, *_ = inputs((4, 3, 3, 5), seeds=(2, 3))
    twice = vmap(vmap(batch_norm))(x, weight, bias)[0]
    shared = vmap(batch_norm, (None, 0, 0))(x[0, 0], weight[0], bias[0])[0]
    last = vmap(batch_norm, (-1, -1, -1))(*(v[0].movedim(0, -1) for v in (x, weight, bias)))[0]
    for s in range(3):
        for r in range(2):
            torch.testing.assert_close(
                twice[r, s], batch_norm(x[r, s], weight[r, s], bias[r, s])[0]
            )
        torch.testing.assert_close(shared[s], batch_norm(x[0, 0], weight[0, s], bias[0, s])[0])
        torch.testing.assert_close(last[s], twice[0, s])


def test_the_gradient_inside_vmap():
    x, weight, bias, *_ = inputs((4, 3, 3, 5), seeds=(3,))

    def loss(weight, x, bias):
        return batch_norm(x, weight, bias, slope=0.01)[0].sin().sum()

    together = vmap(grad(loss))(weight, x, bias)
    alone = [grad(loss)(weight[s], x[s], bias[s]) for s in range(3)]
    torch.testing.assert_close(together, torch.stack(alone))


@BOTH
@pytest.mark.parametrize("slope", SLOPES)
def test_gradients_are_differences_of_values(slope, evaluates):
    x, weight, bias, *given = inputs((5, 2, 3))
    learned = [v.requires_grad_() for v in (x, weight, bias)]

    def call(*learned):
        return batch_norm(*learned, tuple(given) if evaluates else None, slope=slope)[0]

    assert torch.autograd.gradcheck(call, learned)


def test_the_running_statistics_are_torch_s():
    """Three steps and an evaluation, from the state of torch's own layer."""
    theirs, norm = nn.BatchNorm2d(6).double(), Norm(6, 0.01).double()
    nn.init.normal_(theirs.weight)
    nn.init.normal_(theirs.running_mean)
    norm.load_state_dict(theirs.state_dict())
    for step in range(4):
        if step == 3:
            theirs.eval(), norm.eval()
        x = torch.randn(3, 4, 4, 6, generator=torch.Generator().manual_seed(step)).double() + step
        expected = F.leaky_relu(theirs(x.permute(0, 3, 1, 2)), 0.01).permute(0, 2, 3, 1)
        torch.testing.assert_close(norm(x), expected)
        assert list(norm.state_dict()) == list(theirs.state_dict())
        for name, tensor in theirs.state_dict().items():
            torch.testing.assert_close(norm.state_dict()[name], tensor, msg=name)


def test_a_channel_without_variance():
    x, weight, bias, *_ = inputs((4, 3, 3, 2))
    x[..., 1] = 7.0
    tensors = [x, weight, bias, bias, bias]
    found = with_gradients(ours, tensors, 0.01, False)
    assert_same(found, with_gradients(by_torch, tensors, 0.01, False), 1e-8)
    torch.testing.assert_close(found[0][..., 1], F.leaky_relu(bias[1]).expand(4, 3, 3))


def test_far_from_zero_in_float32():
    """Statistics of numbers around 1000 with a deviation of 2."""
    exact = [v.float().double() for v in inputs((40, 5, 5, 4), mean=1000.0)]
    expected = with_gradients(by_torch, exact, 0.01, False)
    found = with_gradients(ours, [v.float() for v in exact], 0.01, False)
    torch.testing.assert_close(found[2].double(), expected[2], rtol=1e-5, atol=0)
    assert (found[0].double() - expected[0]).abs().max() < 1e-3


def test_under_autocast():
    """bf16 in, bf16 out; statistics and parameters in float32."""
    exact = inputs((4, 3, 3, 8))
    exact[0] = exact[0].bfloat16().double()
    tensors = [exact[0].bfloat16(), *(v.float() for v in exact[1:])]
    with torch.autocast("cpu", torch.bfloat16):
        found = with_gradients(ours, tensors, 0.01, False)
    kinds = [torch.bfloat16, torch.float32, torch.float32, torch.bfloat16, *[torch.float32] * 2]
    assert [v.dtype for v in found] == kinds
    for a, b in zip(found, with_gradients(by_torch, exact, 0.01, False), strict=True):
        assert (a.double() - b).norm() / b.norm() < 0.01


@BOTH
def test_a_stack_in_halves_is_each_seed_alone(evaluates):
    exact = inputs((4, 3, 3, 5), seeds=(3,))
    exact[0] = exact[0].bfloat16().double()
    tensors = [exact[0].bfloat16(), *(v.float() for v in exact[1:])]
    found = with_gradients(stacked(ours), tensors, 0.01, evaluates)
    alone = with_gradients(one_by_one(ours), tensors, 0.01, evaluates)
    for a, b in zip(found, alone, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)
    expected = with_gradients(one_by_one(by_torch), exact, 0.01, evaluates)
    for a, b in zip(found, expected, strict=True):
        assert (a.double() - b).norm() / b.norm() < 0.01


@pytest.mark.slow
def test_compiled():
    tensors = inputs((4, 3, 3, 8))
    for evaluates in (False, True):
        found = with_gradients(torch.compile(ours, fullgraph=True), tensors, 0.01, evaluates)
        assert_same(found, with_gradients(ours, tensors, 0.01, evaluates), 1e-9)


def test_what_is_refused():
    one = torch.zeros(1, 1, 1, 3)
    with pytest.raises(ValueError, match=r"x: got shape \(1, 1, 1, 3\), expected two or more"):
        Norm(3, 0.0)(one)
    assert Norm(3, 0.0).eval()(one).shape == one.shape


# -- the kernels -----------------------------------------------------------------------------------


def compare(device):
    """Against torch in float64, of one seed and of a stack."""
    for shape in [*SHAPES, (1100, 20)]:  # the last: several programs, one without all its rows
        for slope in SLOPES:
            for seeds in ((), (2,)):
                exact = inputs(shape, seeds=seeds)
                reference, call = (
                    (one_by_one(by_torch), stacked(ours)) if seeds else (by_torch, ours)
                )
                expected = with_gradients(reference, exact, slope, False)
                with kernels(module):
                    given = [v.to(device, torch.float32) for v in exact]
                    found = with_gradients(call, given, slope, False)
                assert_same(found, expected, 1e-4)
    x, weight, bias, *_ = (v.to(device) for v in inputs((4, 3), torch.float32))
    assert_not_derived_twice(module, lambda one: batch_norm(one, weight, bias)[0].sin().sum(), x)


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    interpreted(f"from {__name__} import compare; compare('cpu')")


def test_what_the_kernels_take(monkeypatch):
    taken = kernels_take(module, monkeypatch)
    assert taken(2, 3, 3, 256)
    assert not taken(2, 3, 3, 2049)
    assert not taken(2, 3, 3, 256, dtype=torch.float32)


# -- on a GPU --------------------------------------------------------------------------------------


@pytest.mark.gpu
@BOTH
def test_on_a_gpu_a_stack_is_each_seed_alone(evaluates):
    tensors = inputs((4, 3, 3, 5), seeds=(3,))
    expected = with_gradients(one_by_one(by_torch), tensors, 0.01, evaluates)
    tensors = [v.cuda() for v in tensors]
    assert_same(with_gradients(stacked(ours), tensors, 0.01, evaluates), expected, 1e-9)


@pytest.mark.gpu
def test_the_kernels_on_a_gpu():
    compare("cuda")


@pytest.mark.gpu
def test_in_halves_on_a_gpu():
    exact = inputs((16, 9, 9, 32), seeds=(2,))
    exact[0] = exact[0].bfloat16().double()
    tensors = [exact[0].cuda().bfloat16(), *(v.cuda().float() for v in exact[1:])]
    with torch.autocast("cuda", torch.bfloat16):
        found = with_gradients(stacked(ours), tensors, 0.01, False)
    expected = with_gradients(one_by_one(by_torch), exact, 0.01, False)
    for a, b in zip(found, expected, strict=True):
        assert (a.cpu().double() - b).norm() / b.norm() < 0.01


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 2])
def test_a_captured_step_moves_the_running_statistics(size):
    """As often as it is called, on a GPU as on the CPU."""
    images = torch.randn(size, 8, 5, 5, 6, generator=torch.Generator().manual_seed(0)) + 1
    results = []
    for device in ("cpu", "cuda"):
        x = images.to(device)
        stack = Stack([Norm(6, 0.0).to(device) for _ in range(size)])
        kept = torch.zeros(size, 8, 5, 5, 6, device=device)

        def step(stack=stack, x=x, kept=kept):
            y = stack.each(lambda norm, x: norm(x), x)
            kept.copy_(y.detach() + stack.gradient(y.square().sum((1, 2, 3, 4))).sum())

        call = Captured(step) if device == "cuda" else step
        for _ in range(6):
            call()
        saved = stack.state_dict(size - 1, stack.vector, stack.constants)
        assert saved["num_batches_tracked"] == 6
        results.append([kept.cpu(), saved["running_mean"], saved["running_var"]])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
