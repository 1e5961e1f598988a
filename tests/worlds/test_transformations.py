"""The operations against scipy.ndimage, and what the training step asks of them."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from nps.worlds.transformations import EVERY_OPERATION, OPERATIONS, matrices, paste, transform

PIXELS = 64


def picture(seed: int = 0) -> torch.Tensor:
    """Smooth enough that interpolation is no matter of taste, and not black at the border."""
    noise = np.random.default_rng(seed).random((PIXELS, PIXELS))
    return torch.from_numpy(ndimage.gaussian_filter(noise, 1.0)).float()


def by_scipy(image: np.ndarray, name: str, rotation: float, shift: float) -> np.ndarray:
    """In pixels, rows before columns, about the centre: scipy's way of saying the same."""
    how = {"order": 1, "mode": "nearest"}
    if name == "flip":
        return image[:, ::-1]
    if name.startswith("rotate"):
        angle = rotation if name == "rotate_left" else -rotation  # scipy turns to the left
        return ndimage.rotate(image, angle, reshape=False, **how)
    pixels = shift * PIXELS
    return ndimage.shift(image, (-pixels if name == "translate_up" else pixels, 0), **how)


@pytest.mark.parametrize(("rotation", "shift"), [(60.0, 0.2), (17.0, 0.33)])
@pytest.mark.parametrize("name", EVERY_OPERATION)
def test_each_operation_is_scipy_s(name, rotation, shift):
    image = picture()
    index = torch.tensor([EVERY_OPERATION.index(name)])
    ours = transform(image[None], index, matrices(rotation, shift))[0]
    theirs = by_scipy(image.numpy(), name, rotation, shift)
    np.testing.assert_allclose(ours.numpy(), theirs, atol=2e-5)


def test_right_is_clockwise_and_up_is_up():
    image = torch.zeros(1, PIXELS, PIXELS)
    image[0, 10:14, 30:34] = 1.0  # above the centre
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")

    def centre(operation: str) -> tuple[float, float]:
        index = torch.tensor([EVERY_OPERATION.index(operation)])
        moved = transform(image, index, matrices(90.0, 0.1))[0]
        return float((moved * rows).sum() / 16), float((moved * columns).sum() / 16)

    assert centre("rotate_right") == pytest.approx((31.5, 51.5), abs=1e-3)
    assert centre("rotate_left") == pytest.approx((31.5, 11.5), abs=1e-3)
    assert centre("translate_up") == pytest.approx((11.5 - 6.4, 31.5), abs=1e-3)
    assert centre("translate_down") == pytest.approx((11.5 + 6.4, 31.5), abs=1e-3)


def test_a_batch_of_different_operations_is_each_alone():
    images = torch.stack([picture(seed) for seed in range(5)])
    order = torch.tensor([3, 0, 4, 1, 2])
    together = transform(images, order, matrices())
    for image, operation, result in zip(images, order, together, strict=True):
        assert torch.equal(transform(image[None], operation[None], matrices())[0], result)


def test_half_precision_around_it_moves_nothing():
    image, index = picture()[None], torch.tensor([0])
    with torch.autocast("cpu", torch.bfloat16):
        ours = transform(image, index, matrices())
    assert torch.equal(ours, transform(image, index, matrices()))


def test_vmap_equals_a_loop():
    images = torch.stack([picture(seed) for seed in range(6)]).unflatten(0, (2, 3))
    order = torch.tensor([[0, 1, 2], [3, 4, 0]])
    table = matrices()
    stacked = torch.func.vmap(transform, in_dims=(0, 0, None))(images, order, table)
    for s in range(2):
        torch.testing.assert_close(stacked[s], transform(images[s], order[s], table))


def test_opposite_operations_undo_each_other_inside():
    image = picture()[None]
    inside = slice(20, 44)
    for one, other in (("rotate_right", "rotate_left"), ("translate_up", "translate_down")):
        there = transform(image, torch.tensor([OPERATIONS.index(one)]), matrices(90.0, 0.25))
        back = transform(there, torch.tensor([OPERATIONS.index(other)]), matrices(90.0, 0.25))
        torch.testing.assert_close(
            back[:, inside, inside], image[:, inside, inside], atol=1e-4, rtol=0
        )


def test_digits_are_pasted_in_the_middle():
    digits = torch.randint(256, (3, 28, 28), dtype=torch.uint8)
    squares = paste(digits)
    assert squares.shape == (3, 64, 64)
    assert squares.dtype == torch.float32
    assert torch.equal((squares[:, 18:46, 18:46] * 255).round().to(torch.uint8), digits)
    assert squares.sum().item() == pytest.approx(digits.sum().item() / 255, rel=1e-5)
    assert squares.max() <= 1.0
