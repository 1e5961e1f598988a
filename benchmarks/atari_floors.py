"""What copying the input gets on each Atari game, in pixels.

python benchmarks/atari_floors.py OUT.json

Needs the games' files (`nps data atari`, or NPS_DATA) and no model.
"""

import sys
from pathlib import Path
from typing import get_args

import torch

from nps.experiments.atari import AtariTask, Config
from nps.files import write_json
from nps.worlds.atari_games import Name

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    games = get_args(Name)
    floors = {game: AtariTask(Config(game=game), torch.device("cpu")).copied for game in games}
    write_json(Path(sys.argv[1]), floors)
