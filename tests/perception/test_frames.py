"""Frames to features and slots to frames, against the same written out."""

import pytest
import torch
from torch.nn import functional as F

from nps.perception.frames import GRID, BroadcastDecoder, FrameEncoder, Shuffle


@pytest.mark.parametrize(("stride", "strides"), [(2, (2, 1, 1, 1)), (4, (2, 2, 1, 1))])
def test_the_encoder_written_out(stride, strides):
    torch.manual_seed(0)
    encoder = FrameEncoder(16, 8, stride=stride)
    frames = torch.randint(256, (3, 16, 16, 3), dtype=torch.uint8)
    x = frames.permute(0, 3, 1, 2) / 255
    for step, layer in zip(strides, encoder.convolutions, strict=True):
        x = F.conv2d(x, layer.weight, layer.bias, stride=step, padding=2).relu()
    side, expected = 16 // stride, []
    for row in range(side):
        for column in range(side):
            right, down = (2 * i / (side - 1) - 1 for i in (column, row))
            place = torch.tensor([right, down, -right, -down])
            pixel = encoder.norm(x[:, :, row, column] + encoder.place.linear(place))
            expected.append(encoder.out(encoder.hidden(pixel).relu()))
    torch.testing.assert_close(encoder(frames), torch.stack(expected, 1))


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("size", [16, 32, 64])
def test_slots_are_drawn_one_by_one_and_compete(background, size):
    torch.manual_seed(0)
    decoder = BroadcastDecoder(6, size, 8, background=background)
    if background:
        decoder.background.data = torch.tensor([0.1, 0.5, 0.9])
    slots = torch.randn(2, 3, 6)
    images, masks, disagreement = decoder(slots)
    assert images.shape == (2, 3, size, size)
    assert masks.shape == (2, 3 + background, size, size)
    for b in range(2):
        colours, logits = [], []
        for slot in slots[b]:
            grid = (slot + decoder.place()).T.reshape(1, 6, GRID, GRID)
            drawn = decoder.layers(grid)[0]
            colours.append(drawn[:3])
            logits.append(drawn[3])
        if background:
            colours.append(decoder.background[:, None, None].expand(3, size, size))
            logits.append(torch.zeros(size, size))
        share = torch.stack(logits).softmax(0)
        torch.testing.assert_close(masks[b], share)
        expected = sum(m * c for m, c in zip(share, colours, strict=True))
        torch.testing.assert_close(images[b], expected)
        apart = sum(m * (c - expected) ** 2 for m, c in zip(share, colours, strict=True)).sum(0)
        torch.testing.assert_close(disagreement[b], apart, rtol=1e-3, atol=1e-5)


def test_what_a_placed_slot_draws_moves_with_its_place():
    """By whole cells of the grid of 8, and away from the border, pixel by pixel."""
    torch.manual_seed(1)
    decoder = BroadcastDecoder(6, 32, 8, extent=0.3)
    slots = torch.randn(1, 2, 6)
    slots[..., :2] = torch.tensor([-0.2, 0.1])
    moved = slots.clone()
    moved[..., 0] += 0.5  # two cells to the right, 8 pixels
    moved[..., 1] -= 0.25  # one cell up, 4 pixels
    first, second = decoder(slots), decoder(moved)
    for one, other in zip(first, second, strict=True):
        here, there = one[..., 12:20, 8:16], other[..., 8:16, 16:24]
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-4)
        assert not torch.allclose(here, other[..., 12:20, 8:16], atol=1e-4)


def test_a_placed_slot_starts_as_a_spot_on_the_background():
    torch.manual_seed(2)
    decoder = BroadcastDecoder(6, 64, 8, extent=0.3)
    slots = torch.randn(1, 1, 6)
    slots[..., :2] = torch.tensor([0.5, -0.5])
    mask = decoder(slots).masks[0, 0] > 0.5
    rows, columns = mask.nonzero().float().T
    assert 0.5 * 4096 * 0.0707 < mask.sum() < 2 * 4096 * 0.0707  # a disc of radius 0.3
    assert abs(rows.mean() - 15.5) < 2
    assert abs(columns.mean() - 47.5) < 2


def test_every_parameter_learns():
    decoder = BroadcastDecoder(6, 32, 8)
    encoder = FrameEncoder(32, 8)
    images = decoder(torch.randn(2, 3, 6)).images
    features = encoder(torch.randint(256, (2, 32, 32, 3), dtype=torch.uint8))
    (images.square().sum() + features.square().sum()).backward()
    for module in (encoder, decoder):
        assert all(p.grad is not None and p.grad.any() for p in module.parameters())


@pytest.mark.parametrize("size", [8, 24, 63])
def test_sizes_that_cannot_be_doubled_to_are_refused(size):
    with pytest.raises(ValueError, match=f"size: got {size}"):
        BroadcastDecoder(6, size)


def test_frames_that_strides_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="size: got 30, expected a multiple of stride = 4"):
        FrameEncoder(30)
    with pytest.raises(ValueError, match="stride: got 3, expected 2 or 4"):
        FrameEncoder(30, stride=3)


def test_the_shuffle_is_that_of_torch_with_channels_last():
    x = torch.randn(2, 12, 4, 6).contiguous(memory_format=torch.channels_last)
    ours = Shuffle()(x)
    in_torchs_order = x.unflatten(1, (4, 3)).transpose(1, 2).flatten(1, 2)
    assert torch.equal(ours, torch.nn.functional.pixel_shuffle(in_torchs_order, 2))
    assert ours.is_contiguous(memory_format=torch.channels_last)


def test_all_layers_keep_channels_last():
    """What cuDNN is fast with; on a GPU, a layer that loses it doubles the time of a step."""
    layouts = []

    def watch(module, given, output):
        layouts.append(output.is_contiguous(memory_format=torch.channels_last))

    encoder, decoder = FrameEncoder(32, 8), BroadcastDecoder(6, 32, 8)
    for layer in (*encoder.convolutions, *decoder.layers):
        layer.register_forward_hook(watch)
    encoder(torch.randint(256, (2, 32, 32, 3), dtype=torch.uint8))
    decoder(torch.randn(2, 3, 6))
    assert len(layouts) > 6
    assert all(layouts)
