"""Named streams are independent of each other, and leave no trace."""

import torch

from nps.training import rng


def test_named_streams_differ_and_repeat():
    seeds = {rng.derive(s, name, i) for s in (0, 1) for name in ("order", "noise") for i in (0, 1)}
    assert len(seeds) == 8
    assert rng.derive(0, "order", 1) == rng.derive(0, "order", 1)
    assert rng.derive(1, "1") != rng.derive(11)


def test_a_seeded_block_leaves_the_global_generator_as_it_was():
    torch.manual_seed(1)
    first = torch.rand(3)
    torch.manual_seed(1)
    with rng.seeded(3, "init"):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), first)
    with rng.seeded(3, "init"):
        assert torch.equal(torch.rand(3), inside)


def test_the_global_generator_follows_a_named_stream():
    rng.seed_global(torch.device("cpu"), 3, "step", 7)
    first = torch.rand(3)
    torch.rand(100)
    rng.seed_global(torch.device("cpu"), 3, "step", 7)
    assert torch.equal(torch.rand(3), first)
    rng.seed_global(torch.device("cpu"), 3, "step", 8)
    assert not torch.equal(torch.rand(3), first)
