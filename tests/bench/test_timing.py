"""Rounds alternate, bursts fill their time, the median is returned."""

import time

import torch

from nps.bench import timing

CPU = torch.device("cpu")


def test_rounds_alternate(monkeypatch):
    order = []
    monkeypatch.setattr(timing, "burst_size", lambda call, device, seconds: 2)
    calls = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = timing.alternate(calls, CPU, rounds=3)
    assert "".join(order) == "aabb" * 3
    assert times.keys() == {"a", "b"}


def test_the_median_of_the_rounds(monkeypatch):
    seconds = iter([0.004, 0.001, 0.002])
    monkeypatch.setattr(timing, "burst_size", lambda call, device, seconds: 1)
    monkeypatch.setattr(timing, "burst", lambda call, count, device: next(seconds))
    times = timing.alternate({"a": lambda: None}, CPU, rounds=3)["a"]
    assert times == (2.0, 1.0, 4.0)


def test_a_burst_is_per_call():
    assert 0.002 <= timing.burst(lambda: time.sleep(0.002), 3, CPU) < 0.2
    assert timing.burst_size(lambda: time.sleep(0.02), CPU, 0.01) == 1
    assert timing.burst_size(lambda: None, CPU, 0.01) > 10
