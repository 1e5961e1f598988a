"""Falling towers (paper, section 4.2 "Shapes Stack"; the data of ShapeStacks and RPIN, made anew).

`towers` draws random towers, `physics` lets them fall in MuJoCo, `making` records episodes, and
`file` stores them as states. `raycast` and `drawing` make pictures of states, on any device, and
`labels` centres, boxes and masks. Only `physics` needs MuJoCo: a file of states can be carried to a
machine without it.
"""

from nps.worlds.stacks.drawing import render, segment
from nps.worlds.stacks.episodes import Episodes, load
from nps.worlds.stacks.labels import BOX, around, boxes, centres, masks, tight_boxes
from nps.worlds.stacks.making import Settings
from nps.worlds.stacks.raycast import Shapes
from nps.worlds.stacks.towers import KINDS, PALETTE

__all__ = [
    "BOX",
    "KINDS",
    "PALETTE",
    "Episodes",
    "Settings",
    "Shapes",
    "around",
    "boxes",
    "centres",
    "load",
    "masks",
    "render",
    "segment",
    "tight_boxes",
]
