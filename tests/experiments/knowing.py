"""A world model of blocks that sees and knows everything, without training."""

import torch
from torch import Tensor, nn

from nps.models.transitions import Transition
from nps.models.world_model import Actions, WorldModel
from nps.worlds.blocks import State, step
from nps.worlds.blocks.palette import first

SLOTS = 5


class Sees(nn.Module):
    """Slot m: row, column and weight of block m, found by its colour in the mode fixed-palette."""

    def maps(self, images: Tensor) -> Tensor:
        _, colours = first(1, SLOTS, torch.Generator())
        return (images[:, None] == colours[0][None, :, None, None]).all(-1).float()

    def forward(self, images: Tensor) -> Tensor:
        maps = self.maps(images)
        weight = torch.arange(SLOTS) * 2.0
        places = []
        for blocks in maps:
            rows = []
            for m, block in enumerate(blocks):
                # Most of a block's pixels lie in its cell, whatever overlaps it.
                pixels = block.view(5, 10, 5, 10).sum((1, 3))
                row, column = divmod(int(pixels.argmax()), 5)
                rows.append([row, column, float(weight[m]), 1.0])
            places.append(rows)
        return torch.tensor(places)


class Knows(Transition):
    """The rules of the world."""

    def forward(self, slots: Tensor, action: Tensor, noise: Tensor | None = None) -> Tensor:
        whole = slots.round().to(torch.int8)
        constant = torch.zeros(*slots.shape[:-1], 3, dtype=torch.uint8)
        state = State(whole[..., :2], whole[..., 2], constant[..., 0], constant)
        after, _ = step(state, action[..., 0, :].argmax(-1))
        moved = (after.positions - whole[..., :2]).float()
        return torch.cat([slots[..., :2] + moved, slots[..., 2:]], -1)


def knowing(transition: Transition | None = None) -> WorldModel:
    actions = Actions(25, SLOTS, "copied")
    return WorldModel(Sees(), transition or Knows(), actions).eval()
