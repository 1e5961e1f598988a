"""On a GPU: sparse evaluation equals the dense form, is captured, and costs the same for all N."""

import pytest
import torch

from nps import ConvRules, ParallelNPS, SequentialNPS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])


def make(kind, n, *, slot_dim=64, convolutional=False, **options):
    torch.manual_seed(0)
    rules = ConvRules(n, slot_dim, hidden_dim=16) if convolutional else None
    return kind(slot_dim, n, rules=rules, **options).cuda().eval()


def rollout(layer, slots, steps=100):
    with torch.no_grad():
        for _ in range(steps):
            slots = layer(slots)
    return slots


def capture(layer, slots):
    """A graph of a rollout and the tensor it writes. Any read of the device would fail here."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        rollout(layer, slots, 3)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        new = rollout(layer, slots)
    return graph, new


@BOTH
@pytest.mark.parametrize("n", [1, 4, 64])
@pytest.mark.parametrize("slot_dim", [3, 64])
@pytest.mark.parametrize("batch", [1, 200, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_equal_the_dense_form(kind, n, slot_dim, batch, dtype):
    layer = make(kind, n, slot_dim=slot_dim, stages=2).to(dtype)
    slots = torch.randn(batch, 5, slot_dim, device="cuda", dtype=dtype)
    mask = torch.rand(batch, 5, device="cuda") < 0.8
    with torch.no_grad():
        new = layer(slots, slot_mask=mask)
    torch.testing.assert_close(new, layer(slots, slot_mask=mask).detach(), rtol=1e-4, atol=1e-4)


@BOTH
def test_autocast_equals_the_dense_form(kind):
    layer = make(kind, 10)
    slots = torch.randn(200, 5, 64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        with torch.no_grad():
            new = layer(slots)
        expected = layer(slots).detach()
    torch.testing.assert_close(new, expected, rtol=1e-2, atol=2e-2)


@BOTH
def test_a_rule_that_does_not_fire_reaches_no_result(kind):
    layer = make(kind, 8)
    slots = torch.randn(200, 5, 64, device="cuda")
    with torch.no_grad(), layer.rules.disabled(2), layer.rules.disabled(7):
        new = layer(slots)
        for name in ("weight_in", "bias_in", "weight_out", "bias_out"):
            getattr(layer.rules, name)[[2, 7]] = float("nan")
        assert torch.equal(layer(slots), new)


@BOTH
@pytest.mark.parametrize("convolutional", [False, True], ids=["mlp", "conv"])
def test_a_captured_rollout_equals_an_eager_one(kind, convolutional):
    layer = make(kind, 10, slot_dim=16, convolutional=convolutional)
    shape = (32, 5, 16, *((6, 6) if convolutional else ()))
    slots = torch.randn(shape, device="cuda")
    graph, new = capture(layer, slots)
    for _ in range(2):  # again with other slots: the graph holds no choice of the capture
        slots.copy_(torch.randn(shape, device="cuda"))
        graph.replay()
        torch.testing.assert_close(new, rollout(layer, slots), rtol=1e-4, atol=1e-4)


@BOTH
def test_the_time_of_a_captured_rollout_does_not_grow_with_the_rules(kind):
    slots = torch.randn(1024, 5, 64, device="cuda")
    graphs = {n: capture(make(kind, n), slots) for n in (4, 64)}

    def time(graph):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    times = {n: [] for n in graphs}
    for _ in range(10):
        for n, (graph, _) in graphs.items():
            times[n].append(time(graph))
    few, many = min(times[4]), min(times[64])
    print(f"{kind.__name__}: 100 steps, N=4 {few:.2f} ms, N=64 {many:.2f} ms")
    assert many <= 1.5 * few


@BOTH
def test_eager_evaluation_never_waits_for_the_device(kind):
    layer = make(kind, 10, stages=2)
    slots = torch.randn(64, 5, 64, device="cuda")
    rollout(layer, slots, 2)
    torch.cuda.set_sync_debug_mode("error")
    try:
        rollout(layer, slots, 2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
