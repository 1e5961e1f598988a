"""Both GPU forms of the rules' products equal the action written out, on a GPU or interpreted."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from nps.kernels.rules import grouped
from nps.kernels.rules.grouped import Grouped, Size
from nps.kernels.rules.joint import Joint
from nps.kernels.rules.launch import Layout, Places, Steps, base, ready
from tests.interpreter import interpreted
from tests.kernels.rules.test_stages import NOT_COMPILED, action_stage, written_out

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


def stream(device):
    return torch.cuda.current_stream().cuda_stream if device == "cuda" else 0


def buffers(size, form, device):
    """Those of a stage, for both directions: bases, places, and views by name."""
    lead, t, _, i, _, d = size
    names = ("weight_in", "bias_in", "weight_out", "bias_out", "slots", "new")
    chosen = {"rule": (*lead, t), "target": (*lead, t), "x": (*lead, t, i)}
    layouts = {
        "kept": Layout(**chosen, update=(*lead, t, d), **form.kept),
        "passed": Layout(outer=(*lead, t, d), **form.passed),
        "gradients": Layout(**form.gradients),
    }
    spaces = {name: torch.zeros(x.size, device=device) for name, x in layouts.items()}

    def view(name):
        buffer = next(x for x in layouts if name in layouts[x].shapes)
        return layouts[buffer].view(spaces[buffer], name)

    return tuple(spaces.values()), Places(names, **layouts), view


def nothing():
    """In place of the launches around the action."""


def run(device, bases, *launches):
    Steps(*launches)(stream(device), tuple(base(x) for x in bases))


def compare_sort(device):
    for s, t, n in SORTS:
        size = Size((s,), t, n, 2, 3, 1)
        form = Grouped(size, tf32=False)
        for rule in choices(s, t, n, device):
            spaces, places, view = buffers(size, form, device)
            view("rule").copy_(rule)
            run(device, (*spaces[:1] * 6, *spaces), *form.sort(places))
            assert torch.equal(view("order").long(), rule.sort(stable=True).indices), (s, t, n)
            chosen = torch.nn.functional.one_hot(rule, n)
            assert torch.equal(view("ends").long(), chosen.sum(1).cumsum(-1)), (s, t, n)


def compare_action(device):
    for kind in (partial(Grouped, tf32=False), Joint):
        for s, t, n, i, h, d in SIZES:
            for lead in {(s,), (s,) if s > 1 else ()}:
                for rule in choices(s, t, n, device):
                    size = Size(lead, t, n, i, h, d)
                    ours, theirs = both(kind(size), size, rule.view(*lead, t), device)
                    for a, b in zip(ours, theirs, strict=True):
                        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def both(form, size, rule, device):
    """Update and gradients: from the kernels, and from autograd of the action written out."""
    lead, t, n, i, h, d = size
    _, weights = action_stage(lead, n, i, h, d, device, torch.float32)
    x, g = (torch.randn(*lead, t, k, device=device) for k in (i, d))
    choice = torch.nn.functional.one_hot(rule, n).float()
    written = [x.requires_grad_(), choice.requires_grad_(), *weights]
    expected = written_out(x, choice, *weights)
    spaces, places, view = buffers(size, form, device)
    slots = torch.randn(t * size.s, d, device=device)
    new = slots.clone()
    with torch.no_grad():
        view("rule").copy_(rule)
        target = torch.arange(t * size.s, device=device).view_as(rule)
        view("target").copy_(torch.where(target % 3 > 0, target, -1))
        view("x").copy_(x)
        view("outer").copy_(g)
        given = *(ready(w) for w in weights), slots, new, *spaces
        if isinstance(form, Joint):
            hide, change, expose = (
                partial(run, device, given, x(places))
                for x in (form.hide, form.change, form.expose)
            )
            own = SimpleNamespace(**dict(zip(places.of, given[:4], strict=False)))
            form.forward((nothing, hide, change), view, own)
            to_weights = form.backward((nothing, expose, nothing), view, own)
        else:
            launches = form.forward(places), form.backward(places, False), form.add_shares(places)
            for each in launches:
                run(device, given, *each)
            to_weights = [view(name).clone() for name in form.gradients]
            run(device, given, *form.backward(places, True), *form.add_shares(places))
            for once, name in zip(to_weights, form.gradients, strict=True):
                torch.testing.assert_close(2 * once, view(name), rtol=1e-4, atol=1e-4)
    changed = (target % 3 > 0).view(-1, 1) * expected.detach().view(-1, d)
    torch.testing.assert_close(new, slots + changed, rtol=1e-4, atol=1e-4)
    ours = view("update"), view("to_x"), view("to_rule"), *to_weights
    return ours, (expected, *torch.autograd.grad(expected, written, g))


def test_the_number_of_rows_decides(monkeypatch):
    monkeypatch.setattr(grouped, "GROUPED_FROM", 100)
    assert grouped.serves(Size((2,), 50, 10, 4, 5, 2))
    assert grouped.serves(Size((), 100, 10, 4, 5, 2))
    assert not grouped.serves(Size((2,), 49, 10, 4, 5, 2))
    assert not grouped.serves(Size((), 100, grouped.MOST_RULES + 1, 4, 5, 2))


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
