"""The preset that is C-SWM to the letter, against a plain program of C-SWM's training."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nps.experiments.atari import PRESETS, AtariTask
from nps.experiments.atari.task import ObservedEpisodes
from nps.training import checkpoint
from nps.training.batches import Batches
from nps.training.loop import Settings, train
from nps.training.run import Run
from tests.experiments.test_atari import TINY, files  # noqa: F401  (a fixture)

CPU = torch.device("cpu")
EPOCHS, RATE = 6, 0.2


def mlp(size_in: int, hidden: int, size_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size_in, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, size_out),
    )


class CSWM(nn.Module):
    """Extractor, shared MLP and GNN, channels first, edge by edge.

    The extractor is the small one, for speed; tests of `readout` compare the medium one. Its first
    convolution has the bias that C-SWM gives it and ours lacks.
    """

    def __init__(self, slots: int, size: int, hidden: int, width: int, actions: int) -> None:
        super().__init__()
        self.slots, self.actions = slots, actions
        self.first, self.norm = nn.Conv2d(6, width, 10, stride=10), nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, slots, 1)
        self.encoder = mlp(25, hidden, size)
        self.edge = mlp(2 * size, hidden, hidden)
        self.node = mlp(size + actions + hidden, hidden, size)

    def encode(self, images):
        maps = self.second(self.norm(self.first(images)).relu()).sigmoid()
        return self.encoder(maps.flatten(2))

    def predict(self, slots, action):
        new = []
        for i in range(self.slots):
            edges = [
                self.edge(torch.cat([slots[:, i], slots[:, j]], -1))
                for j in range(self.slots)
                if j != i
            ]
            given = F.one_hot(action, self.actions).to(slots.dtype)
            node = self.node(torch.cat([slots[:, i], given, sum(edges)], -1))
            new.append(slots[:, i] + node)
        return torch.stack(new, 1)

    def loss(self, before, action, after, shuffled):
        state = self.encode(before)
        next_state = self.encode(after)

        def energy(one, other):
            return 0.5 / 0.5**2 * (one - other).pow(2).sum(2).mean(1)

        positive = energy(self.predict(state, action), next_state)
        negative = (1 - energy(state, state[shuffled])).clamp(min=0)
        return (positive + negative).mean()


NAMES = {
    "encoder.extractor.0": "first",
    "encoder.extractor.1": "norm",
    "encoder.extractor.3": "second",
    "encoder.encoder": "encoder",
    "transition.gnn.edge": "edge",
    "transition.gnn.node": "node",
}
"""Our modules -> the plain program's."""


def renamed(saved: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        name.replace(ours, theirs): tensor
        for name, tensor in saved.items()
        for ours, theirs in NAMES.items()
        if name.startswith(f"{ours}.")
    }


def trained_plainly(task: AtariTask, model: CSWM, seed: int) -> tuple[dict[str, torch.Tensor], int]:
    """The model with the lowest training loss of an epoch, and that epoch."""
    data = task.sets["train"]
    batches = Batches(task.data, task.config.batch_size, task.noise_size, [seed], CPU)
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    least, best, step = float("inf"), (dict[str, torch.Tensor](), 0), 0
    model.train()
    for epoch in range(EPOCHS):
        total = 0.0
        for index in batches.order(seed, epoch):
            episode, time = index // 10, index % 10
            draws = batches.noise(seed, step // batches.block)[step % batches.block]
            before, after = (data.images(episode, time + later).movedim(-1, 1) for later in (0, 1))
            loss = model.loss(before, data.action[episode, time], after, draws[:, 0].argsort())
            adam.zero_grad()
            loss.backward()
            adam.step()
            total += loss.item()
            step += 1
        if total < least:
            least = total
            best = {k: v.detach().clone() for k, v in model.state_dict().items()}, epoch
    return best


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
def test_training_is_that_of_c_swm(tmp_path, monkeypatch):
    """Parameters and running statistics of the kept model, in float64."""
    as_bytes = ObservedEpisodes.images
    monkeypatch.setattr(ObservedEpisodes, "images", lambda *of: as_bytes(*of).double() / 255)
    small = {**TINY, "epochs": EPOCHS, "learning_rate": RATE}
    del small["validation_episodes"]
    config = dataclasses.replace(PRESETS["atari-cswm-gnn"].config, **small)
    task, seed = AtariTask(config, CPU), 1
    ours = task.make_model(seed)
    plain = CSWM(config.slots, config.slot_dim, config.hidden_dim, config.width, 6)
    with torch.no_grad():
        plain.first.bias.zero_()
    missing, unexpected = plain.load_state_dict(renamed(ours.state_dict()), strict=False)
    assert (missing, unexpected) == (["first.bias"], [])
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    train(task, config, {seed: run}, CPU, Settings(), lambda text: None, models={seed: ours})
    best, epoch = trained_plainly(task, plain, seed)
    saved = checkpoint.newest(run.checkpoints, print)
    assert epoch < EPOCHS - 1  # not simply the last one
    assert saved.state["best_step"] == 3 * (epoch + 1)
    assert saved.state["best_score"] == min(row["loss"] for row in run.metrics())
    for name, tensor in renamed(saved.tensors["best"]).items():
        torch.testing.assert_close(tensor, best[name], rtol=1e-5, atol=1e-7, msg=name)
    assert best["norm.num_batches_tracked"] == 2 * 3 * (epoch + 1)
    assert best["first.bias"].abs().max() < 1e-6
