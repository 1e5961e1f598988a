"""Encoder and decoder of digits, against the table of the appendix written out plainly."""

import torch
from torch import nn
from torch.nn import functional as F

from nps.perception.digits import DigitDecoder, DigitEncoder


def test_the_encoder_is_the_table():
    torch.manual_seed(0)
    encoder = DigitEncoder(100)
    image = torch.rand(2, 64, 64)
    x = image[:, None]
    for convolution, size in zip(encoder.convolutions, (31, 14, 6), strict=True):
        x = F.elu(F.conv2d(x, convolution.weight, convolution.bias, stride=2))
        assert x.shape[-1] == size
        x = (x - x.mean((1, 2, 3), keepdim=True)) / (
            x.var((1, 2, 3), keepdim=True, correction=0) + 1e-5
        ).sqrt()
    x = F.elu(F.linear(x.flatten(1), encoder.linear.weight, encoder.linear.bias))
    x = (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(encoder(image), x, atol=1e-5, rtol=1e-4)


def test_the_decoder_is_the_table():
    torch.manual_seed(0)
    decoder = DigitDecoder(100)
    plain = nn.Sequential(
        nn.Sigmoid(),
        nn.LayerNorm(100, elementwise_affine=False),
        nn.Linear(100, 4096),
        nn.ReLU(),
        nn.LayerNorm(4096, elementwise_affine=False),
        nn.Unflatten(1, (64, 8, 8)),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ReplicationPad2d(2),
        nn.Conv2d(64, 32, 4),
        nn.ReLU(),
        nn.LayerNorm([32, 17, 17], elementwise_affine=False),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ReplicationPad2d(1),
        nn.Conv2d(32, 16, 4),
        nn.ReLU(),
        nn.LayerNorm([16, 33, 33], elementwise_affine=False),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(16, 1, 3),
    )
    pairs = zip((2, 8, 13, 17), (decoder.linear, *decoder.inner, decoder.last), strict=True)
    for place, layer in pairs:
        plain[place].weight.data, plain[place].bias.data = layer.weight.data, layer.bias.data
    slot = torch.randn(2, 100)
    torch.testing.assert_close(decoder(slot), plain(slot).squeeze(1), atol=1e-5, rtol=1e-4)
