"""Rollouts are the plain loop; captured ones too."""

import time

import pytest
import torch

import nps


def layer_of(kind: str, num_rules: int = 6) -> torch.nn.Module:
    torch.manual_seed(0)
    kinds = {"sequential": nps.SequentialNPS, "parallel": nps.ParallelNPS}
    layer = kinds[kind](16, num_rules, stages=2, hidden_dim=32)
    with torch.no_grad():
        layer.rules.weight_out.mul_(10.0)  # changes large enough to be seen
    return layer.eval()


@pytest.mark.parametrize("kind", ["sequential", "parallel"])
def test_equals_a_loop(kind):
    layer = layer_of(kind)
    slots = torch.randn(3, 5, 16)
    history = nps.rollout(layer, slots, 7)
    assert history.shape == (7, 3, 5, 16)
    for t in range(7):
        with torch.no_grad():
            slots = layer(slots)
        assert torch.equal(history[t], slots)


def test_inputs_go_to_their_steps():
    actions = torch.arange(4.0).view(4, 1, 1, 1)
    history = nps.rollout(lambda slots, a: slots + a, torch.zeros(2, 3, 1), 4, actions)
    assert history[:, 0, 0, 0].tolist() == [0.0, 1.0, 3.0, 6.0]


def test_start_is_left_alone_and_bad_input_is_reported():
    slots = torch.randn(2, 5, 16)
    before = slots.clone()
    nps.rollout(layer_of("sequential"), slots, 2)
    assert torch.equal(slots, before)
    with pytest.raises(ValueError, match="steps: got 0, expected at least 1"):
        nps.rollout(lambda x: x, slots, 0)
    with pytest.raises(ValueError, match=r"inputs: got shape \(3, 1\), expected 2 steps first"):
        nps.rollout(lambda x, a: x, slots, 2, torch.zeros(3, 1))


def test_a_rollout_prints_as_one_line_of_sizes():
    slots = torch.zeros(2, 7, 5, 16)
    _, trace = layer_of("sequential")(slots, return_trace=True)
    line = "Rollout(slots=(2, 7, 5, 16), true=(2, 7, 5, 16), trace=(2, 7, 2, 5), device=cpu)"
    assert repr(nps.Rollout(slots, slots, trace)) == line
    bare = "Rollout(slots=(2, 7, 5, 16), true=None, trace=None, device=cpu)"
    assert repr(nps.Rollout(slots, None, None)) == bare


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["sequential", "parallel"])
@pytest.mark.parametrize("num_rules", [1, 6, 64])
def test_captured_equals_eager_over_100_steps(kind, num_rules):
    # In float64: a capture may use other kernels, and over 100 steps the rounding of float32
    # tips a choice between two nearly equal scores.
    layer = layer_of(kind, num_rules).cuda().double()
    slots = torch.randn(64, 5, 16, device="cuda", dtype=torch.float64)
    captured = nps.rollout(layer, slots, 100)
    eager = nps.rollout(layer, slots, 100, capture=False)
    torch.testing.assert_close(captured, eager)
    assert not torch.equal(captured[0], captured[99])


@pytest.mark.gpu
def test_captured_is_faster():
    layer = layer_of("sequential").cuda()
    slots = torch.randn(64, 5, 16, device="cuda")
    seconds = {}
    for capture in (False, True, False, True):
        torch.cuda.synchronize()
        start = time.perf_counter()
        nps.rollout(layer, slots, 100, capture=capture)
        torch.cuda.synchronize()
        seconds[capture] = time.perf_counter() - start
    assert seconds[True] < 0.6 * seconds[False]
