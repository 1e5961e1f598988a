"""What blocks look like and weigh in each mode: the definitions, and matplotlib's colours."""

from math import comb

import pytest
import torch

from nps.worlds.blocks import MODES, start
from nps.worlds.blocks.palette import NEW, SET1, blues

COUNT = 3000


def begin(mode: str, seed: int = 0, objects: int = 5):
    return start(COUNT, mode, torch.Generator().manual_seed(seed), objects)


def place_in_set1(colours: torch.Tensor) -> torch.Tensor:
    """By hand, to compare with the weights."""
    names = [bytes(colour).hex() for colour in colours.flatten(0, -2).tolist()]
    places = [SET1.index(name) if name in SET1 else NEW[name] + 0.5 for name in names]
    return torch.tensor(places).view(colours.shape[:-1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("objects", [2, 3, 5, 6])
def test_every_mode_begins(mode, objects):
    state = start(7, mode, torch.Generator().manual_seed(0), objects)
    assert [tuple(part.shape) for part in state] == [
        (7, objects, 2),
        (7, objects),
        (7, objects),
        (7, objects, 3),
    ]
    types = [torch.int8, torch.int8, torch.int8, torch.uint8]
    assert [part.dtype for part in state] == types
    again = start(7, mode, torch.Generator().manual_seed(0), objects)
    assert all(torch.equal(a, b) for a, b in zip(state, again, strict=True))


def test_torch_s_own_generator():
    torch.manual_seed(1)
    state = start(9)
    torch.manual_seed(1)
    assert all(torch.equal(a, b) for a, b in zip(state, start(9), strict=True))
    assert not torch.equal(state.positions, start(9).positions)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "shapes"])
def test_weights_are_unique(mode):
    assert (begin(mode).weights.sort(-1).values.diff(dim=-1) > 0).all()


def test_all_cells_are_equally_likely():
    cell = begin("unobserved").positions.long()
    counts = torch.bincount((cell[..., 0] * 5 + cell[..., 1]).flatten(), minlength=25)
    expected = COUNT * 5 / 25
    assert ((counts - expected).abs() < 5 * expected**0.5).all()


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.startswith("observed")])
def test_darker_is_heavier(mode):
    state = begin(mode)
    assert torch.equal(state.weights[0], torch.tensor([5, 4, 3, 2, 1], dtype=torch.int8))
    brightness = state.colours.long().sum(-1)
    assert (brightness.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize(
    ("mode", "spread"),
    [("observed", 1 / 8), ("observed-test-1", 1 / 4), ("observed-test-3", 1 / 2)],
)
def test_shades_vary_around_even_steps(mode, spread):
    """Red falls with the shade, so that it bounds it: block i is 1 - i/4, give or take."""
    red = begin(mode).colours[..., 0].long()
    middle = 1 - torch.arange(5) / 4
    lowest, highest = ((middle + sign * spread / 4).clamp(0, 1) for sign in (-1, 1))
    assert (red <= blues(lowest)[:, 0].long() + 1).all()
    assert (red >= blues(highest)[:, 0].long() - 1).all()
    assert len(red[:, 2].unique()) > 2


def test_zero_shot_shades_are_anywhere():
    red = begin("observed-zero-shot").colours[..., 0].long()
    assert red[:, 0].max() > blues(torch.tensor(0.5))[0]  # the heaviest may be light
    assert red[:, 4].min() < blues(torch.tensor(0.5))[0]


def test_colours_are_matplotlib_s():
    maps = pytest.importorskip("matplotlib").colormaps
    shade = torch.linspace(0, 1, 200)
    theirs = torch.from_numpy(maps["Blues"](shade.numpy(), bytes=True)[:, :3].copy())
    assert (blues(shade).long() - theirs.long()).abs().max() <= 2
    levels = [tuple(round(255 * part) for part in colour) for colour in maps["Set1"].colors]
    assert [bytes(level).hex() for level in levels] == SET1
    third = [
        bytes(round(255 * part) for part in maps["Set3"].colors[place]).hex()
        for place in NEW.values()
    ]
    assert third == list(NEW)


@pytest.mark.parametrize("mode", ["unobserved", "unobserved-zero-shot-shape", "fixed-unobserved"])
def test_colours_are_sorted_and_are_the_weights(mode):
    state = begin(mode)
    place = place_in_set1(state.colours)
    assert torch.equal(state.weights.float(), 2 * place)
    assert (place.diff(dim=-1) > 0).all()
    assert set(place.flatten().tolist()) == set(range(9))
    palettes = {tuple(row) for row in place.tolist()}
    assert len(palettes) == 126  # all the choices of 5 out of 9


@pytest.mark.parametrize("new", [1, 2, 3])
@pytest.mark.parametrize("family", ["unobserved", "fixed-unobserved"])
def test_few_shots_bring_new_colours(family, new):
    state = begin(f"{family}-few-shot-{new}")
    place = place_in_set1(state.colours)
    assert torch.equal(state.weights.float(), 2 * place)
    fresh = place % 1 > 0
    assert set(place[fresh].tolist()) == {at + 0.5 for at in list(NEW.values())[:new]}
    assert (fresh.int().diff(dim=-1) >= 0).all()  # after the known ones
    expected = 1 - comb(9, 5) / comb(9 + new, 5)
    assert fresh.any(-1).float().mean().item() == pytest.approx(expected, abs=0.04)


def test_which_shapes():
    for mode in MODES:
        shapes = begin(mode).shapes
        if mode.startswith("fixed-unobserved"):
            assert (shapes == torch.arange(5)).all()
        elif mode in ("fixed-palette", "shapes"):
            assert (shapes == torch.tensor([0, 1, 2, 0, 1])).all()
        else:
            kinds = 6 if mode.endswith("zero-shot-shape") else 3
            counts = torch.bincount(shapes.flatten().long())
            expected = COUNT * 5 / kinds
            assert len(counts) == kinds
            assert ((counts - expected).abs() < 5 * expected**0.5).all()


def test_shape_and_weight_are_independent():
    """The paper: a model that ties the shape to the weight must lose."""
    state = begin("unobserved")
    shapes, weights = state.shapes.double().flatten(), state.weights.double().flatten()
    assert torch.corrcoef(torch.stack([shapes, weights]))[0, 1].abs() < 0.04


def test_a_fixed_palette_is_the_same_in_every_episode():
    for mode in ("fixed-palette", "shapes"):
        state = begin(mode)
        for part in (state.weights, state.shapes, state.colours):
            assert (part == part[:1]).all()
        assert torch.equal(place_in_set1(state.colours[:1]), torch.arange(5.0)[None])
    assert (begin("fixed-palette").weights[0].diff() > 0).all()
    assert (begin("shapes").weights == 0).all()
