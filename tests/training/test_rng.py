"""Streams are independent of each other, and saved state brings back the same numbers."""

import random

import numpy as np
import torch

from nps.training import rng


def numbers() -> list[float]:
    legacy = np.random.rand(3)  # noqa: NPY002
    return [random.random(), random.gauss(0, 1), *legacy.tolist(), *torch.rand(3).tolist()]


def test_named_streams_differ_and_repeat():
    seeds = {rng.derive(s, name, i) for s in (0, 1) for name in ("order", "noise") for i in (0, 1)}
    assert len(seeds) == 8
    assert rng.derive(0, "order", 1) == rng.derive(0, "order", 1)
    assert rng.derive(1, "1") != rng.derive(11)


def test_restore_brings_back_every_generator():
    random.gauss(0, 1)  # leaves a cached second number, which must be restored exactly
    np.random.randn()  # noqa: NPY002
    state, tensors = rng.global_state()
    first = numbers()
    rng.restore_global(state, tensors)
    assert numbers() == first


def test_untouched_and_seeded_leave_no_trace():
    state, tensors = rng.global_state()
    first = numbers()
    rng.restore_global(state, tensors)
    with rng.untouched():
        numbers()
    with rng.seeded(3, "init"):
        torch.rand(5)
    assert numbers() == first
