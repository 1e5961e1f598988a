"""Where towers fall, learned from their true first states: a floor for models that see a picture.

An MLP reads place, turn, kind and size of all shapes, and says where they are in the next thirty
frames. It sees what a picture only shows from one side, but not the physics, and has 1,320 falls to
learn from. One minute on a CPU core, after `nps data stacks`:

    python examples/falling_from_states.py        # or with another seed: falling_from_states.py 1
"""

import sys

import torch
from torch import Tensor, nn

from nps.worlds import stacks

FRAMES, NEAR = 30, 15
EPOCHS, BATCH = 200, 60


def read(episodes: stacks.Episodes) -> tuple[Tensor, Tensor]:
    """States of the first frame, and the ways of the centres from there."""
    kind = nn.functional.one_hot(episodes.kind, len(stacks.KINDS))
    turns = episodes.shapes(0).turns()[..., :2, :].flatten(-2)  # unlike quaternions, without jumps
    first = [episodes.position[:, 0], turns, kind, episodes.size]
    places = stacks.centres(episodes.position[:, : FRAMES + 1])
    return torch.cat(first, -1).flatten(1), (places[:, 1:] - places[:, :1]).flatten(1)


def mirrored(episodes: stacks.Episodes) -> stacks.Episodes:
    """Seen in a mirror through the camera: the first two axes change places."""
    swap = [1, 0, 2]
    w, x, y, z = episodes.rotation.unbind(-1)
    return episodes._replace(
        position=episodes.position[..., swap],
        size=episodes.size[..., swap],
        rotation=torch.stack([w, -y, -x, -z], -1),
    )


def errors(predicted: Tensor, true: Tensor) -> tuple[float, float]:
    """1,000 times the squared distance of the centres in frames 1 to 15, and in 16 to 30."""
    apart = 1000 * (predicted - true).unflatten(1, (FRAMES, -1, 2)).square().sum(-1).mean((0, 2))
    return apart[:NEAR].mean().item(), apart[NEAR:].mean().item()


def train(seed: int) -> tuple[float, float]:
    """The errors on test episodes of the epoch with the smallest ones on validation episodes."""
    torch.manual_seed(seed)
    episodes = stacks.load()
    sets = {name: read(episodes[name]) for name in ("validation", "test")}
    both = zip(read(episodes["train"]), read(mirrored(episodes["train"])), strict=True)
    x, y = (torch.cat(pair) for pair in both)
    mean, spread = x.mean(0), x.std(0) + 1e-3
    scale = y.std(0) + 1e-3
    model = nn.Sequential(
        nn.Linear(x.shape[1], 512), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(512, y.shape[1]),
    )  # fmt: skip
    adam = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    steps = EPOCHS * (len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 2e-3, total_steps=steps)

    def test(name: str) -> tuple[float, float]:
        states, true = sets[name]
        model.eval()
        with torch.no_grad():
            return errors(model((states - mean) / spread) * scale, true)

    best, found = float("inf"), (float("nan"),) * 2
    for epoch in range(EPOCHS):
        model.train()
        for some in torch.randperm(len(x))[: len(x) // BATCH * BATCH].split(BATCH):
            predicted = model((x[some] - mean) / spread) * scale
            loss = (predicted - y[some]).square().sum(-1).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            schedule.step()
        if epoch % 10 == 9 and sum(test("validation")) < best:
            best, found = sum(test("validation")), test("test")
    return found


if __name__ == "__main__":
    near, far = train(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"an MLP on true states: {near:.2f} in frames 1 to 15, {far:.2f} in frames 16 to 30")
