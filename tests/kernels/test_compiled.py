"""Functions that run compiled on a GPU, and as they are elsewhere."""

import pytest
import torch

from nps import kernels
from nps.kernels.compiled import compiled_on_gpu, supported


@pytest.fixture
def compiled(monkeypatch):
    """The functions that were compiled, with their options; each then also adds 100."""
    found = []

    def compile_(function, **options):
        found.append((function.__name__, options))
        return lambda *arguments, **named: function(*arguments, **named) + 100

    monkeypatch.setattr(torch, "compile", compile_)
    return found


@compiled_on_gpu
def doubled(x, *, offset=0):
    return 2 * x + offset


def test_on_a_cpu_a_function_runs_as_it_is(compiled):
    x = torch.ones(2)
    assert not supported(x)
    assert doubled(x, offset=1).tolist() == [3, 3]
    assert compiled == []


def test_on_a_gpu_it_is_compiled_once_and_only_while_a_gradient_is_recorded(compiled, monkeypatch):
    @compiled_on_gpu
    def tripled(x):
        return 3 * x

    monkeypatch.setattr(kernels, "possible", lambda x: True)
    x = torch.ones(2)
    assert tripled(x).tolist() == [103, 103]
    assert tripled(x).tolist() == [103, 103]
    with torch.no_grad():
        assert tripled(x).tolist() == [3, 3]
    with kernels.without("compiled"):
        assert tripled(x).tolist() == [3, 3]
    # Kernels are not chosen by timing them: a resumed run could otherwise round differently.
    assert compiled == [("tripled", {"dynamic": False, "options": {"deterministic": True}})]


def test_numbers_are_not_compiled(compiled, monkeypatch):
    monkeypatch.setattr(kernels, "possible", lambda x: True)
    assert doubled(2, offset=1) == 5
    assert compiled == []


@pytest.mark.gpu
@pytest.mark.parametrize("interaction", ["cin", "pnps", "snps", "none"])
def test_a_compiled_frame_of_rpin_is_the_plain_one(interaction):
    from nps.models.rpin import RPIN, make_interaction
    from nps.rules import RuleConfig

    torch.manual_seed(0)
    rules = RuleConfig(2, hidden_dim=8, kernel_size=3)
    model = RPIN(make_interaction(interaction, 16, rules), 16).cuda()
    slots, latent = torch.randn(4, 3, 16, 7, 7).cuda(), torch.randn(4, 8).cuda()
    results = []
    for off in ([], ["compiled"]):
        with kernels.without(*off):
            torch.manual_seed(1)
            model.zero_grad()
            boxes = model.unroll(slots, latent, 3).boxes
            boxes.square().sum().backward()
            results.append([boxes, model.predict.weight.grad.clone()])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)
