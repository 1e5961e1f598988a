"""Patches: pasted where slots are, moved with them, and as a plain loop draws them."""

import math

import pytest
import torch

from nps.perception.frames import WINDOW
from nps.perception.patches import PATCH, REACH, PatchDecoder

SIZE, EXTENT = 32, 0.25


@pytest.fixture
def decoder():
    torch.manual_seed(0)
    made = PatchDecoder(7, SIZE, 4, extent=EXTENT)
    torch.nn.init.normal_(made.background)
    return made


def all_of(slots):
    return torch.ones(slots.shape[:2], dtype=torch.bool)


def test_patches_written_out(decoder):
    """Mask logits by linear interpolation between the four nearest cells."""
    slots = torch.randn(1, 2, 7)
    slots[..., :2] = torch.tensor([[0.3, -0.2], [-0.9, 0.5]])
    with torch.no_grad():
        drawn = decoder(slots, all_of(slots))
        cells = decoder.cells(slots[0, :, 2:]).view(2, 4, 4, 4).permute(0, 3, 1, 2)
        patches = decoder.layers(cells)[:, 0]
        colours = [*decoder.colour(slots[0, :, 2:]), decoder.background]
    floor = WINDOW * (1 - 2 * (REACH * (1 - 1 / PATCH)) ** 2)
    for row, column in ((13, 21), (12, 16), (24, 1), (0, 0), (14, 20)):
        logits = []
        for m in range(2):
            at = []
            for pixel, place in zip((column, row), slots[0, m, :2].tolist(), strict=True):
                centre = (pixel + 0.5) * 2 / SIZE - 1
                at.append(((centre - place) / (REACH * EXTENT) + 1) * PATCH / 2 - 0.5)
            value = floor
            for i in range(PATCH):
                for j in range(PATCH):
                    weight = max(0, 1 - abs(at[1] - i)) * max(0, 1 - abs(at[0] - j))
                    away = sum((REACH * ((k + 0.5) * 2 / PATCH - 1)) ** 2 for k in (i, j))
                    cell = patches[m, i, j].item() + WINDOW * (1 - away)
                    value += weight * (cell - floor)
            logits.append(value)
        logits.append(0.0)
        total = sum(map(math.exp, logits))
        expected = sum(math.exp(x) / total * c for x, c in zip(logits, colours, strict=True))
        torch.testing.assert_close(drawn.images[0, :, row, column], expected, rtol=1e-4, atol=1e-5)
        share = [math.exp(x) / total for x in logits]
        torch.testing.assert_close(
            drawn.masks[0, :, row, column], torch.tensor(share), rtol=1e-4, atol=1e-5
        )


def test_a_slot_that_moves_takes_its_patch_along(decoder):
    slots = torch.randn(1, 1, 7)
    slots[..., :2] = 0.0
    there = slots.clone()
    there[..., 0] += 3 * 2 / SIZE
    here, moved = (decoder(x, all_of(x)).masks[0, 0] for x in (slots, there))
    torch.testing.assert_close(moved[:, 3:], here[:, :-3])


def test_who_is_not_there_draws_nothing(decoder):
    slots = torch.randn(2, 3, 7).clamp(-1, 1)
    present = torch.tensor([[True, False, True], [False, False, False]])
    drawn = decoder(slots, present)
    assert (drawn.masks[:, :3][~present] == 0).all()
    assert (drawn.masks[1, 3] == 1).all()
    alone = decoder(slots[:1, [0, 2]], all_of(slots[:1, :2]))
    torch.testing.assert_close(drawn.images[:1], alone.images)
    drawn.images.sum().backward()
    assert all(p.grad.isfinite().all() for p in decoder.parameters())


def test_the_picture_tells_where_a_slot_should_be(decoder):
    slots = torch.randn(1, 1, 7).clamp(-0.5, 0.5).requires_grad_()
    decoder(slots, all_of(slots)).images.square().sum().backward()
    assert (slots.grad[0, 0, :2].abs() > 0).all()
