"""On a GPU: disabled rules are captured, and a generator is refused where a call is recomputed."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from nps import ParallelNPS, SequentialNPS, rollout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]
BOTH = pytest.mark.parametrize("kind", [SequentialNPS, ParallelNPS])


def make(kind, **options):
    torch.manual_seed(0)
    return kind(16, 4, device="cuda", **options)


@BOTH
def test_a_rollout_is_captured_without_disabled_rules(kind):
    layer = make(kind).eval()
    slots = torch.randn(50, 5, 16, device="cuda")
    with layer.rules.disabled(0, 2):
        captured = rollout(layer, slots, 8)
        plain = rollout(layer, slots, 8, capture=False)
    assert torch.equal(captured, plain)
    assert not torch.equal(captured, rollout(layer, slots, 8))


@BOTH
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_disabling_does_not_wait_for_the_device(kind, training):
    layer = make(kind).train(training)
    slots = torch.randn(50, 5, 16, device="cuda")
    with layer.rules.disabled(1):
        layer(slots)
        try:
            torch.cuda.set_sync_debug_mode("error")
            layer(slots, return_trace=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@BOTH
def test_code_compiled_into_cuda_graphs_follows_the_switches(kind):
    torch._dynamo.reset()
    layer = make(kind).eval()
    compiled = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    slots = torch.randn(50, 5, 16, device="cuda")
    for off in [(), (0,), (1,), (2, 3), ()] * 3:  # the third call of a form is replayed
        with torch.no_grad(), layer.rules.disabled(*off):
            torch.testing.assert_close(compiled(slots).clone(), layer(slots), rtol=1e-4, atol=1e-4)


@BOTH
@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
def test_a_generator_cannot_be_recomputed(kind, reentrant):
    layer, generator = make(kind), torch.Generator("cuda")
    slots = torch.randn(8, 5, 16, device="cuda", requires_grad=True)
    new = checkpoint(lambda x: layer(x, noise=generator), slots, use_reentrant=reentrant)
    with pytest.raises(RuntimeError, match=r"^noise: got a torch\.Generator inside"):
        new.sum().backward()


def test_parameters_are_made_on_the_device():
    layer = ParallelNPS(16, 4, query="mlp", device="cuda", dtype=torch.float64)
    assert all(x.is_cuda for x in [*layer.parameters(), *layer.buffers()])
    torch.manual_seed(0)
    layer.reset_parameters()
    torch.manual_seed(0)
    other = ParallelNPS(16, 4, query="mlp", device="cuda", dtype=torch.float64)
    for mine, its in zip(layer.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)
