"""RPIN's backbone and RoIAlign: sizes, and a plain loop over points."""

import math

import pytest
import torch

from nps.perception.hourglass import Hourglass, crop


def test_features_are_four_pixels_apart():
    images = torch.randint(256, (2, 64, 96, 3), dtype=torch.uint8)
    model = Hourglass(16)
    assert model(images).shape == (2, 16, 16, 24)


def test_numbers_added_to_a_channel_are_subtracted_again():
    """So that the biases of RPIN's backbone have no effect."""
    torch.manual_seed(0)
    images = torch.randint(256, (4, 32, 32, 3), dtype=torch.uint8)
    model = Hourglass(8).double()
    expected = model(images)
    for part in model.modules():
        if isinstance(part, torch.nn.Conv2d) and part.bias is None:
            part.bias = torch.nn.Parameter(torch.randn(part.out_channels).double())
    torch.testing.assert_close(model(images), expected)


def test_odd_sizes_survive_the_way_down_and_up():
    images = torch.zeros(1, 56, 56, 3, dtype=torch.uint8)
    assert Hourglass(8).eval()(images).shape == (1, 8, 14, 14)


def point(feature, row, column):
    """Interpolated as torchvision does."""
    height, width = len(feature), len(feature[0])
    if not (-1 <= row <= height and -1 <= column <= width):
        return 0.0
    row, column = (min(max(x, 0.0), n - 1.0) for x, n in ((row, height), (column, width)))
    i, j = min(int(row), height - 2), min(int(column), width - 2)
    a, b = row - i, column - j
    return (
        (1 - a) * (1 - b) * feature[i][j]
        + (1 - a) * b * feature[i][j + 1]
        + a * (1 - b) * feature[i + 1][j]
        + a * b * feature[i + 1][j + 1]
    )


@pytest.mark.parametrize(("size", "samples"), [(7, 2), (3, 1), (2, 3)])
def test_cropped_features_are_those_of_a_loop(size, samples):
    torch.manual_seed(0)
    features = torch.randn(2, 2, 8, 10)
    boxes = torch.tensor(
        [[[0.1, 0.2, 0.6, 0.9], [-0.37, -0.31, 0.51, 0.43]], [[0.71, 0.53, 1.43, 1.29]] * 2]
    )
    boxes[1, 1] = torch.tensor([0.5, 0.5, 0.52, 0.53])  # smaller than a feature: enlarged to one
    found = crop(features, boxes, size, samples)
    assert found.shape == (2, 2, 2, size, size)
    for b in range(2):
        for m in range(2):
            left, top, right, bottom = (
                x * n for x, n in zip(boxes[b, m].tolist(), (10, 8, 10, 8), strict=True)
            )
            wide, high = max(right - left, 1.0), max(bottom - top, 1.0)
            for c in range(2):
                feature = features[b, c].tolist()
                for i in range(size):
                    for j in range(size):
                        points = [
                            point(
                                feature,
                                top + high * (i + (k + 0.5) / samples) / size,
                                left + wide * (j + (n + 0.5) / samples) / size,
                            )
                            for k in range(samples)
                            for n in range(samples)
                        ]
                        mean = math.fsum(points) / len(points)
                        assert found[b, m, c, i, j].item() == pytest.approx(mean, abs=1e-4)


def test_crops_pass_gradients_on():
    features = torch.randn(1, 1, 6, 6, requires_grad=True)
    crop(features, torch.tensor([[[0.2, 0.2, 0.65, 0.65]]])).sum().backward()
    assert (features.grad[0, 0, 1:4, 1:4] > 0).all()
    assert (features.grad[0, 0, 5] == 0).all()


def test_cropped_features_are_those_of_torchvision():
    """Where it can be imported: not beside torch's builds for CPUs."""
    try:
        from torchvision.ops import roi_align
    except (ImportError, RuntimeError) as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    features, corners = torch.randn(2, 3, 14, 14), torch.rand(2, 4, 2) * 1.2 - 0.3
    boxes = torch.cat([corners, corners + 0.05 + 0.5 * torch.rand(2, 4, 2)], -1)
    edges = list(14 * boxes)
    expected = roi_align(features, edges, 7, sampling_ratio=2, aligned=False)
    torch.testing.assert_close(crop(features, boxes), expected.unflatten(0, (2, 4)))
