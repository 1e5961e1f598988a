"""OP3's interaction, against a loop over pairs."""

import pytest
import torch

from nps.interactions import Pairwise


def test_against_a_loop_over_pairs():
    torch.manual_seed(0)
    layer, slots = Pairwise(6, effect_dim=3), torch.randn(2, 4, 6)
    new = layer(slots)
    elu = torch.nn.functional.elu
    for b in range(2):
        for i in range(4):
            total = torch.zeros(3)
            for j in range(4):
                if i != j:
                    both = torch.cat([slots[b, i], slots[b, j]])
                    pair = elu(layer.pair_out(elu(layer.pair_in(both))))
                    total = total + layer.attention(pair) * layer.effect(pair)
            expected = layer.merge(torch.cat([slots[b, i], total]))
            torch.testing.assert_close(new[b, i], expected)


def test_a_single_slot_has_no_effects():
    layer, slots = Pairwise(6), torch.randn(2, 1, 6)
    expected = layer.merge(torch.cat([slots, torch.zeros(2, 1, 32)], -1))
    torch.testing.assert_close(layer(slots), expected)


def test_op3s_number_of_parameters():
    count = sum(p.numel() for p in Pairwise(128).parameters())
    assert count == 65_792 + 32_896 + 20_640 + 16_641 + 37_120


@pytest.mark.parametrize(("name", "value"), [("slot_dim", 0), ("effect_dim", 0)])
def test_bad_sizes_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        Pairwise(**{"slot_dim": 4, name: value})
