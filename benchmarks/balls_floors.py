"""What anyone gets without a model on the test scenes of the published runs of bouncing balls.

    python benchmarks/balls_floors.py results/balls/floors.json

Takes half a minute on a CPU. Runs are tested beside these floors as well; the file is for runs that
were tested before a floor was added.
"""

import sys
from pathlib import Path

import torch

from nps.experiments.balls import BallsTask, Config
from nps.experiments.balls.evaluation import Part
from nps.experiments.balls.floors import all_floors
from nps.experiments.balls.task import of_both_kinds
from nps.files import write_json


def floors_of(task: BallsTask, part: Part) -> dict[str, torch.Tensor]:
    images, labels = task.draw_frames(part.scenes)
    found = all_floors(part.scenes, images, labels, task.config.seen_frames, task.closeness)
    return {**found, "transfer": torch.full((len(images),), float(part.transfer))}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    task = BallsTask(Config(), torch.device("cpu"))
    parts = [floors_of(task, part) for part in task.batches("test")]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    write_json(Path(sys.argv[1]), of_both_kinds(joined))
