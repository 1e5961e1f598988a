"""The hard choice: exactly one-hot forwards, the softmax's Jacobian backwards, never NaN.

And the noise: Gumbel(0, 1), so that choices have the softmax's frequencies.
"""

import math

import pytest
import torch

from nps.rules import gumbel, hard_choice

HALF = [torch.float16, torch.bfloat16]
ANY = [*HALF, torch.float32, torch.float64]


def softmax_vjp(logits, temperature, grad):
    """grad times the Jacobian of softmax(logits / temperature), written out."""
    s = torch.exp(logits / temperature - torch.logsumexp(logits / temperature, -1, keepdim=True))
    return s * (grad - (grad * s).sum(-1, keepdim=True)) / temperature


def noise_of(uniform):
    return -torch.log(-torch.log(uniform.double()))


# -- value -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1e-6, 0.1, 1.0, 50.0])
@pytest.mark.parametrize("dtype", ANY)
def test_exactly_one_hot_at_the_argmax(dtype, temperature):
    torch.manual_seed(0)
    scores = (5 * torch.randn(200, 7)).to(dtype).requires_grad_()
    choice = hard_choice(scores, temperature=temperature)
    assert choice.dtype == torch.promote_types(dtype, torch.float32)
    assert torch.equal(choice, torch.eye(7, dtype=choice.dtype)[scores.argmax(-1)])


def test_exactly_one_hot_at_the_argmax_of_noisy_scores():
    torch.manual_seed(0)
    scores, uniform = torch.randn(2000, 7), torch.rand(2000, 7).clamp(1e-4, 1 - 1e-4)
    choice = hard_choice(scores, uniform=uniform)
    noisy = scores.double() + noise_of(uniform)
    assert torch.equal(choice, torch.eye(7)[noisy.argmax(-1)])
    assert not torch.equal(choice, hard_choice(scores))


def test_ties_still_choose_one():
    choice = hard_choice(torch.zeros(10, 5, requires_grad=True))
    assert torch.equal(choice.sort(-1).values, torch.tensor([0.0, 0, 0, 0, 1]).expand(10, 5))


def test_the_choice_is_among_what_is_allowed():
    torch.manual_seed(0)
    scores, uniform = 5 * torch.randn(500, 6), torch.rand(500, 6)
    allowed = torch.rand(500, 6) < 0.4
    allowed[:, 2] = True
    choice = hard_choice(scores, allowed=allowed, uniform=uniform)
    noisy = (scores.double() + noise_of(uniform)).masked_fill(~allowed, -math.inf)
    assert torch.equal(choice, torch.eye(6)[noisy.argmax(-1)])


@pytest.mark.parametrize("low", [-1e38, -math.inf])
def test_what_is_allowed_wins_however_low_it_scores(low):
    scores = torch.tensor([[low, 1e38, math.inf]])
    allowed = torch.tensor([[True, False, False]])
    assert hard_choice(scores, allowed=allowed).tolist() == [[1.0, 0.0, 0.0]]


def test_no_grad_gives_the_same_value():
    torch.manual_seed(0)
    scores = torch.randn(50, 6, requires_grad=True)
    allowed, uniform = torch.rand(50, 6) < 0.5, torch.rand(50, 6)
    call = {"allowed": allowed, "uniform": uniform, "temperature": 0.7}
    expected = hard_choice(scores, **call)
    assert expected.requires_grad
    with torch.no_grad():
        quiet = hard_choice(scores, **call)
    assert not quiet.requires_grad
    assert torch.equal(quiet, expected)


def test_nothing_allowed_is_zero_with_zero_gradient():
    torch.manual_seed(0)
    scores = torch.randn(4, 5, requires_grad=True)
    allowed = torch.ones(4, 5, dtype=torch.bool)
    allowed[::2] = False
    choice = hard_choice(scores, allowed=allowed, uniform=torch.rand(4, 5))
    assert (choice[::2] == 0).all()
    assert (choice[1::2].sum(-1) == 1).all()
    (choice * torch.randn(4, 5)).sum().backward()
    assert (scores.grad[::2] == 0).all()
    assert (scores.grad[1::2] != 0).all()


# -- gradient --------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("noisy", [False, True])
def test_the_gradient_is_the_softmax_jacobian(temperature, noisy):
    torch.manual_seed(0)
    scores = torch.randn(30, 6, dtype=torch.float64, requires_grad=True)
    uniform = torch.rand(30, 6) if noisy else None
    weights = torch.randn(30, 6, dtype=torch.float64)
    choice = hard_choice(scores, uniform=uniform, temperature=temperature)
    (grad,) = torch.autograd.grad((choice * weights).sum(), scores)
    logits = scores.detach() + (noise_of(uniform) if noisy else 0)
    torch.testing.assert_close(
        grad, softmax_vjp(logits, temperature, weights), rtol=1e-5, atol=1e-6
    )


def test_the_gradient_is_the_softmax_jacobian_over_what_is_allowed():
    torch.manual_seed(0)
    scores = torch.randn(1, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(1, 6, dtype=torch.float64)
    allowed = torch.tensor([[True, False, True, True, False, True]])
    choice = hard_choice(scores, allowed=allowed, temperature=0.5)
    (grad,) = torch.autograd.grad((choice * weights).sum(), scores)
    expected = torch.zeros_like(grad)
    some = allowed[0]
    expected[:, some] = softmax_vjp(scores.detach()[:, some], 0.5, weights[:, some])
    torch.testing.assert_close(grad, expected)


def straight_through(scores, allowed, uniform, temperature):
    """The same choice by autograd alone: hard + soft - soft.detach()."""
    logits = scores + noise_of(uniform)
    logits = logits.masked_fill(~allowed, -math.inf)
    soft = torch.softmax(logits / temperature, -1)
    hard = torch.eye(scores.shape[-1], dtype=scores.dtype)[logits.argmax(-1)]
    return hard + soft - soft.detach()


def random_choice(*batch, options=6):
    torch.manual_seed(0)
    scores = torch.randn(*batch, options, dtype=torch.float64, requires_grad=True)
    # Noise is made in float32: for a comparison in float64 it is left out, by equal numbers.
    uniform = torch.full((*batch, options), math.exp(-1))
    allowed = torch.rand(*batch, options) < 0.7
    allowed[..., 0] = True
    return scores, allowed, uniform


@pytest.mark.parametrize("temperature", [0.3, 1, 1.0, 4.0, torch.tensor(0.3), torch.tensor(1.0)])
def test_value_and_gradient_equal_the_formula_in_autograd(temperature):
    scores, allowed, uniform = random_choice(20)
    weights = torch.randn(20, 6, dtype=torch.float64)
    ours = hard_choice(scores, allowed=allowed, uniform=uniform, temperature=temperature)
    expected = straight_through(scores, allowed, uniform, float(temperature))
    torch.testing.assert_close(ours, expected)
    ours, expected = (torch.autograd.grad((c * weights).sum(), scores)[0] for c in (ours, expected))
    torch.testing.assert_close(ours, expected, rtol=1e-7, atol=1e-9)


def test_second_derivatives_are_those_of_the_softmax():
    scores, _, _ = random_choice(3)

    def gradient(choice):
        weights = torch.linspace(-1, 1, choice.numel(), dtype=torch.float64).view_as(choice)
        loss = (choice * weights).sum().square() + choice[..., 0].sum() * choice[..., 1].sum()
        return torch.autograd.grad(loss, scores, create_graph=True)[0]

    everything = torch.ones(3, 6, dtype=torch.bool)
    even = torch.full((3, 6), math.exp(-1))
    ours = gradient(hard_choice(scores, temperature=0.7))
    expected = gradient(straight_through(scores, everything, even, 0.7))
    torch.testing.assert_close(ours, expected, rtol=1e-7, atol=1e-9)
    ours, expected = (torch.autograd.grad(g.square().sum(), scores)[0] for g in (ours, expected))
    assert (expected != 0).all()
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-8)


def test_vmap_then_backward_equals_the_loop():
    scores, allowed, uniform = random_choice(4, 5)
    temperature = torch.tensor([0.3, 1.0, 2.0, 5.0])
    weights = torch.randn(4, 5, 6, dtype=torch.float64)

    def choose(scores, allowed, uniform, temperature):
        return hard_choice(scores, allowed=allowed, uniform=uniform, temperature=temperature)

    ours = torch.vmap(choose)(scores, allowed, uniform, temperature)
    (grad,) = torch.autograd.grad((ours * weights).sum(), scores)
    for s in range(4):
        expected = choose(scores[s], allowed[s], uniform[s], temperature[s].item())
        assert torch.equal(ours[s], expected)
        (its_grad,) = torch.autograd.grad((expected * weights[s]).sum(), scores)
        torch.testing.assert_close(grad[s], its_grad[s])


def test_vmap_over_the_temperature_alone():
    scores, _, _ = random_choice(5)
    temperature, weights = torch.tensor([0.3, 1.0, 2.0]), torch.randn(5, 6, dtype=torch.float64)

    def gradient(temperature):
        loss = lambda x: (hard_choice(x, temperature=temperature) * weights).sum()  # noqa: E731
        return torch.func.grad(loss)(scores.detach())

    ours = torch.vmap(gradient)(temperature)
    for grad, t in zip(ours, temperature, strict=True):
        torch.testing.assert_close(grad, gradient(t))


def test_compiled_vmap_keeps_the_gradient():
    scores, _, uniform = random_choice(4, 5)
    weights = torch.randn(4, 5, 6, dtype=torch.float64)
    stacked = torch.vmap(lambda s, u: hard_choice(s, uniform=u))
    compiled = torch.compile(stacked, fullgraph=True, backend="aot_eager")
    ours, expected = (
        torch.autograd.grad((f(scores, uniform) * weights).sum(), scores)[0]
        for f in (compiled, stacked)
    )
    torch._dynamo.reset()
    assert (expected != 0).any()
    torch.testing.assert_close(ours, expected)


EXTREME = {
    "large": [1e38, 1.0, -1e38],
    "equal large": [1e38, 1e38, 1e38],
    "equal small": [-1e38, -1e38, -1e38],
    "one inf": [math.inf, 0.0, -math.inf],
    "all inf": [math.inf, math.inf, math.inf],
    "all -inf": [-math.inf, -math.inf, -math.inf],
    "mixed": [math.inf, 1e38, -math.inf],
    "beyond the limit": [1e25, 2e25, -1e30],
}


@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", EXTREME)
def test_extreme_scores_give_no_nan(name, masked, noisy, temperature):
    scores = torch.tensor([EXTREME[name]], requires_grad=True)
    allowed = torch.tensor([[False, True, True]]) if masked else None
    uniform = torch.tensor([[0.0, 0.5, 1 - 2**-24]]) if noisy else None
    choice = hard_choice(scores, allowed=allowed, uniform=uniform, temperature=temperature)
    assert sorted(choice[0].tolist()) == [0.0, 0.0, 1.0]
    assert not masked or choice[0, 0] == 0
    (choice * torch.tensor([[1.0, -2.0, 3.0]])).sum().backward()
    assert torch.isfinite(scores.grad).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", HALF)
def test_the_largest_half_precision_scores_give_no_nan(dtype, sign):
    top = torch.finfo(dtype).max
    scores = torch.tensor([[sign * top, 1.0, -sign * top]], dtype=dtype, requires_grad=True)
    choice = hard_choice(scores, uniform=torch.tensor([[0.1, 0.9, 0.5]]))
    assert choice.tolist() == [[1.0, 0.0, 0.0] if sign > 0 else [0.0, 0.0, 1.0]]
    choice[0, 1].backward()
    assert torch.isfinite(scores.grad).all()


# -- noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uniform",
    [
        torch.tensor([0.0, 2**-149, 2**-24, 1 - 2**-24]),
        torch.tensor([0.0, 2**-1000, 1 - 2**-53], dtype=torch.float64),
        torch.tensor([0.0, 2**-24, 1 - 2**-11], dtype=torch.float16),
        torch.tensor([0.0, 2**-130, 1 - 2**-8], dtype=torch.bfloat16),
    ],
    ids=["float32", "float64", "float16", "bfloat16"],
)
def test_noise_is_finite_at_both_ends(uniform):
    noise = gumbel(uniform)
    assert noise.dtype == torch.float32
    assert torch.isfinite(noise).all()
    assert (noise.diff() >= 0).all()
    assert noise[0] < -2.5  # the ends lie further out than nearly all draws
    assert noise[-1] > 5


def test_noise_is_the_inverse_of_the_gumbel_distribution():
    u = torch.linspace(0.001, 0.999, 500, dtype=torch.float64)
    noise = gumbel(u).double()
    torch.testing.assert_close(torch.exp(-torch.exp(-noise)), u, rtol=1e-5, atol=1e-6)


def test_noise_has_the_gumbel_mean_and_variance():
    noise = gumbel(torch.rand(400_000, generator=torch.Generator().manual_seed(0))).double()
    variance = math.pi**2 / 6
    assert abs(noise.mean().item() - 0.5772157) < 5 * math.sqrt(variance / 400_000)
    # The fourth central moment is 5.4 variance^2, so that of the sample variance is 4.4 / n.
    assert abs(noise.var().item() - variance) < 5 * variance * math.sqrt(4.4 / 400_000)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_frequencies_are_the_softmax_at_any_temperature(temperature):
    # The temperature is the gradient's alone.
    n = 100_000
    scores = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5])
    uniform = torch.rand(n, 5, generator=torch.Generator().manual_seed(1))
    choice = hard_choice(scores.expand(n, 5), uniform=uniform, temperature=temperature)
    p = scores.double().softmax(-1)
    bound = 5 * (p * (1 - p) / n).sqrt()
    assert ((choice.double().mean(0) - p).abs() < bound).all()


def test_frequencies_over_what_is_allowed_are_its_softmax():
    n = 100_000
    scores = torch.tensor([1.0, 0.0, -1.0, 2.0])
    allowed = torch.tensor([True, True, True, False])
    uniform = torch.rand(n, 4, generator=torch.Generator().manual_seed(2))
    choice = hard_choice(scores.expand(n, 4), allowed=allowed.expand(n, 4), uniform=uniform)
    p = scores[:3].double().softmax(-1)
    assert choice[:, 3].sum() == 0
    assert ((choice[:, :3].double().mean(0) - p).abs() < 5 * (p * (1 - p) / n).sqrt()).all()
