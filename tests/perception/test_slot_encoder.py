"""The paper's encoder: its layers by torch's own modules, and what a world model needs of it."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nps.capture import Captured
from nps.perception.slot_encoder import SlotEncoder
from nps.training.precision import autocast, set_precision
from nps.training.stack import Stack

SMALL = {"size": 8, "width": 6, "hidden_dim": 8}


def made(seed: int = 0, **options: object) -> SlotEncoder:
    torch.manual_seed(seed)
    return SlotEncoder(3, 4, **{**SMALL, **options})


def pictures(count: int, size: int = 8, width: int | None = None) -> Tensor:
    draw = torch.Generator().manual_seed(count)
    shape = (count, size, width or size, 3)
    return torch.randint(256, shape, generator=draw, dtype=torch.uint8)


def features_by_hand(model: SlotEncoder, images: Tensor) -> Tensor:
    """Channels first, the position embedding pixel by pixel, a normalisation with its numbers."""
    x = images.double().permute(0, 3, 1, 2) / 255
    for conv in model.convolutions:
        x = F.relu(F.conv2d(x, conv.weight, conv.bias, padding=1))
    height, width = model.size
    rows = []
    for row in range(height):
        for column in range(width):
            y, z = row / (height - 1), column / (width - 1)
            far_y, far_z = 1 - y, 1 - z
            place = model.place.linear(torch.tensor([y, z, far_y, far_z], dtype=torch.float64))
            rows.append(model.out(F.relu(model.hidden(model.norm(x[:, :, row, column] + place)))))
    return torch.stack(rows, 1)


@pytest.mark.parametrize("size", [(8, 8), (6, 9)])
def test_features_and_their_gradients_are_those_of_plain_layers(size):
    model, images = made(size=size).double(), pictures(2, *size).double() / 255
    for norm in (model.norm, model.attention.norm_features):
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    parameters = [p for name, p in model.named_parameters() if not name.startswith("attention")]
    ours, theirs = model.features(images), features_by_hand(model, images * 255)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(x.sin().sum(), parameters) for x in (ours, theirs)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)
    torch.testing.assert_close(model(images), model.attention(theirs))


@pytest.mark.parametrize("size", [(64, 96), (210, 160)])
def test_images_need_not_be_square(size):
    model, images = made(size=size), pictures(2, *size)
    maps = model.maps(images)
    assert maps.shape == (2, 3, *size)
    torch.testing.assert_close(maps.sum(1), torch.ones(2, *size))  # the slots share each pixel
    assert model(images).shape == (2, 3, 4)
    with pytest.raises(ValueError, match=f"expected \\(B, {size[0]}, {size[1]}, 3\\)"):
        model(images.transpose(1, 2))


def test_the_paper_s_sizes():
    model = SlotEncoder(5, 64)
    assert [tuple(conv.weight.shape) for conv in model.convolutions] == [
        (64, 3, 3, 3),
        *[(64, 64, 3, 3)] * 3,
    ]
    images = pictures(2, 50)
    assert model(images).shape == (2, 5, 64)
    maps = model.maps(images)
    assert maps.shape == (2, 5, 50, 50)
    torch.testing.assert_close(maps.sum(1), torch.ones(2, 50, 50))


def test_bytes_are_numbers_from_0_to_1():
    model, images = made(), pictures(3)
    torch.testing.assert_close(model(images), model(images.float() / 255))


def test_where_something_is_matters_and_starts_do_not_change():
    """A picture and the same one turned: other slots. The same one again: the same slots."""
    model, images = made().eval(), pictures(2)
    assert torch.equal(model(images), model(images.clone()))
    assert (model(images) - model(images.flip(1))).abs().max() > 1e-3


def test_a_stack_of_seeds_is_each_seed_alone():
    images = torch.stack([pictures(4), pictures(4).flip(0)])
    alone = [made(seed) for seed in (0, 1)]
    stack = Stack([made(seed) for seed in (0, 1)])
    slots = stack.each(lambda model, x: model(x), images)
    parts = stack.parts(stack.gradient(slots.square().sum((1, 2, 3))))
    for s, model in enumerate(alone):
        expected = model(images[s])
        torch.testing.assert_close(slots[s], expected, rtol=1e-4, atol=1e-5)
        gradient = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
        for part, other in zip(parts.values(), gradient, strict=True):
            torch.testing.assert_close(part[s], other, rtol=1e-3, atol=1e-4)
    saved = stack.state_dict(1, stack.vector, stack.constants)
    assert saved.keys() == alone[1].state_dict().keys()
    stack.load_state_dict(0, saved)


def test_under_autocast():
    model, images = made(), pictures(3)
    expected = model(images)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.features(images).dtype == torch.bfloat16
        slots = model(images)
    assert slots.dtype == torch.float32
    torch.testing.assert_close(slots, expected, rtol=0.1, atol=0.1)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bf16", 0.1)])
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_on_cuda_as_on_the_cpu(precision, tolerance, seeds):
    """The paper's sizes; slots and gradients of a stack, and of one model."""
    images, results = torch.stack([pictures(6, 50), pictures(6, 50).flip(0)][: len(seeds)]), []
    for device, kind in (("cpu", "float32"), ("cuda", precision)):
        set_precision(kind)
        models = []
        for seed in seeds:
            torch.manual_seed(seed)
            models.append(SlotEncoder(5, 64).to(device))
        stack = Stack(models)
        with autocast(torch.device(device), kind):
            slots = stack.each(lambda model, x: model(x), images.to(device))
        gradient = stack.gradient(slots.square().mean((1, 2, 3)))
        results.append([slots.detach().cpu(), gradient.cpu()])
    for theirs, ours in zip(*results, strict=True):
        assert (ours - theirs).norm() / theirs.norm() < tolerance


@pytest.mark.gpu
def test_gradients_repeat_bit_for_bit():
    set_precision("bf16")
    model, images = SlotEncoder(5, 64).cuda(), pictures(64, 50).cuda()
    found = []
    for _ in range(3):
        with autocast(torch.device("cuda"), "bf16"):
            loss = model(images).square().mean()
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], again, strict=True))


@pytest.mark.gpu
def test_captured():
    """Nothing is read on the host: a graph replays it, for new images too."""
    model, shown = made(size=50, width=64).cuda(), pictures(4, 50).cuda()
    held = torch.empty(4, 3, 4, device="cuda")

    def step() -> None:
        held.copy_(model(shown).detach())

    captured = Captured(step)
    for _ in range(5):
        captured()
    shown.copy_(shown.flip(0))
    captured()
    torch.testing.assert_close(held, model(shown).detach())


def test_bad_input():
    with pytest.raises(ValueError, match="width: got 0, expected at least 1"):
        made(width=0)
    with pytest.raises(
        ValueError, match=r"images: got shape \(2, 3, 8, 8\), expected \(B, 8, 8, 3"
    ):
        made()(torch.zeros(2, 3, 8, 8))
