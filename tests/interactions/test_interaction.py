"""The call that all interaction layers share: a masked slot is as good as absent."""

import pytest
import torch

from nps import ParallelNPS, SequentialNPS
from nps.interactions import GNN, Attention, Pairwise, TransformerLayer

D, M = 8, 5
LAYERS = {
    "sequential": lambda: SequentialNPS(D, 3, stages=2),
    "parallel": lambda: ParallelNPS(D, 3, stages=2),
    "gnn": lambda: GNN(D, hidden_dim=16),
    "gnn-per-edge": lambda: GNN(D, hidden_dim=16, lean=False),
    "pairwise": lambda: Pairwise(D),
    "attention": lambda: Attention(D, heads=2),
    "transformer": lambda: TransformerLayer(D, heads=2, hidden_dim=16),
}
ALL = pytest.mark.parametrize("name", LAYERS)


def make(name):
    torch.manual_seed(0)
    return LAYERS[name]().eval()


def masks(*lead):
    """Random masks, with one slot left at least."""
    mask = torch.rand(*lead, M) < 0.6
    mask[..., 2] = True
    return mask


@ALL
def test_the_others_do_as_if_a_masked_slot_were_absent(name):
    layer, slots, mask = make(name), torch.randn(40, M, D), masks(40)
    new = layer(slots, slot_mask=mask)
    for row, kept, result in zip(slots, mask, new, strict=True):
        torch.testing.assert_close(result[kept], layer(row[kept]))


@ALL
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -0.0])
def test_a_masked_slot_is_returned_as_it_is_whatever_it_holds(name, value):
    layer, slots, mask = make(name), torch.randn(7, M, D), masks(7)
    expected = layer(slots, slot_mask=mask)
    slots[~mask] = value
    new = layer(slots, slot_mask=mask)
    assert torch.equal(new[mask], expected[mask])
    assert new[~mask].view(torch.int32).equal(slots[~mask].view(torch.int32))


@ALL
def test_a_mask_of_ones_changes_nothing(name):
    layer, slots = make(name), torch.randn(2, 3, M, D)
    masked = layer(slots, slot_mask=torch.ones(2, 3, M, dtype=torch.bool))
    torch.testing.assert_close(masked, layer(slots))


@ALL
def test_equivariant_to_the_order_of_masked_slots(name):
    layer, slots, mask = make(name), torch.randn(6, M, D), masks(6)
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = layer(slots[:, order], slot_mask=mask[:, order])
    torch.testing.assert_close(moved, layer(slots, slot_mask=mask)[:, order])


@ALL
def test_nothing_happens_where_all_slots_are_masked(name):
    layer, mask = make(name).train(), masks(4)
    mask[1] = False
    slots = torch.randn(4, M, D, requires_grad=True)
    new = layer(slots, slot_mask=mask)
    assert torch.equal(new[1], slots[1])
    gradients = torch.autograd.grad(
        new.square().sum(), [slots, *layer.parameters()], allow_unused=True
    )
    assert all(g is None or g.isfinite().all() for g in gradients)


@ALL
def test_wrong_masks_are_one_line(name):
    layer, slots = make(name), torch.randn(2, M, D)
    for mask in (torch.ones(2, M), torch.ones(M, dtype=torch.bool), [True] * M):
        with pytest.raises(ValueError, match=r"^slot_mask: got .*, expected .*$"):
            layer(slots, slot_mask=mask)


def test_the_gnn_takes_actions_beside_a_mask():
    torch.manual_seed(0)
    layer = GNN(D, hidden_dim=16, action_dim=3)
    slots, action, mask = torch.randn(9, M, D), torch.randn(9, M, 3), masks(9)
    new = layer(slots, action, slot_mask=mask)
    for row, own, kept, result in zip(slots, action, mask, new, strict=True):
        torch.testing.assert_close(result[kept], layer(row[kept], own[kept]))
