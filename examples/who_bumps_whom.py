"""Learn who bumps whom from the true states of bouncing balls: what makes a rule learn.

A slot is a ball: place, velocity, radius and weight; one more slot is empty. A model moves each
slot by its velocity, which a network (walls) and one rule (other balls) may change. The same rule
learns or does not, depending on the unit of length, on what it may choose and on how choices learn.
Two minutes on a CPU core:

    python examples/who_bumps_whom.py        # or with another seed: who_bumps_whom.py 1
"""

import sys

import torch
from torch import Tensor, nn

import nps
from nps.interactions import GNN
from nps.rules.config import MAX_HANDICAP
from nps.worlds.balls import BOX, make_scenes

SIZE = 8
HALF = BOX / 2
VARIANTS = {
    "no interaction": {},
    "GNN": {"layer": "gnn"},
    "rule": {"layer": "rule"},
    "rule, lengths in half boxes": {"layer": "rule", "unit": HALF},
    "GNN, lengths in half boxes": {"layer": "gnn", "unit": HALF},
    "rule, empty slots interact": {"layer": "rule", "presence": False},
    "rule, gradient of the slot": {"layer": "rule", "context_gradient": "slot"},
}


def frames(count: int, balls: tuple[int, int], seed: int) -> dict[str, Tensor]:
    """Pairs of frames: states before, places after, and who collided in between."""
    scenes = make_scenes(count, 12, seed, balls=balls)
    b, t, m, _ = scenes.position.shape
    there = scenes.present[:, None, :, None]
    draw = torch.Generator().manual_seed(seed)
    present = torch.cat([scenes.present, torch.zeros(b, 1, dtype=torch.bool)], 1)
    place = BOX * torch.rand(b, t, m + 1, 2, generator=draw)  # of empty slots, anywhere
    velocity = torch.zeros_like(place)
    collided = torch.zeros(b, t, m + 1, m + 1, dtype=torch.bool)
    place[:, :, :m] = torch.where(there, scenes.position, place[:, :, :m])
    velocity[:, :, :m], collided[:, :, :m, :m] = scenes.velocity, scenes.collided
    kind = torch.stack([scenes.radius, scenes.mass / 6], -1) * scenes.present.unsqueeze(-1)
    kind = nn.functional.pad(kind, (0, 2, 0, 1)).unsqueeze(1).expand(-1, t, -1, -1)
    state = torch.cat([place - HALF, velocity, kind], -1)
    return {
        "state": state[:, :-1].flatten(0, 1),
        "after": (place - HALF)[:, 1:].flatten(0, 1),
        "present": present.unsqueeze(1).expand(-1, t - 1, -1).flatten(0, 1),
        "collided": collided[:, 1:].flatten(0, 1),
    }


class Transition(nn.Module):
    """Places of the next frame, from places and velocities in this one."""

    def __init__(
        self,
        layer: str | None = None,
        unit: float = 1.0,
        presence: bool = True,
        context_gradient: str = "update",
    ) -> None:
        super().__init__()
        self.unit, self.presence = unit, presence
        self.walls = nn.Sequential(nn.Linear(SIZE, 128), nn.ReLU(), nn.Linear(128, 2))
        self.interaction: nn.Module | None = None
        if layer == "gnn":
            self.interaction = GNN(SIZE, hidden_dim=128)
        elif layer == "rule":
            self.interaction = nps.ParallelNPS(
                SIZE,
                num_rules=1,
                hidden_layers=2,
                query="mlp",
                self_context=False,
                context_gradient=context_gradient,
                selection_dim=4,
                zero_start=True,
                null_handicap=MAX_HANDICAP,
            )

    def forward(self, state: Tensor, present: Tensor) -> tuple[Tensor, nps.Trace | None]:
        place, velocity, kind = state.split([2, 2, SIZE - 4], -1)
        slots = torch.cat([place / self.unit, velocity / self.unit, kind], -1)
        turned = velocity / self.unit + self.walls(slots)
        slots = torch.cat([place / self.unit, turned, kind], -1)
        trace, mask = None, present if self.presence else None
        if isinstance(self.interaction, nps.ParallelNPS):
            slots, trace = self.interaction(
                slots, selection=lambda x: x[..., :4], slot_mask=mask, return_trace=True
            )
        elif self.interaction is not None:
            slots = self.interaction(slots, slot_mask=mask)
        return place + self.unit * slots[..., 2:4], trace


def train(model: Transition, data: dict[str, Tensor], steps: int) -> None:
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for step in range(steps):
        model.train(step < steps // 2)  # then without noise: the argmax
        some = torch.randint(len(data["state"]), (128,))
        state, after, present = (data[name][some] for name in ("state", "after", "present"))
        loss = (model(state, present)[0] - after).square().sum(-1)[present].mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        slower.step()


@torch.no_grad()
def test(model: Transition, data: dict[str, Tensor]) -> str:
    """Mean distance from the truth, in radii, and how often the context is the ball that is hit."""
    predicted, trace = model.eval()(data["state"], data["present"])
    error = (predicted - data["after"]).norm(dim=-1)
    hit = data["collided"].any(-1)
    free = data["present"] & ~hit
    told = ""
    if trace is not None:
        context = nn.functional.one_hot(trace.context[:, 0].clamp(min=0), hit.shape[-1]).bool()
        told = f"{(context & data['collided']).any(-1)[hit].float().mean():.0%}"
    return f"{error[hit].mean():6.2f} {error[free].mean():10.2f} {told:>8}"


def main(seed: int = 0, steps: int = 2_500, scenes: int = 4_000) -> None:
    training = frames(scenes, (4, 4), seed=1)
    tests = {"4 balls": frames(300, (4, 4), 2), "6 to 8 balls": frames(200, (6, 8), 3)}
    print(f"{'':30}" + "".join(f"{name:^30}" for name in tests))
    print(f"{'error in radii':30}" + "  bumped      others    told  " * len(tests))
    for name, options in VARIANTS.items():
        torch.manual_seed(seed)
        model = Transition(**options)
        train(model, training, steps)
        print(f"{name:30}" + "    ".join(test(model, data) for data in tests.values()), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
