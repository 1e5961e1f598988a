"""Sprites-MOT (paper, section 4.3; Weis et al. 2021): coloured shapes that fly through the picture.

At most three at a time enter on one side, cross the picture straight, one in front of another, and
leave. They do not touch each other, so here no model of interactions can help; in a variant of ours
they bounce off one another.

`flying` has births, ways and deaths, `drawing` images and true segmentations. A video is a few
numbers a frame; images are drawn from it when needed, also inside a captured step.
"""

from nps.worlds.sprites.drawing import render
from nps.worlds.sprites.flying import COLOURS, SHAPES, Videos, make_videos

__all__ = ["COLOURS", "SHAPES", "Videos", "make_videos", "render"]
