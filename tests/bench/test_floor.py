"""The floor is arithmetic; the probes give rates of a real machine."""

import pytest
import torch

from nps.bench.floor import Machine, floor_bytes, floor_seconds, probe
from nps.bench.measure import Row, with_floor

MACHINE = Machine(flops_per_second=1e9, bytes_per_second=1e8, launch_seconds=1e-6)


def row(**values):
    size = {"batch": 2, "slots": 3, "rules": 4}
    return Row("centre", "sequential", "step", "eager", **{**size, **values})


def test_bytes_are_moved_once():
    assert floor_bytes("forward", 1000, 50) == 4 * (1000 + 50 + 50)
    assert floor_bytes("rollout", 1000, 50) == floor_bytes("forward", 1000, 50)
    assert floor_bytes("step", 1000, 50) == 4 * (1000 + 1000 + 50 + 50 + 50 + 50)


def test_the_longer_of_computing_and_moving():
    assert floor_seconds(MACHINE, flops=2 * 10**9, moved=10**6) == 2.0
    assert floor_seconds(MACHINE, flops=10**6, moved=3 * 10**8) == 3.0


def test_distance():
    done = with_floor(row(ms=8.0, flops=2 * 10**6, floor_bytes=10, launches=500), MACHINE)
    assert done.floor_ms == pytest.approx(2.0)
    assert done.distance == pytest.approx(4.0)
    assert done.launch_floor_ms == pytest.approx(0.5)
    without = Machine(1e9, 1e8)
    assert with_floor(done, without).launch_floor_ms is None
    left_out = row(skipped="too slow")
    assert with_floor(left_out, MACHINE) == left_out


def test_probes_are_of_this_world():
    machine = probe(torch.device("cpu"))
    assert 1e8 < machine.flops_per_second < 1e14
    assert 1e7 < machine.bytes_per_second < 1e13
    assert machine.launch_seconds is None
