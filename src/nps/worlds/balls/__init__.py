"""Bouncing balls (paper, section 4.2; the data of R-NEM, van Steenkiste et al. 2018).

Balls of two weights in a square box: they fly straight, bounce off the walls, and collide
elastically. A ball has one of four colours, which may repeat.

`dynamics` has the physics, `scenes` random scenes, `drawing` images and true segmentations. A scene
is a few numbers a frame; images are drawn from it when needed, also inside a captured step.
"""

from nps.worlds.balls.drawing import render
from nps.worlds.balls.dynamics import BOX, simulate
from nps.worlds.balls.scenes import COLOURS, PALETTE, Scenes, make_scenes

__all__ = ["BOX", "COLOURS", "PALETTE", "Scenes", "make_scenes", "render", "simulate"]
