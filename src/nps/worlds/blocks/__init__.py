"""The weighted blocks (paper, section 4.3 and appendix "Physics Environment"; Ke et al. 2021).

Blocks on a grid of 5 x 5; an action moves one of them, and a heavier block pushes a lighter one out
of its way. A colour stands for a weight, which the model must find out. C-SWM's "2D shapes" are the
same world with blocks of equal weight, where nothing pushes.

`dynamics` has the rules, `modes` what blocks look like and weigh, `drawing` the images, `recording`
the episodes. States are a few bytes a block, and images are drawn from them when they are needed.
"""

from nps.worlds.blocks.drawing import render
from nps.worlds.blocks.dynamics import Outcome, State, action_count, every_action, step
from nps.worlds.blocks.modes import MODES, start
from nps.worlds.blocks.recording import Episodes, episodes

__all__ = [
    "MODES",
    "Episodes",
    "Outcome",
    "State",
    "action_count",
    "episodes",
    "every_action",
    "render",
    "start",
    "step",
]
