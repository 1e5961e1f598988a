"""A toy video task: a dot crosses 8 x 8 pictures, and a recurrent model predicts the next frame.

It has all that the small experiments have not: `nn.GRUCell` over time, convolutions, dropout and
`torch.randn` from torch's own generators, a validation in several batches, pictures; and its clips
come from any of the three sources.

As a program, it trains into a folder, slowly enough to be killed: python -m tests.training.video
FOLDER SOURCE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.training import rng
from nps.training.config import TrainConfig
from nps.training.data import Made, Resident, Streamed
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.task import Task

SOURCES = ("made", "resident", "streamed")
CLIPS, FRAMES, SIZE = 22, 4, 8
CONFIG = TrainConfig(
    epochs=4,
    batch_size=4,
    learning_rate=1e-2,
    final_learning_rate=1e-3,
    warmup_steps=6,
    weight_decay=0.01,
    clip_norm=1.0,
    ema_decay=0.9,
    validate_every=2,
)
STEPS = 4 * 5


def render(states: Tensor) -> Tensor:
    """From (B, 4), positions and velocities, to clips (B, T, 8, 8) of a soft dot."""
    time_ = torch.arange(FRAMES, device=states.device)[:, None]
    centre = states[:, None, :2] + states[:, None, 2:] * time_
    grid = torch.arange(SIZE, device=states.device)
    y, x = ((grid - centre[..., i, None]).square() for i in (0, 1))
    return (-(y[..., :, None] + x[..., None, :]) / 2).exp()


class Predictor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 16)
        )
        self.cell = nn.GRUCell(16, 16)
        self.dropout = nn.Dropout(0.2)
        self.decode = nn.Sequential(
            nn.Linear(16, 64),
            nn.Unflatten(1, (4, 4, 4)),
            nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1),
        )

    def forward(self, clips: Tensor) -> Tensor:
        """The predictions of frames 1 to T, as logits."""
        hidden = clips.new_zeros(len(clips), 16)
        drawn = []
        for frame in clips.unbind(1)[:-1]:
            hidden = self.cell(self.encode(frame.unsqueeze(1)), hidden)
            noisy = hidden + 0.1 * torch.randn_like(hidden) if self.training else hidden
            drawn.append(self.decode(self.dropout(noisy)))
        return torch.cat(drawn, 1)


class VideoTask(Task):
    """Not stackable: a model is an ordinary module."""

    def __init__(self, source: str, device: str = "cpu", pause: float = 0.0) -> None:
        self.config, self.device, self.pause = CONFIG, torch.device(device), pause
        draw = torch.Generator().manual_seed(7)
        states = torch.rand(CLIPS + 10, 4, generator=draw)
        states = torch.cat([2 + 3 * states[:, :2], 2 * states[:, 2:] - 1], 1)
        states, self.held_out = states[:CLIPS].to(device), states[CLIPS:].to(device)
        self.reads: list[list[int]] = []
        on_host = render(states).cpu()

        def read(indices: list[int]) -> dict[str, Tensor]:
            self.reads.append(list(indices))
            return {"frames": on_host[list(indices)]}

        self.data = {
            "made": lambda: Made(CLIPS, lambda index: {"frames": render(states[index])}),
            "resident": lambda: Resident({"frames": on_host.to(device)}),
            "streamed": lambda: Streamed(CLIPS, read),
        }[source]()

    def make_model(self, seed):
        with rng.seeded(seed, "init"):
            return Predictor().to(self.device)

    def loss(self, model, batch):
        time.sleep(self.pause)
        clips = batch.data["frames"]
        logits = model(clips)
        error = F.binary_cross_entropy_with_logits(logits, clips[:, 1:])
        contrast = logits.sigmoid().var()
        return error - 0.01 * contrast, {"error": error, "contrast": contrast}

    def batches(self, split):
        return render(self.held_out).split(4)  # 4 + 4 + 2

    def measure(self, model, clips):
        return {"error": (model(clips).sigmoid() - clips[:, 1:]).square().mean((1, 2, 3))}

    def judge(self, measured, split):
        assert measured["error"].shape == (10,)
        mse = measured["error"].mean().item()
        return {"score": mse, "mse": mse, "worst": measured["error"].max().item()}

    def draw(self, model):
        clip = render(self.held_out[:1])
        predicted = model(clip).sigmoid()
        rows = torch.cat([clip[0, 1:], predicted[0]], -2).unbind(0)
        picture = (255 * torch.cat(rows, 1)).round().byte().cpu().numpy()
        return {"prediction": picture}


def go(folder: Path, task: VideoTask, seeds=(0,), **settings: object) -> list[str]:
    """Train to the end, or to `stop_at`; the lines that were reported."""
    runs = {s: Run(folder if len(seeds) == 1 else folder / f"seed-{s}") for s in seeds}
    for run in runs.values():
        run.folder.mkdir(parents=True, exist_ok=True)
    reported: list[str] = []
    how = Settings(**{"seconds_between_saves": 1e9, **settings})
    train(task, task.config, runs, task.device, how, reported.append)
    return reported


if __name__ == "__main__":
    torch.set_num_threads(1)
    go(Path(sys.argv[1]), VideoTask(sys.argv[2], pause=0.1), seconds_between_saves=0.0)
