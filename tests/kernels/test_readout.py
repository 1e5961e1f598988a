"""Normalisation, activation and convolution as one, against torch's one after another; the kernels
in Triton's interpreter and on a GPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional as F

from nps.capture import Captured
from nps.kernels import readout as module
from nps.kernels.readout import readout
from nps.perception.extractors import ObjectEncoder
from nps.training.stack import Stack
from tests.interpreter import interpreted, kernels

# images, windows along a side, channels, kernel, outputs, slope
CASES = [
    (3, 2, 16, 5, 3, 0.01),
    (7, 3, 32, 3, 5, 0.0),
    (70, 2, 32, 2, 5, 0.01),  # several programs a sum, the last of which has not all its rows
    (2, 1, 64, 4, 17, 1.0),
]
NAMES = ["out", "mean", "variance", "to x", "to scale", "to shift", "to weight", "to bias"]


def inputs(case, dtype=torch.float64, device="cpu", seeds=()):
    """x, scale, shift, weight, bias: numbers that bf16 can represent."""
    images, windows, channels, kernel, out, _ = case
    draw = torch.Generator().manual_seed(0)

    def normal(*size):
        return torch.randn(*seeds, *size, generator=draw, dtype=torch.float64)

    x = normal(images, windows * kernel, windows * kernel, channels) * 2 + 3
    weight = normal(out, channels, kernel, kernel) / (channels**0.5 * kernel)
    made = [x, normal(channels) + 0.5, normal(channels), weight, normal(out)]
    return [v.bfloat16().to(device, dtype) for v in made]


def by_torch(x, scale, shift, weight, bias, *, slope):
    """The same with the channels second, as torch wants them."""
    y = F.batch_norm(x.movedim(-1, 1), None, None, scale, shift, True, eps=1e-5)
    out = F.conv2d(F.leaky_relu(y, slope), weight, bias, weight.shape[-1]).movedim(1, -1)
    rows = x.detach().flatten(0, -2)
    return out, rows.mean(0), rows.var(0, correction=0)


def one_by_one(call):
    def each(*tensors, slope):
        rows = [call(*one, slope=slope) for one in zip(*tensors, strict=True)]
        return [torch.stack(values) for values in zip(*rows, strict=True)]

    return each


def with_gradients(call, tensors, slope):
    """Outputs and gradients, in the order of NAMES."""
    tensors = [v.detach().requires_grad_() for v in tensors]
    out, *found = call(*tensors, slope=slope)
    weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).bfloat16().to(out)
    weights = weights.view_as(out)
    return [out.detach(), *found, *torch.autograd.grad((out * weights).sum(), tensors)]


def assert_same(found, expected, tolerance):
    for name, a, b in zip(NAMES, found, expected, strict=True):
        far = tolerance * max(1.0, b.abs().max().item())
        torch.testing.assert_close(
            a.detach().cpu().double(), b.detach().cpu().double(), rtol=0, atol=far,
            msg=lambda text, name=name: f"{name}: {text}",
        )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_torch_s(case):
    exact = inputs(case)
    expected = with_gradients(by_torch, exact, case[-1])
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        found = with_gradients(readout, [v.to(dtype) for v in exact], case[-1])
        assert all(v.dtype == dtype for v in found)
        assert_same(found, expected, tolerance)


def test_a_stack_is_each_seed_alone():
    tensors = inputs(CASES[0], seeds=(3,))
    found = with_gradients(vmap(readout), tensors, 0.01)
    assert_same(found, with_gradients(one_by_one(by_torch), tensors, 0.01), 1e-9)


def test_what_the_kernels_take(monkeypatch):
    """Large, in bf16, whole windows, channels in powers of two; the rest takes the plain twin."""
    monkeypatch.setattr(module.kernels, "possible", lambda _: True)
    weight = torch.zeros(5, 32, 5, 5)

    def taken(*shape, dtype=torch.bfloat16, weight=weight):
        return module.supported(torch.empty(*shape, dtype=dtype, device="meta"), weight)

    assert taken(105, 50, 50, 32)
    assert not taken(104, 50, 50, 32)
    assert not taken(105, 50, 50, 32, dtype=torch.float32)
    assert not taken(105, 50, 52, 32)
    assert not taken(105, 50, 50, 24)
    assert not taken(105, 50, 50, 32, weight=torch.zeros(33, 32, 5, 5))
    assert not taken(30_000, 50, 50, 32)


# -- the extractor ---------------------------------------------------------------------------------


def extractor(width=16, slots=3):
    torch.manual_seed(0)
    return ObjectEncoder("medium", slots, 2, hidden_dim=32, width=width).extractor


def pixels(*sizes):
    return torch.rand(*sizes, 50, 50, 3, generator=torch.Generator().manual_seed(0))


def one_step(model, images):
    """Maps, gradients and buffers after two steps."""
    for _ in range(2):
        maps = model(images)
    weights = torch.linspace(-1, 2, maps.numel(), device=maps.device).view_as(maps)
    gradients = torch.autograd.grad((maps * weights).sum(), list(model.parameters()))
    return [maps.detach(), *gradients, *model.buffers()]


def test_on_a_cpu_the_extractor_is_its_layers_bit_for_bit():
    model = extractor()
    layers = nn.Sequential(*copy.deepcopy(model))
    assert list(model.state_dict()) == list(layers.state_dict())
    assert [name.split(".")[0] for name, _ in model.named_parameters()] == ["0", "1", "1", "3", "3"]
    found, expected = one_step(model, pixels(4)), one_step(layers, pixels(4))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(model.eval()(pixels(4)), layers.eval()(pixels(4)))


def test_a_stack_of_extractors_keeps_each_seed_s_statistics():
    images = pixels(2, 4)
    models = [extractor() for _ in range(2)]
    alone = [copy.deepcopy(model) for model in models]
    stack = Stack(models)
    maps = stack.each(lambda model, x: model(x), images)
    for s, model in enumerate(alone):
        torch.testing.assert_close(maps[s], model(images[s]), rtol=1e-4, atol=1e-5)
        saved = stack.state_dict(s, stack.vector, stack.constants)
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(saved[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


# -- the kernels -----------------------------------------------------------------------------------


def compare_kernels(device: str) -> None:
    """Values and gradients of every case, one seed and a stack, against float64 by torch."""
    for case in CASES:
        for seeds in ((), (2,)):
            exact = inputs(case, seeds=seeds)
            reference, call = (
                (one_by_one(by_torch), vmap(readout)) if seeds else (by_torch, readout)
            )
            expected = with_gradients(reference, exact, case[-1])
            with kernels(module):
                found = with_gradients(call, [v.to(device, torch.float32) for v in exact], case[-1])
            assert_same(found, expected, 2e-5)


def compare_transforms(device: str) -> None:
    """The kernels in a gradient inside nested vmaps; they refuse second derivatives."""
    x, scale, shift, weight, bias = inputs(CASES[0], torch.float32, device, seeds=(2, 3))

    def loss(weight, x, scale, shift, bias):
        return readout(x, scale, shift, weight, bias, slope=0.01)[0].sin().sum()

    call = vmap(vmap(grad(loss), (0, 0, 0, None, 0)))
    tensors = [weight, x, scale, shift[:, 0], bias]
    with kernels(module, False):
        expected = call(*(v.double() for v in tensors))
    with kernels(module):
        found = call(*tensors)
        w = weight[0, 0].requires_grad_()
        value = loss(w, x[0, 0], scale[0, 0], shift[0, 0], bias[0, 0])
        (first,) = torch.autograd.grad(value, w, create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivatives on CUDA"):
            torch.autograd.grad(first.sum(), w)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def compare_moments(device: str) -> None:
    """Of numbers around 1000 with a deviation of 2: the digits must not cancel."""
    from nps.kernels.triton.moments import moments

    draw = torch.Generator().manual_seed(0)
    x = (torch.randn(2, 40, 9, 9, 5, generator=draw, dtype=torch.float64) * 2 + 1000).float()
    mean, variance = moments(x.to(device))
    rows = x.double().flatten(1, -2)
    torch.testing.assert_close(mean.cpu().double(), rows.mean(1), rtol=1e-6, atol=0)
    expected = rows.var(1, correction=0)
    torch.testing.assert_close(variance.cpu().double(), expected, rtol=1e-5, atol=0)


def test_the_kernels_in_the_interpreter():
    pytest.importorskip("triton")
    program = f"""if True:
        from {__name__} import compare_kernels, compare_moments, compare_transforms
        compare_kernels("cpu"); compare_moments("cpu"); compare_transforms("cpu")"""
    interpreted(program)


@pytest.mark.gpu
def test_the_kernels_on_a_gpu():
    compare_kernels("cuda")
    compare_moments("cuda")
    compare_transforms("cuda")


# What the medium extractor has, with seeds of 11,200 windows.
ATARI = (112, 10, 32, 5, 5, 0.01)


@pytest.mark.gpu
def test_in_bf16_a_stack_is_exact_up_to_rounding_and_repeats_bit_for_bit():
    exact = inputs(ATARI, seeds=(3,))
    expected = with_gradients(one_by_one(by_torch), exact, ATARI[-1])
    tensors = [exact[0].cuda().bfloat16(), *(v.cuda().float() for v in exact[1:])]
    assert module.supported(tensors[0][0], tensors[3][0])
    found, again = (with_gradients(vmap(readout), tensors, ATARI[-1]) for _ in range(2))
    for name, a, b, c in zip(NAMES, found, again, expected, strict=True):
        assert torch.equal(a, b), name
        assert (a.cpu().double() - c).norm() / c.norm() < 0.01, name
    kinds = [torch.float32 if name not in ("out", "to x") else torch.bfloat16 for name in NAMES]
    assert [v.dtype for v in found] == kinds


@pytest.mark.gpu
def test_in_bf16_a_stack_is_each_seed_alone():
    tensors = inputs(ATARI, torch.bfloat16, "cuda", seeds=(3,))
    together = vmap(readout)(*tensors, slope=0.01)
    alone = one_by_one(readout)(*tensors, slope=0.01)
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=0.01, atol=0.01)


@pytest.mark.gpu
def test_the_extractor_takes_it_and_agrees_with_its_layers(monkeypatch):
    model = extractor(32, 5).cuda()
    layers = nn.Sequential(*copy.deepcopy(model))
    images, taken, supported = pixels(112).cuda(), [], module.supported

    def watched(*tensors):
        taken.append(supported(*tensors))
        return taken[-1]

    monkeypatch.setattr(module, "supported", watched)
    with torch.autocast("cuda", torch.bfloat16):
        found, expected = one_step(model, images), one_step(layers, images)
        model.eval()(images)
    assert taken == [True, True]
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert (a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-12) < 0.03


@pytest.mark.gpu
def test_a_captured_step_of_a_stack_moves_the_running_statistics():
    images, saved = pixels(2, 112).cuda(), []
    for captured in (False, True):
        stack = Stack([extractor(32, 5).cuda() for _ in range(2)])
        kept = torch.zeros_like(stack.vector)

        def step(stack=stack, kept=kept):
            with torch.autocast("cuda", torch.bfloat16):
                maps = stack.each(lambda model, x: model(x), images)
            kept.copy_(stack.gradient(maps.float().square().sum((1, 2, 3, 4))))

        call = Captured(step) if captured else step
        for _ in range(6):
            call()
        saved.append([kept, *(stack.constants[f"1.running_{name}"] for name in ("mean", "var"))])
        assert stack.constants["1.num_batches_tracked"].tolist() == [6, 6]
    for a, b in zip(*saved, strict=True):
        assert (a - b).norm() / b.norm() < 0.01  # cuDNN's sums need not repeat
