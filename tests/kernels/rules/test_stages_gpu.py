"""On a GPU: accelerated stages equal the layers' own steps, and can be captured."""

import pytest
import torch

from nps import ParallelNPS, SequentialNPS
from nps.kernels.rules import grouped, plan
from nps.kernels.rules.launch import Steps
from tests.kernels.rules.test_stages import FEATURES, OPTIONS, assert_same, call_of, make, step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])
SIZES = [
    (1024, 5, 10, 64),
    (3, 1, 1, 6),
    (33, 7, 3, 20),
    (64, 20, 10, 64),
    (7, 2, 64, 100),
    (5, 3, 5, 256),
    (1, 64, 4, 8),
]


def run(kind, b, m, n, d, dtype=torch.float32, features=None, masked=False, **options):
    layer = make(kind, d, n, dtype, "cuda", selection_dim=7 if features else None, **options)
    slots = torch.randn(b, m, d, device="cuda", dtype=dtype)
    noise = torch.rand(layer.noise_shape(b, slots=m), device="cuda")
    call = call_of(layer, b, m, features, masked, dtype, "cuda")
    return [step(layer, slots, noise, fused, **call) for fused in (True, False)]


@pytest.fixture(autouse=True, params=[10**9, 0], ids=["joint", "grouped"])
def form(request, monkeypatch):
    """Both forms of the rules' products."""
    monkeypatch.setattr(grouped, "GROUPED_FROM", request.param)
    plan.plan_of.cache_clear()
    yield request.param
    plan.plan_of.cache_clear()


@pytest.fixture
def launches(monkeypatch):
    """The names of the kernels."""
    seen, real = [], Steps.__call__

    def note(steps, *given):
        seen.extend(x.name for x in steps.launches)
        real(steps, *given)

    monkeypatch.setattr(Steps, "__call__", note)
    return seen


@BOTH
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equals_the_steps(kind, size, launches):
    assert_same(*run(kind, *size), rtol=1e-3, atol=2e-3)
    assert launches


@BOTH
def test_how_many_kernels_a_training_step_has(kind, form, launches):
    """An eager call costs its launches: about 10 us each, where the arithmetic takes less."""
    run(kind, 200, 5, 10, 16)
    through_pull = 2 if kind is ParallelNPS else 0  # products with the binding matrix
    assert len(launches) == (9 if form else 14) + through_pull


@BOTH
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_the_steps_with_options(kind, options, launches):
    assert_same(*run(kind, 200, 5, 4, 16, **options), rtol=1e-3, atol=2e-3)
    assert launches


@BOTH
@pytest.mark.parametrize("features", [None, *FEATURES])
@pytest.mark.parametrize("masked", [False, True])
def test_features_and_masks_equal_the_steps(kind, features, masked, launches):
    for options in ({}, OPTIONS[5]):
        found = run(kind, 200, 5, 4, 16, features=features, masked=masked, **options)
        assert_same(*found, rtol=1e-3, atol=2e-3)
    assert launches


@BOTH
def test_autocast_changes_nothing(kind, launches):
    """Neither forward nor backward: scores and actions stay float32."""
    layer = make(kind, 16, 4, torch.float32, "cuda")
    slots = torch.randn(200, 5, 16, device="cuda")
    noise = torch.rand(layer.noise_shape(200, slots=5), device="cuda")
    expected = step(layer, slots, noise, True)
    with torch.autocast("cuda", torch.bfloat16):
        found = step(layer, slots, noise, True)
    assert launches
    assert found[0].dtype == torch.float32
    assert_same(found, expected)


@BOTH
def test_unaligned_slots_and_noise(kind):
    """Launches assume addresses that are multiples of 16 bytes; inputs need not have them."""
    layer = make(kind, 16, 4, torch.float32, "cuda")
    slots = torch.randn(200 * 5 * 16 + 1, device="cuda")[1:].view(200, 5, 16)
    shape = torch.Size(layer.noise_shape(200, slots=5))
    noise = torch.rand(shape.numel() + 1, device="cuda")[1:].view(shape)
    assert_same(step(layer, slots, noise, True), step(layer, slots.clone(), noise.clone(), True))


@BOTH
@pytest.mark.parametrize("size", [(4, 200, 3, 100), (4, 3, 3, 1000)], ids=str)
def test_what_the_kernels_do_not_serve_equals_the_steps(kind, size, launches):
    assert_same(*run(kind, *size), rtol=1e-2, atol=2e-2)
    assert not launches


@BOTH
def test_double_precision_equals_the_steps(kind, launches):
    assert_same(*run(kind, 50, 5, 4, 6, torch.float64))
    assert not launches


@BOTH
def test_a_captured_step_equals_an_eager_one(kind):
    layer = make(kind, 16, 4, torch.float32, "cuda", stages=2)
    shape = (200, 5, 16)
    slots = torch.randn(shape, device="cuda", requires_grad=True)
    noise = torch.rand(layer.noise_shape(200, slots=5), device="cuda")
    inputs = [slots, *layer.parameters()]

    def grads():
        return torch.autograd.grad(layer(slots, noise=noise).sin().sum(), inputs)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            grads()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = grads()
    for _ in range(2):  # again with other numbers: the graph holds no choice of the capture
        with torch.no_grad():
            slots.copy_(torch.randn(shape))
            noise.copy_(torch.rand(noise.shape))
        graph.replay()
        for a, b in zip(captured, grads(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@BOTH
def test_gradients_are_the_same_each_time(kind):
    layer = make(kind, 64, 10, torch.float32, "cuda")
    slots = torch.randn(512, 5, 64, device="cuda")
    noise = torch.rand(layer.noise_shape(512, slots=5), device="cuda")
    first, second = (step(layer, slots, noise, True)[2] for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


@BOTH
def test_a_stack_of_models_equals_each_alone(kind, launches):
    layer = make(kind, 16, 4, torch.float32, "cuda")
    slots = torch.randn(3, 50, 5, 16, device="cuda")
    noise = torch.rand(3, *layer.noise_shape(50, slots=5), device="cuda")

    def loss(slots, noise):
        return layer(slots, noise=noise).sin().sum()

    together = torch.vmap(torch.func.grad(loss))(slots, noise)
    together_launched = len(launches)
    for i in range(3):
        alone = torch.func.grad(loss)(slots[i], noise[i])
        torch.testing.assert_close(together[i], alone, rtol=1e-4, atol=1e-4)
    assert len(launches) == 4 * together_launched  # one model takes as many as all together


@BOTH
def test_a_step_never_waits_for_the_device(kind):
    layer = make(kind, 16, 4, torch.float32, "cuda", stages=2)
    slots = torch.randn(50, 5, 16, device="cuda", requires_grad=True)
    layer(slots).sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer(slots).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
