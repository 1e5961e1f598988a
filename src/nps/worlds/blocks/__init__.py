"""The weighted blocks (paper, section 4.3 and appendix "Physics Environment"; Ke et al. 2021).

Blocks on a 5 x 5 grid; an action moves one of them, and a heavier block pushes a lighter one out of
its way. Colours stand for weights, which the model has to infer. C-SWM's "2D shapes" are the same
world with blocks of equal weight, where nothing is pushed.

`dynamics` has the rules, `modes` the appearance and weights of the blocks, `drawing` the images,
`recording` the episodes. A state is a few bytes per block; images are drawn from it when needed.
"""

from nps.worlds.blocks.drawing import render
from nps.worlds.blocks.dynamics import Outcome, State, action_count, every_action, step
from nps.worlds.blocks.modes import MODES, start
from nps.worlds.blocks.recording import BlockEpisodes, episodes

__all__ = [
    "MODES",
    "BlockEpisodes",
    "Outcome",
    "State",
    "action_count",
    "episodes",
    "every_action",
    "render",
    "start",
    "step",
]
