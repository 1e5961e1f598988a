"""Refinement: the decoder without its first convolution, inputs, standardisation."""

import pytest
import torch

from nps.perception.refinement import BroadcastConvs, Refinement, Standardise


@pytest.mark.parametrize("size", [5, 6, 9])
def test_a_slot_in_every_pixel_is_convolved(size):
    """Also near the edge, and with its gradients."""
    torch.manual_seed(0)
    decoder, slots = BroadcastConvs(3, size, 4), torch.randn(2, 3, requires_grad=True)
    everywhere = slots[:, :, None, None].expand(-1, -1, size, size)
    places = decoder.coordinates.expand(2, -1, -1, -1)
    expected = decoder.layers(torch.cat([everywhere, places], 1))
    found = decoder(slots)
    torch.testing.assert_close(found, expected)
    inputs = [slots, *decoder.parameters()]
    weight = torch.randn_like(found)
    for a, b in zip(
        torch.autograd.grad((found * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_coordinates_go_from_the_upper_left_to_the_lower_right():
    places = BroadcastConvs(2, 7).coordinates[0]
    assert places[:, 0, 0].tolist() == [-1, -1]
    assert places[:, 0, -1].tolist() == [1, -1]
    assert places[:, -1, 0].tolist() == [-1, 1]


def test_a_picture_smaller_than_the_kernel_is_refused():
    with pytest.raises(ValueError, match="size: got 4"):
        BroadcastConvs(2, 4)


def test_refinement_is_convolutions_a_mean_and_an_lstm():
    torch.manual_seed(0)
    net = Refinement(4, 6, channels=3, hidden_dim=5)
    images, vectors = torch.randn(2, 15, 6, 6), torch.randn(2, 20)
    state = (torch.randn(2, 5), torch.randn(2, 5))
    mean, spread, (hidden, cell) = net(images, vectors, state)
    x = torch.cat([images, net.coordinates.expand(2, -1, -1, -1)], 1)
    for layer in (net.convs[0], net.convs[2], net.convs[4]):
        x = torch.nn.functional.elu(layer(x))
    seen = torch.nn.functional.elu(net.seen(x.flatten(2).mean(-1)))
    expected = net.lstm(torch.cat([seen, vectors], 1), state)
    torch.testing.assert_close((hidden, cell), expected)
    torch.testing.assert_close(mean, net.mean(hidden))
    torch.testing.assert_close(spread, net.spread(hidden))


def test_standardised_numbers():
    torch.manual_seed(0)
    x = 3 * torch.randn(4, 2, 5, 5) + 1
    norm = Standardise(2, uniform=True)
    assert ((norm.scale >= 0) & (norm.scale < 1)).all()
    norm.scale.data, norm.shift.data = torch.tensor([2.0, 3.0]), torch.tensor([0.5, -0.5])
    new = norm(x)
    for b in range(4):
        flat = x[b].flatten()
        for c in range(2):
            expected = (x[b, c] - flat.mean()) / flat.std() * (2.0 + c) + 0.5 - c
            torch.testing.assert_close(new[b, c], expected, rtol=1e-4, atol=1e-4)
    vectors = torch.randn(3, 8)
    rows = Standardise(8)(vectors)
    torch.testing.assert_close(rows.mean(1), torch.zeros(3), rtol=0, atol=1e-6)
    torch.testing.assert_close(rows.std(1), torch.ones(3), rtol=1e-4, atol=0)
