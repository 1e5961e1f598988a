"""Rules' products on rows sorted by rule equal the action written out, on a GPU or interpreted."""

import pytest
import torch

from nps.rules.fused import action, grouped, launch
from nps.rules.fused.inputs import Inputs
from tests.interpreter import interpreted
from tests.rules.test_fused import NOT_COMPILED

SORTS = [(1, 1, 1), (3, 129, 4), (1, 300, 10), (2, 70, 300), (1, 9000, 3)]
SIZES = [
    (1, 1, 1, 2, 3, 1),
    (1, 150, 10, 40, 24, 20),
    (3, 50, 4, 12, 9, 6),
    (1, 130, 3, 140, 70, 70),
    (2, 5, 7, 16, 130, 8),
]
"""Models, rows, rules, and the sizes of a rule: in, hidden, out."""


def choices(s, t, n, device):
    """Rules by chance, all rows with the last rule, and rules chosen by one row or by none."""
    torch.manual_seed(0)
    yield torch.randint(n, (s, t), device=device)
    yield torch.full((s, t), n - 1, device=device)
    rare = torch.full((s, t), n // 2, device=device)
    rare[:, t // 2] = 0
    yield rare


def compare_sort(device):
    for s, t, n in SORTS:
        for rule in choices(s, t, n, device):
            order, ends = grouped.sort(rule, n)
            assert torch.equal(order.long(), rule.sort(stable=True).indices), (s, t, n)
            chosen = torch.nn.functional.one_hot(rule, n)
            assert torch.equal(ends.long(), chosen.sum(1).cumsum(-1)), (s, t, n)


def compare_action(device):
    for s, t, n, i, h, d in SIZES:
        for rule in choices(s, t, n, device):
            ours, theirs = both(rule, n, i, h, d)
            for a, b in zip(ours, theirs, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def both(rule, n, i, h, d):
    """Update and gradients: from the kernels, and from autograd of the action written out."""
    s, t = rule.shape
    shapes = (s, n, i, h), (s, n, h), (s, n, h, d), (s, n, d), (s, t, i), (s, t, d)
    *weights, x, g = (torch.randn(shape, device=rule.device) for shape in shapes)
    weights[0] /= i**0.5
    weights[2] /= h**0.5
    choice = torch.nn.functional.one_hot(rule, n).float()
    written = [y.requires_grad_() for y in (x, choice, *weights)]
    empty = torch.empty(0, device=rule.device)
    inputs = Inputs(empty, empty, empty, *weights, empty, None, 1.0, 0.0, True)
    expected = action.act_written_out(inputs, x, choice)
    with torch.no_grad():
        raw, *kept = grouped.act(inputs, x, rule)
        ours = grouped.act_gradient(inputs, g, x, rule, *kept)
        update = raw + choice @ inputs.bias_out
    return (update, *ours), (expected, *torch.autograd.grad(expected, written, g))


def test_the_number_of_rows_decides(monkeypatch):
    def groups(t, n):
        weights = torch.empty(1, n, 4, 5), torch.empty(1, n, 5)
        inputs = Inputs(
            *[torch.empty(0)] * 3, *weights, *[torch.empty(0)] * 3, None, 1.0, 0.0, True
        )
        return launch.groups(inputs, torch.zeros(2, t // 2, dtype=torch.int64))

    monkeypatch.setattr(launch, "GROUPED_FROM", 100)
    assert groups(100, 10)
    assert not groups(98, 10)
    assert not groups(100, grouped.MOST_RULES + 1)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["sort('cpu')", "action('cpu')"])
@NOT_COMPILED
def test_the_kernels_in_the_interpreter(call):
    """Triton's own interpreter runs the kernels on a CPU, in a process that begins with it."""
    interpreted(f"from {__name__} import *; compare_{call}")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_kernels_on_a_gpu():
    compare_sort("cuda")
    compare_action("cuda")
