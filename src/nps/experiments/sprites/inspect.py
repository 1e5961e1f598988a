"""What `nps inspect` shows of a model of sprites: tracking, predictions, moving pictures."""

from __future__ import annotations

import torch

from nps.experiments.sprites.evaluation import summary
from nps.experiments.sprites.pictures import tracking_gif, tracking_picture
from nps.experiments.sprites.task import DRAWN_VIDEOS, SpritesTask
from nps.experiments.sprites.watching import AHEAD, as_floats, watch
from nps.inspect import figures
from nps.inspect.report import Figure, Part, Table
from nps.models.op3 import OP3
from nps.models.tracker import Tracker
from nps.training.log import png
from nps.worlds.sprites import render


@torch.no_grad()
def inspect_sprites(task: SpritesTask, model: OP3 | Tracker) -> list[Part]:
    """The first test videos: a table, and pictures of some of them."""
    part = next(iter(task.batches("test")))
    metrics = summary(task.measure(model, part))
    kinds = {"frames seen": "", **{f"{h} ahead": f"ahead{h}_" for h in AHEAD}}
    kinds |= {
        "colours alone": "colour_",
        **{f"what was there {h} before": f"copy{h}_" for h in AHEAD},
    }
    columns = {"MOTA": "mota", "MOTP": "motp", "Miss": "miss", "IDS": "switch"}
    columns |= {"FP": "false_positive"}
    rows = [
        [name, *(f"{metrics[f'{prefix}{metric}']:.1f}" for metric in columns.values())]
        for name, prefix in kinds.items()
    ]
    caption = f"{len(part.noise)} test videos (nps eval takes all of them), in per cent."
    report: list[Part] = [Table(["Masks", *columns], rows, caption)]
    some = part.first(DRAWN_VIDEOS)
    images = render(some.videos, size=task.config.size).images
    watched = watch(model, as_floats(images), some.noise, task.config)
    about = "true frames, what is drawn once they are seen, and the slots"
    report.append(Figure("tracking", png(tracking_picture(images, watched)), about))
    if figures.available():  # Pillow comes with matplotlib
        film = tracking_gif(images, watched)
        report.append(Figure("tracking", film, "the first video as a moving picture"))
    return report
