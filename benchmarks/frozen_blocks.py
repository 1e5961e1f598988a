"""The weighted blocks as slots of a trained, frozen encoder: transitions then train in minutes.

Shared by the benchmarks that compare transitions, not perceptions. An error is the squared distance
of a prediction to what came, over that of a free move; a prediction with less than a quarter is
right: every block is where it should be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from nps.experiments.blocks.config import Config
from nps.experiments.blocks.pushes import slot_changes, slots_of_blocks
from nps.experiments.blocks.task import make_episodes
from nps.experiments.loaded import load
from nps.experiments.world_models.model import make_dynamics
from nps.models.transitions import RuleTransition, Transition
from nps.models.world_model import WorldModel
from nps.rules import free_energy
from nps.worlds.blocks import BlockEpisodes, Outcome, State, every_action, render

BAD = 0.25
AT_ONCE = 2_000
ACTED_FROM = 1_000
"""Episodes in whose first states every action is tried."""


class Steps(NamedTuple):
    """Transitions as slots."""

    before: Tensor
    action: Tensor
    after: Tensor
    outcome: Tensor

    def at(self, index: Tensor) -> Steps:
        return Steps(*(part[index] for part in self))


class FrozenBlocks:
    """Slots of one encoder for the episodes of a mode, with pushes or without.

    Args:
        run: folder of a run whose encoder, and way to give actions, are used.
        mode: of the episodes.
    """

    def __init__(self, run: str, mode: str = "fixed-palette") -> None:
        self.run = load(run)
        self.model = cast("WorldModel", self.run.model)
        self.config = replace(cast("Config", self.run.config), mode=mode)
        self.train = self.encoded(make_episodes(self.config, "train"))
        found = slot_changes(self.model, self.run.task.sets["train"], self.config.objects)
        self.slot_of_block = slots_of_blocks(found)

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        return torch.cat([self.model.encode(part) for part in images.split(AT_ONCE)])

    @torch.no_grad()
    def encoded(self, data: BlockEpisodes) -> Steps:
        episodes, times = data.positions.shape[:2]
        rows = [self.encode(render(data.state(torch.arange(episodes), t))) for t in range(times)]
        slots = torch.stack(rows, 1)
        before, after = slots[:, :-1].flatten(0, 1), slots[:, 1:].flatten(0, 1)
        return Steps(before, data.action.flatten(), after, data.outcome.flatten())

    @torch.no_grad()
    def every_action(self, split: str) -> Steps:
        """All actions from the first states of some episodes of a split."""
        data = make_episodes(self.config, split)
        first = data.state(torch.arange(min(ACTED_FROM, len(data.action))), 0)
        after, outcome = every_action(first, self.config.stay)
        count = outcome.shape[1]
        then = self.encode(render(State(*(part.flatten(0, 1) for part in after))))
        now = self.encode(render(first)).repeat_interleave(count, 0)
        action = torch.arange(count).repeat(len(first.positions))
        steps = Steps(now, action, then, outcome.flatten())
        return steps.at(steps.outcome != Outcome.INVALID)

    def given(self, action: Tensor) -> Tensor:
        return self.model.actions(action)

    @torch.no_grad()
    def right(self, transition: Transition, steps: Steps) -> dict[str, float]:
        """Share of right predictions by what happens."""
        predicted = torch.cat(
            [
                transition(before, self.given(action))
                for before, action in zip(
                    steps.before.split(AT_ONCE), steps.action.split(AT_ONCE), strict=True
                )
            ]
        )
        of_move = (steps.after - steps.before).square().sum((-1, -2))
        error = (predicted - steps.after).square().sum((-1, -2))
        good = error < BAD * of_move[steps.outcome == Outcome.FREE].mean()
        kinds = {"free": Outcome.FREE, "push": Outcome.PUSH, "nothing": Outcome.NOTHING}
        return {
            name: round(good[steps.outcome == kind].double().mean().item(), 4)
            for name, kind in kinds.items()
            if (steps.outcome == kind).any()
        }

    def make(self, seed: int, **changes: Any) -> Transition:
        """A new transition."""
        torch.manual_seed(seed)
        return make_dynamics(replace(self.config, **changes), self.model.actions)

    def loss(self, transition: Transition, steps: Steps) -> Tensor:
        """The mean squared error of the slots."""
        predicted = transition(steps.before, self.given(steps.action))
        return (predicted - steps.after).square().sum(-1).mean()

    def energy(self, transition: Transition, steps: Steps, temperature: float) -> Tensor:
        """The free energy over every rule and context of each slot, for parallel NPS."""
        rules = cast("RuleTransition", transition)
        slots = torch.cat([steps.before, self.given(steps.action)], -1)
        log_prior, updated = rules.layer.every_update(slots, selection=rules.features)
        target = steps.after[:, :, None, None]
        losses = (updated[..., : rules.slot_dim] - target).square().sum(-1)
        return free_energy(log_prior, losses, temperature, dims=2).mean()


def fit(
    transition: Transition,
    data: Steps,
    loss: Callable[[Transition, Steps], Tensor],
    steps: int,
    *,
    seed: int,
    learning_rate: float = 2e-3,
    batch_size: int = 256,
    without_context: float = 0.0,
    parameters: list[Tensor] | None = None,
) -> float:
    """Train a transition with a cosine schedule; returns the seconds that it took."""
    draw = torch.Generator().manual_seed(seed)
    trained = list(transition.parameters()) if parameters is None else parameters
    adam = torch.optim.Adam(trained, learning_rate)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps, 0.005 * learning_rate)
    transition.train()
    start = time.monotonic()
    for step in range(steps):
        if isinstance(transition, RuleTransition):
            transition.layer.without_context = step < without_context * steps
        index = torch.randint(len(data.action), (batch_size,), generator=draw)
        value = loss(transition, data.at(index))
        adam.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        adam.step()
        decay.step()
    transition.eval()
    return time.monotonic() - start
