"""Pictures of roll-outs: the nearest image by brute force, what is right, and the picture of it."""

import pytest
import torch
from torch import Tensor, nn

from nps.inspect import figures
from nps.inspect.rollouts import PredictedImages, gallery, predict_images, rgb


class Adds(nn.Module):
    """Slots are the pixels; an action is added to all of them."""

    def encode(self, images: Tensor) -> Tensor:
        return images.float().flatten(1).unflatten(1, (2, -1))

    def rollout(self, slots: Tensor, actions: Tensor) -> Tensor:
        total = actions.cumsum(1)[..., None, None]
        return slots[:, None] + total


def noise(*shape: int, top: int = 40) -> Tensor:
    draw = torch.Generator().manual_seed(sum(shape))
    return torch.randint(top, shape, generator=draw, dtype=torch.uint8)


def test_the_nearest_image_is_that_of_a_loop():
    images, pool = noise(3, 5, 2, 2, 3), noise(1500, 2, 2, 3)
    actions = torch.randint(-3, 4, (3, 4))
    found = predict_images(Adds(), images, actions, pool)
    whole = [*pool, *images.flatten(0, 1)]
    for e in range(3):
        slots = images[e, 0].double()
        for t in range(4):
            slots = slots + actions[e, t]
            distances = [(slots - one.double()).square().sum().item() for one in whole]
            best = whole[distances.index(min(distances))]
            assert torch.equal(found.predicted[e, t], best)
            assert found.right[e, t] == torch.equal(best, images[e, t + 1])
    assert torch.equal(found.true, images)


def test_who_knows_what_comes_is_right():
    actions = torch.ones(2, 4, dtype=torch.long)
    images = noise(2, 1, 2, 2, 3) + torch.arange(5, dtype=torch.uint8).view(1, 5, 1, 1, 1)
    assert predict_images(Adds(), images, actions, noise(100, 2, 2, 3)).right.all()
    assert not predict_images(Adds(), images, 0 * actions, noise(100, 2, 2, 3)).right.any()


@pytest.mark.skipif(not figures.available(), reason="needs matplotlib")
def test_the_gallery_is_a_picture():
    images = noise(2, 4, 6, 6, 3)
    right = torch.tensor([[True, False, True]] * 2)
    drawn = gallery(PredictedImages(images, images[:, 1:], right), ["one", "two"])
    assert drawn.startswith(b"\x89PNG")
    all_right = gallery(PredictedImages(images, images[:, 1:], right | True), ["one", "two"])
    assert drawn != all_right


def test_stacks_of_frames_show_the_first_and_grey_ones_are_grey():
    stacked = noise(2, 3, 3, 6)
    assert (rgb(stacked) == stacked[..., :3].numpy()).all()
    grey = rgb(noise(2, 3, 3, 1))
    assert grey.shape == (2, 3, 3, 3)
    assert (grey[..., 0] == grey[..., 2]).all()
