"""FLOPs, launches and memory against formulas by hand."""

import pytest
import torch

from nps.bench.cases import Case
from nps.bench.counts import Counter, count
from nps.bench.works import ROLLOUT_STEPS, make_task

CPU = torch.device("cpu")
B, M, N, D, H, K = 6, 3, 4, 64, 128, 32
PAIRS, EDGES = B * M, B * M * (M - 1)


def counted(model, work):
    return count(make_task(Case(model, work, "eager", B, M, N), CPU), CPU)


def gnn(width):
    edge = 2 * D * width + width * width + width * width
    node = (D + width) * width + width * width + width * D
    return 2 * (EDGES * edge + PAIRS * node)


def lean(width):
    node = (D + width) * width + width * width + width * D
    return 2 * (EDGES * width**2 + PAIRS * (2 * D * width + width**2 + node))


# Query, key and value and the output of every slot; scores and mixture of every pair.
ATTENTION = 2 * (4 * PAIRS * D * D + 2 * PAIRS * M * D)
FORWARD = {
    "gnn-512": gnn(512),
    "gnn-128": gnn(128),
    "gnn-512-lean": lean(512),
    "attention": ATTENTION,
    "transformer": ATTENTION + 2 * PAIRS * 2 * D * 128,
}


@pytest.mark.parametrize("model", FORWARD)
def test_flops_of_dense_models_by_hand(model):
    forward = counted(model, "forward")
    assert forward.flops == FORWARD[model]
    assert counted(model, "rollout").flops == ROLLOUT_STEPS * forward.flops
    # A product's backward is two of the same size: one for the weights, one for what came in.
    assert counted(model, "step").flops == 3 * forward.flops


@pytest.mark.parametrize(("model", "stages"), [("sequential", 1), ("sequential-3", 3)])
def test_flops_of_a_sequential_step_by_hand(model, stages):
    action = 2 * D * H + H * D
    maps = N * D * K + N * K * D + D * K * D  # keys, rule map, bind map: once for all stages
    products = 3 * 2 * (maps + stages * (PAIRS * D * N + B * D * D))  # forward, and two backward
    every_rule = stages * 2 * N * B * action
    # The backward pass goes over the rows that chose a rule, up to the most chosen one's of each.
    rest = counted(model, "step").flops - products - every_rule
    rows, remainder = divmod(rest, 2 * 2 * action)
    assert remainder == 0
    assert stages * B <= rows <= stages * N * B


def test_three_stages_are_three_times_the_launches():
    one, three = counted("sequential", "step"), counted("sequential-3", "step")
    assert 2.5 * one.launches < three.launches < 3 * one.launches  # the maps are made once


def test_a_launch_computes_and_a_view_does_not():
    x = torch.ones(4, 4)
    with Counter() as counter:
        y = x.t().reshape(2, 8)[..., 1:]  # the reshape copies
        y = torch.empty(3), y + 1, y.add_(1)
    assert counter.launches == 3
    assert counter.flops == 0


def test_peak_memory_is_what_lives_at_once():
    x = torch.ones(1000)
    with Counter() as counter:
        y = x + 1  # 4000 bytes
        z = (y * 2) * 3  # and two more while the second product runs
        del y
        w = z + z  # y and the first product are gone
    assert counter.peak_bytes == 3 * 4000
    assert w.sum() == 24000


def test_a_step_keeps_its_activations():
    hidden_layers = EDGES * 512 * 4
    assert counted("gnn-512", "step").peak_bytes > 4 * hidden_layers
    assert counted("gnn-512", "forward").peak_bytes < 4 * hidden_layers


def test_counting_leaves_torch_as_it_was():
    assert torch.backends.mha.get_fastpath_enabled()
    counted("attention", "forward")
    assert torch.backends.mha.get_fastpath_enabled()
