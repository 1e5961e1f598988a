"""Adam and AdamW of a stack against torch's (kernels/test_adam.py: the kernel, its twin)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nps import kernels
from nps.training.optimiser import Adam
from nps.training.stack import Stack

STEPS = 5
DECAYS = pytest.mark.parametrize("decay", [0.0, 0.3])


def rates() -> torch.Tensor:
    return torch.linspace(1e-2, 1e-3, STEPS, dtype=torch.float64)


def compare(device: str, *, kernel: bool, decay: float) -> None:
    """Three seeds, each with its own factor, one of them not alive after two steps."""
    torch.manual_seed(0)
    models = [nn.Linear(7, 5).to(device) for _ in range(3)]
    copies = [nn.Linear(7, 5) for _ in range(3)]
    for copy, model in zip(copies, models, strict=True):
        copy.load_state_dict(model.state_dict())
    optimisers = [torch.optim.AdamW(copy.parameters(), weight_decay=decay) for copy in copies]
    stack = Stack(models)
    adam = Adam(stack, rates(), decay)
    factor = torch.tensor([1.0, 0.5, 2.0])
    usual, kernels.possible = kernels.possible, lambda x: kernel
    try:
        for step in range(STEPS):
            alive = torch.tensor([True, step < 2, True])
            gradient = torch.randn(stack.vector.shape)
            for s, part in ((s, stack.parts(gradient)) for s in range(3) if alive[s]):
                for name, parameter in copies[s].named_parameters():
                    parameter.grad = factor[s] * part[name][s]
                optimisers[s].param_groups[0]["lr"] = rates()[step].item()
                optimisers[s].step()
            gradient[(stack.seed_of == 1).cpu() & ~alive[1]] = torch.nan
            done = torch.tensor([step], device=device)
            adam.step(gradient.to(device), done, factor.to(device), alive.to(device))
    finally:
        kernels.possible = usual
    for name, part in stack.parts(stack.vector).items():
        for s, copy in enumerate(copies):
            expected = dict(copy.named_parameters())[name].detach()
            torch.testing.assert_close(part[s].cpu(), expected, rtol=1e-5, atol=1e-6)


@DECAYS
def test_operations_are_torchs_adam(decay):
    compare("cpu", kernel=False, decay=decay)


@pytest.mark.gpu
@DECAYS
@pytest.mark.parametrize("kernel", [False, True])
def test_on_a_gpu(kernel, decay):
    compare("cuda", kernel=kernel, decay=decay)
