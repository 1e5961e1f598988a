"""Images of the blocks against a loop over blocks and pixels."""

import numpy as np
import pytest
import torch

from nps.worlds.blocks import MODES, State, episodes, render, start
from nps.worlds.blocks.drawing import SHAPES, masks

DRAWN = {
    "circle": """
        ...........
        ...#####...
        ..#######..
        .#########.
        .#########.
        .#########.
        .#########.
        .#########.
        ..#######..
        ...#####...
        ...........""",
    "triangle": """
        .....#.....
        .....#.....
        ....###....
        ....###....
        ...#####...
        ...#####...
        ..#######..
        ..#######..
        .#########.
        .#########.
        ###########""",
    "square": "###########\n" * 11,
    "diamond": """
        .....#.....
        ....###....
        ...#####...
        ..#######..
        .#########.
        ###########
        .#########.
        ..#######..
        ...#####...
        ....###....
        .....#.....""",
    "cross": """
        ....###....
        ....###....
        ....###....
        ....###....
        ###########
        ###########
        ###########
        ....###....
        ....###....
        ....###....
        ....###....""",
    "pentagon": """
        .....#.....
        ....###....
        ...#####...
        ..#######..
        .#########.
        ###########
        .#########.
        .#########.
        ..#######..
        ..#######..
        ..#######..""",
}


def by_hand(state: State, world: int) -> np.ndarray:
    image = np.zeros((50, 50, 3), np.uint8)
    for m in range(state.weights.shape[1]):
        drawn = DRAWN[SHAPES[state.shapes[world, m]]].split()
        top, left = (10 * state.positions[world, m].long()).tolist()
        for row, line in enumerate(drawn):
            for column, dot in enumerate(line):
                if dot == "#" and top + row < 50 and left + column < 50:
                    image[top + row, left + column] = state.colours[world, m].numpy()
    return image


def test_the_shapes():
    for name, mask in zip(SHAPES, masks(), strict=True):
        lines = ["".join(".#"[dot] for dot in line) for line in mask.tolist()]
        assert lines == DRAWN[name].split(), name


@pytest.mark.parametrize("mode", MODES)
def test_images_are_those_of_a_loop(mode):
    state = start(12, mode, torch.Generator().manual_seed(1), objects=6)
    images = render(state)
    assert images.shape == (12, 50, 50, 3)
    assert images.dtype == torch.uint8
    for world in range(12):
        assert np.array_equal(images[world].numpy(), by_hand(state, world))


def test_every_block_is_seen_in_its_cell_and_the_rest_is_black():
    state = start(200, "unobserved-zero-shot-shape", torch.Generator().manual_seed(2))
    cells = render(state).unflatten(2, (5, 10)).unflatten(1, (5, 10)).transpose(2, 3)
    for world in range(200):
        taken = torch.zeros(5, 5, dtype=torch.bool)
        for m, (row, column) in enumerate(state.positions[world].tolist()):
            inner = cells[world, row, column, 1:, 1:]  # neighbours reach one pixel at most
            own = (inner == state.colours[world, m]).all(-1)
            assert own.sum() >= 30
            assert (inner[~own] == 0).all()
            taken[row, column] = True
        assert (cells[world, ~taken][:, 1:, 1:] == 0).all()


def test_the_later_block_is_on_top():
    squares = torch.full((1, 2), SHAPES.index("square"), dtype=torch.int8)
    colours = torch.tensor([[[255, 0, 0], [0, 255, 0]]], dtype=torch.uint8)
    weights = torch.zeros(1, 2, dtype=torch.int8)
    side = torch.tensor([[[1, 1], [1, 2]]], dtype=torch.int8)
    image = render(State(side, weights, squares, colours))[0]
    assert image[15, 20].tolist() == [0, 255, 0]
    image = render(State(side.flip(1), weights, squares, colours))[0]
    assert image[15, 20].tolist() == [0, 255, 0]  # reaches over to the earlier one
    assert image[15, 30].tolist() == [255, 0, 0]


def test_any_leading_dimensions():
    recorded = episodes(6, 4, seed=0)
    episode, t = torch.meshgrid(torch.arange(6), torch.arange(5), indexing="ij")
    folded = recorded.state(episode, t)
    images = render(folded)
    assert images.shape == (6, 5, 50, 50, 3)
    assert torch.equal(images[2, 3], render(recorded.state(2, 3)))
    assert torch.equal(torch.func.vmap(render)(folded), images)


@pytest.mark.gpu
def test_images_on_a_gpu():
    state = start(100, "unobserved-zero-shot-shape", torch.Generator().manual_seed(3))
    images = render(state.to("cuda"))
    assert images.is_cuda
    assert torch.equal(images.cpu(), render(state))
