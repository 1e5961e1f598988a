"""The kernels of the maps equal the products of maps.py and their gradients."""

import pytest
import torch

from nps.kernels.rules import maps
from nps.kernels.rules.inputs import Values
from nps.kernels.rules.launch import Steps, base
from nps.kernels.rules.plan import BACKWARD, FORWARD, Key, Plan
from tests.interpreter import interpreted
from tests.kernels.rules.test_stages import NOT_COMPILED

SIZES = [
    ((), 3, 2, 1, 2, 3, 1),
    ((), 60, 5, 10, 64, 32, 64),
    ((2,), 50, 3, 20, 40, 70, 33),
    ((3,), 2, 4, 33, 17, 5, 40),
]
"""Models, batch, slots, rules, and the sizes of an embedding, a key and the features."""


def values_of(size, parallel, device):
    lead, b, m, n, r, c, f = size
    torch.manual_seed(0)
    shapes = {
        "slots": (b, m, 4),
        "features": (b, m, f),
        "embedding": (n, r),
        "select_key": (c, r),
        **dict.fromkeys(("select_query", "bind_query", "bind_key"), (c, f)),
        "uniform": (b, 1, 1),
    }
    if parallel:
        shapes |= {"slot_key": (c, f), "applicability": (n, r, c)}
        shapes |= dict.fromkeys(("null_rule", "retired"), (c,))
    found = {name: torch.randn(*lead, *x, device=device) for name, x in shapes.items()}
    return Values(**{**dict.fromkeys(Values._fields), **found})


def compare(device):
    for size in SIZES:
        for parallel in (False, True):
            compare_one(values_of(size, parallel, device), parallel, *size[:3], device)


def compare_one(values, parallel, lead, b, m, device):
    shapes = [
        tuple(x.shape) for x in (values.slots, values.features, values.embedding, values.select_key)
    ]
    n, f = values.embedding.shape[-2], values.features.shape[-1]
    flags = [False] * 5
    key = Key(parallel, 0, *shapes, (*lead, n, 6), tuple(values.uniform.shape), *flags, True, False)
    plan = Plan(key)
    expected = maps.forward(values)
    buffers = [x.empty(values.slots).zero_() for x in (plan.maps, plan.kept, plan.passed)]
    total = plan.gradients.empty(values.slots)
    slots = values.slots
    bases = [slots if x is None else x for x in (*values, slots)]
    run(device, [*bases, *[slots] * (len(FORWARD) - len(bases)), *buffers[:2]], plan._make_maps())
    for name in ("rule_map", "bind_map", "keys", *(["bidders"] if parallel else [])):
        found = plan.maps.view(buffers[0], name)
        torch.testing.assert_close(found, getattr(expected, name), rtol=1e-5, atol=1e-4)

    seen = values.features.view(*lead, b * m, f)
    own = seen if parallel else torch.randn(*lead, b, f, device=device)
    to_scores, to_pull = (plan.passed.view(buffers[2], x) for x in ("to_scores", "to_pull"))
    to_scores.normal_(), to_pull.normal_()
    if not parallel:
        plan.kept.view(buffers[1], "own").copy_(own)
    bases += [slots] * (len(BACKWARD) - len(bases))
    launches = plan._sum_rows(False), plan._sum_rows(True), plan._map_gradients()
    run(device, [*bases, *buffers, total], *launches)
    sums = 2 * to_scores.mT @ seen, 2 * own.mT @ to_pull  # both sums were added
    grads = maps.backward(values, expected, *sums)
    views = dict(zip(plan.gradients.shapes, plan.gradients.views(total), strict=True))
    names = ("embedding", "select_key", "select_query", "bind_query", "bind_key")
    names += ("slot_key", "applicability", "null_rule") if parallel else ()
    for name, grad in zip(names, grads, strict=True):
        scale = 1e-5 * float(grad.abs().max())
        torch.testing.assert_close(views[f"to_{name}"], grad, rtol=1e-4, atol=scale)


def run(device, bases, *launches):
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0
    Steps(*launches)(stream, tuple(base(x) for x in bases))


@pytest.mark.slow
@NOT_COMPILED
def test_the_kernels_in_the_interpreter():
    interpreted(f"from {__name__} import compare; compare('cpu')")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_kernels_on_a_gpu():
    compare("cuda")
