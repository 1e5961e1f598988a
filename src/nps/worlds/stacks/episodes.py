"""Episodes of falling towers as tensors, from the file that `nps data stacks` makes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.worlds.made_file import MadeFile
from nps.worlds.stacks import file
from nps.worlds.stacks.making import HEIGHTS, Falls, Settings
from nps.worlds.stacks.raycast import Shapes

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64

FOLDER, NAME = "stacks", "stacks.npz"


class Episodes(NamedTuple):
    """The fields of `Falls`."""

    kind: Int64[Tensor, "E M"]
    size: Float32[Tensor, "E M 3"]
    colour: Int64[Tensor, "E M"]
    breaks: Int64[Tensor, "E"]
    position: Float32[Tensor, "E T M 3"]
    rotation: Float32[Tensor, "E T M 4"]
    touched: Bool[Tensor, "E T M M"]
    grounded: Bool[Tensor, "E T M"]

    @classmethod
    def of(cls, falls: Falls, device: torch.device | str = "cpu") -> Episodes:
        parts = (torch.from_numpy(part).to(device) for part in falls)
        return cls(*(part.long() if part.dtype == torch.uint8 else part for part in parts))

    def at(self, index: Tensor | slice) -> Episodes:
        """Some of the episodes."""
        return Episodes(*(part[index] for part in self))

    def turned(self, angle: Float32[Tensor, "E"]) -> Episodes:
        """The same falls, each turned around the upright axis of its lowest shape.

        Only the walls of the room know directions, and few shapes get that far.

        Args:
            angle: in radians, against the clock as seen from above.
        """
        angle = angle.view(-1, 1, 1)
        cos, sin = angle.cos(), angle.sin()
        axis = self.position[:, :1, :1, :2]
        x, y = (self.position[..., :2] - axis).unbind(-1)
        level = torch.stack([cos * x - sin * y, sin * x + cos * y], -1) + axis
        half, other = (angle / 2).cos(), (angle / 2).sin()  # a quaternion around the upright axis
        w, i, j, k = self.rotation.unbind(-1)
        turned = [half * w - other * k, half * i - other * j, half * j + other * i]
        return self._replace(
            position=torch.cat([level, self.position[..., 2:]], -1),
            rotation=torch.stack([*turned, half * k + other * w], -1),
        )

    def shapes(self, frame: int) -> Shapes:
        """The shapes of all episodes in one frame, to draw them."""
        return Shapes(self.kind, self.size, self.position[:, frame], self.rotation[:, frame])


def load(
    settings: Settings | None = None, device: torch.device | str = "cpu"
) -> dict[str, Episodes]:
    """The sets "train", "validation", "test" and "four", from the file in the folder NPS_DATA or in
    the user's cache.

    Args:
        settings: episodes in each set, and the seed; a file made with others is refused.
        device: where the episodes are.
    """
    _, found = made_file(settings or Settings()).find()
    return {name: Episodes.of(falls, device) for name, falls in found.items()}


def made_file(settings: Settings) -> MadeFile[dict[str, Falls]]:
    """Where the file is looked for."""
    flags = [
        f" --{name} {getattr(settings, name)}"
        for name in (*HEIGHTS, "seed")
        if getattr(settings, name) != getattr(Settings, name)
    ]
    command = f"nps data stacks{''.join(flags)}"
    unpack = partial(file.unpack, settings=settings)
    return MadeFile("falling towers", FOLDER, NAME, command, unpack)
