"""The kernel of a step of Adam against its plain twin (training/test_optimiser.py: torch's)."""

from __future__ import annotations

import pytest
import torch

from nps.kernels import adam as module
from tests.interpreter import interpreted, kernels

STEPS = 3
DECAYS = pytest.mark.parametrize("decays", [False, True])


def moved(device: str, *, kernel: bool, decays: bool) -> list[tuple[torch.Tensor, ...]]:
    """Parameters and both moments of three seeds after a few steps; the second is not alive."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1100, 37, 900])  # more than one block of the kernel, and none whole
    seed_of = torch.arange(3).repeat_interleave(sizes)
    vector, mean = torch.randn(2, len(seed_of), generator=draw)
    square = mean.square() + 0.1
    table = 0.1 * torch.rand(STEPS, 3, generator=draw)
    factor, alive = torch.tensor([1.0, 0.5, 2.0]), torch.tensor([True, False, True])
    state = [x.to(device) for x in (vector, mean, square)]
    vector, mean, square = state
    settings = [x.to(device) for x in (seed_of, factor, alive)]
    with kernels(module, kernel):
        for step in range(STEPS):
            gradient = torch.randn(len(seed_of), generator=draw)
            gradient[seed_of == 1] = torch.nan
            now = torch.tensor([step], device=device)
            rest = table.to(device), now, *settings
            module.adam(vector, gradient.to(device), mean, square, *rest, decays=decays)
    return [x.cpu().split(sizes.tolist()) for x in state]


def compare(device: str, decays: bool) -> None:
    ours, theirs = (moved(device, kernel=kernel, decays=decays) for kernel in (True, False))
    for seed in (0, 2):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a[seed], b[seed], rtol=1e-5, atol=1e-6)
    assert torch.equal(ours[0][1], theirs[0][1])  # moments of a seed that is not alive are unused


@DECAYS
def test_a_seed_that_is_not_alive_stays_bit_for_bit(decays):
    start = torch.randn(2, 2037, generator=torch.Generator().manual_seed(0))[0]
    vector, *_ = moved("cpu", kernel=False, decays=decays)
    assert torch.equal(vector[1], start[1100:1137])
    assert (vector[0] != start[:1100]).all()
    assert all(x.isfinite().all() for x in vector)


@DECAYS
def test_the_kernel_in_the_interpreter(decays):
    """Triton's own interpreter runs the kernel on a CPU, in a process that begins with it."""
    pytest.importorskip("triton")
    interpreted(f"from {__name__} import compare; compare('cpu', {decays})")


@pytest.mark.gpu
@DECAYS
def test_on_a_gpu(decays):
    compare("cuda", decays)
