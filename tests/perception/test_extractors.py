"""C-SWM's extractors: sizes, parameters, and that a stack of seeds is what each seed is alone."""

import re

import pytest
import torch
from torch.nn import functional as F

from nps.perception.conv import XavierConv
from nps.perception.extractors import Norm, ObjectEncoder
from nps.training.precision import set_precision
from nps.training.stack import Stack

KINDS = {"small": 5, "medium": 10, "large": 50}


def numbers(count: int, *shape: int) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_range_of_the_maps(kind):
    model = ObjectEncoder(kind, 5, 2, hidden_dim=32, width=4)
    images = numbers(3, 50, 50, 3)
    maps = model.maps(images)
    assert maps.shape == (3, 5, KINDS[kind], KINDS[kind])
    assert maps.min() >= 0
    assert maps.max() <= 1
    assert model(images).shape == (3, 5, 2)


STEPS = {"small": 10, "medium": 5, "large": 1}


def plain_maps(model: ObjectEncoder, kind: str, images: torch.Tensor) -> torch.Tensor:
    """The maps by torch's own layers, of an image filled up with black to whole windows."""
    layers = list(model.extractor)[:-1]
    height, width = (-(-side // STEPS[kind]) * STEPS[kind] for side in images.shape[1:3])
    x = torch.zeros(len(images), images.shape[3], height, width)
    x[:, :, : images.shape[1], : images.shape[2]] = images.movedim(-1, 1)
    for layer in layers:
        if isinstance(layer, XavierConv):
            x = F.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding)
        elif isinstance(layer, Norm):
            statistics = layer.running_mean, layer.running_var
            x = F.batch_norm(x, *statistics, layer.weight, layer.bias)
            x = F.leaky_relu(x, layer.slope)
    return x.sigmoid()


@pytest.mark.parametrize("size", [(64, 96), (210, 160), (20, 50), (7, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_images_need_not_be_square(kind, size):
    torch.manual_seed(0)
    model = ObjectEncoder(kind, 3, 2, size=size, channels=2, hidden_dim=16, width=4)
    images = numbers(2, *size, 2)
    model(images)  # moves the running statistics
    with torch.no_grad():
        maps = model.eval().maps(images)
        torch.testing.assert_close(maps, plain_maps(model, kind, images), rtol=1e-4, atol=1e-5)
        rows = [model.encoder(maps[:, m].flatten(1)) for m in range(3)]
        torch.testing.assert_close(model(images), torch.stack(rows, 1), rtol=1e-4, atol=1e-5)
        turned = (images * 255).byte()
        torch.testing.assert_close(model(turned), model(turned / 255), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=f"expected \\(B, {size[0]}, {size[1]}, 2\\)"):
        model(images.transpose(1, 2))


def test_parameters_are_c_swm_s():
    """Small and medium, 0.29 M and 0.39 M, less the biases before a normalisation."""
    small, medium = ObjectEncoder("small", 5, 2), ObjectEncoder("medium", 5, 128)
    mlp = 512 * 513 + 2 * 512  # the middle layer and its norm
    counts = [sum(p.numel() for p in model.parameters()) for model in (small, medium)]
    patches = 300 * 32 + 64 + 32 * 5 + 5
    assert counts[0] == patches + 26 * 512 + mlp + 513 * 2
    assert counts[1] == 243 * 32 + 64 + 800 * 5 + 5 + 101 * 512 + mlp + 513 * 128
    assert [round(count / 1e6, 2) for count in counts] == [0.29, 0.39]


def test_saved_weights_keep_their_names():
    """With torch's layers one by one, as older runs have saved them."""
    norm, conv = torch.nn.BatchNorm2d(4), torch.nn.Conv2d
    layers = [conv(3, 4, 9, bias=False), norm, torch.nn.LeakyReLU(), conv(4, 5, 5)]
    before = torch.nn.Sequential(*layers).state_dict()
    model = ObjectEncoder("medium", 5, 2, hidden_dim=32, width=4)
    model.extractor.load_state_dict(before)
    assert list(model.extractor.state_dict()) == list(before)
    large = ObjectEncoder("large", 5, 2, hidden_dim=32, width=4).extractor
    assert [name for name in large.state_dict() if name.endswith(".weight")] == [
        f"{i}.weight" for i in (0, 1, 3, 4, 6, 7, 9)
    ]


def test_a_slot_sees_its_own_map_alone():
    model = ObjectEncoder("small", 3, 4, hidden_dim=32, width=4).eval()
    images = numbers(2, 50, 50, 3)
    with torch.no_grad():
        before = model(images)
        model.extractor[3].bias[1] += 1.0
        after = model(images)
    changed = (before != after).any(-1)
    assert changed.tolist() == [[False, True, False]] * 2


def test_contrast_is_blind_to_light_and_dark():
    """The negated last convolution gives 1 - map, and the same slots."""
    sizes = {"hidden_dim": 32, "width": 4}
    light, dark = (ObjectEncoder("small", 5, 3, **sizes, maps="contrast").eval() for _ in "ab")
    dark.load_state_dict(light.state_dict())
    last = dark.extractor[3]
    last.load_state_dict({name: -value for name, value in last.state_dict().items()})
    plain = ObjectEncoder("small", 5, 3, **sizes).eval()
    plain.load_state_dict(light.state_dict())
    images = numbers(6, 50, 50, 3)
    maps = plain.maps(images)
    torch.testing.assert_close(dark.extractor(images).permute(0, 3, 1, 2), 1 - maps)
    for model in (light, dark):
        torch.testing.assert_close(model.maps(images), (maps - maps.mean((2, 3), True)).abs())
    torch.testing.assert_close(dark(images), light(images), rtol=1e-3, atol=1e-4)
    assert (plain(images) - light(images)).abs().max() > 0.1


def test_contrast_waits_for_the_first_phase_of_a_training():
    model = ObjectEncoder("small", 5, 3, hidden_dim=32, width=4, maps="contrast")
    images = numbers(6, 50, 50, 3)
    with torch.no_grad():
        later = model.maps(images)
        model.without_contrast = True
        first = model.maps(images)
        torch.testing.assert_close(later, (first - first.mean((2, 3), True)).abs())
        tested = model.eval().maps(images)
    assert (tested.mean((2, 3)) < first.mean((2, 3))).all()
    assert later.mean() < 0.9 * first.mean()


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(10, 10, 0), (1, 1, 0), (3, 1, 1), (9, 1, 4)]
)
def test_convolutions_are_torch_s(kernel, stride, padding):
    image = numbers(2, 3, 20, 20)
    for bias in (True, False):
        conv = XavierConv(3, 4, kernel, stride=stride, padding=padding, bias=bias)
        if bias:
            torch.nn.init.normal_(conv.bias)
        expected = F.conv2d(image, conv.weight, conv.bias, stride, padding)
        ours = conv(image.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        torch.testing.assert_close(ours, expected)


def test_bytes_are_numbers_from_0_to_1():
    model = ObjectEncoder("small", 2, 2, hidden_dim=32, width=4).eval()
    images = (numbers(2, 50, 50, 3) * 255).byte()
    torch.testing.assert_close(model(images), model(images.float() / 255))


@pytest.mark.parametrize("size", [(50, 50), (32, 44)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_normalises_each_seed_by_itself(kind, size):
    """Outputs in training and evaluation, and the running statistics in between."""
    images = numbers(4, *size, 3)

    def made() -> list[ObjectEncoder]:
        models = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            models.append(ObjectEncoder(kind, 2, 3, size=size, hidden_dim=32, width=4))
        return models

    stack, alone = Stack(made()), made()
    both = torch.stack([images, images.square()])
    for _ in range(2):
        stacked = stack.each(lambda model, x: model(x), both)
        for s, model in enumerate(alone):
            torch.testing.assert_close(stacked[s], model(both[s]), rtol=1e-4, atol=1e-5)
    stack.model.eval()
    with torch.no_grad():
        stacked = stack.each(lambda model, x: model(x), both)
    for s, model in enumerate(alone):
        saved = stack.state_dict(s, stack.vector, stack.constants)
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(saved[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
        assert saved["extractor.1.num_batches_tracked"] == 2
        with torch.no_grad():
            torch.testing.assert_close(stacked[s], model.eval()(both[s]), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(50, 50), (64, 96)])
@pytest.mark.parametrize("kind", KINDS)
def test_on_cuda_as_on_the_cpu(kind, size):
    """Where a stack's convolutions run in kernels of their own: slots and gradients."""
    set_precision("float32")
    images, results = numbers(8, *size, 3), []
    for device in ("cpu", "cuda"):
        models = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            models.append(ObjectEncoder(kind, 5, 3, size=size).to(device))
        stack, both = Stack(models), torch.stack([images, images.square()]).to(device)
        slots = stack.each(lambda model, x: model(x), both)
        gradient = stack.gradient(slots.square().mean((1, 2, 3)))
        results.append([slots.detach().cpu(), gradient.cpu()])
    for ours, theirs in zip(*results, strict=True):
        assert (ours - theirs).norm() / theirs.norm() < 1e-3


def test_bad_input():
    with pytest.raises(ValueError, match="kind: got 'huge', expected one of small, medium, large"):
        ObjectEncoder("huge", 5, 2)
    with pytest.raises(ValueError, match="maps: got 'dark', expected one of sigmoid, contrast"):
        ObjectEncoder("small", 5, 2, maps="dark")
    for size in (0, (50, 0)):
        with pytest.raises(ValueError, match=re.escape(f"size: got {size}, expected at least 1")):
            ObjectEncoder("small", 5, 2, size=size)
    with pytest.raises(ValueError, match=r"images: got shape \(2, 3, 50, 50\), expected \(B, 50,"):
        ObjectEncoder("small", 5, 2)(torch.zeros(2, 3, 50, 50))
