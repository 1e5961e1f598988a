"""The data of the world models of blocks, and the test of what each action does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.errors import UserError
from nps.experiments.blocks.config import BUILD, Config
from nps.experiments.blocks.pushes import firing_metrics, push_metrics
from nps.experiments.start import best_of
from nps.experiments.world_models.task import IMAGES_AT_ONCE, WorldModelTask
from nps.metrics.ranking import nearest_outcome, share_by_kind
from nps.models.world_model import Actions, WorldModel
from nps.training import rng
from nps.worlds.blocks import BlockEpisodes, State, action_count, episodes, every_action, render

if TYPE_CHECKING:
    from jaxtyping import Int, Integer, UInt8

ACTED_FROM = 1_000
"""Number of test episodes in whose first state every action is tried."""
KINDS = ("no_op", "free", "push", "invalid")
"""In the order of `nps.worlds.blocks.Outcome`."""
SIZES = {
    "train": ("train_episodes", "train_steps"),
    "validation": ("validation_episodes", "test_steps"),
    "test": ("test_episodes", "test_steps"),
}
"""The config fields with the size of each set."""


class RenderedEpisodes(BlockEpisodes):
    """Episodes of blocks, with their images drawn on demand."""

    @property
    def lengths(self) -> Int[Tensor, "E"]:
        return self.action.new_full(self.action.shape[:1], self.action.shape[1] + 1)

    def actions(self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        return self.action[episode, time]

    def images(
        self, episode: Int[Tensor, "n"], time: Int[Tensor, "n"]
    ) -> UInt8[Tensor, "n 50 50 3"]:
        return render(self.state(episode, time))

    def truth(self) -> Integer[Tensor, "E T+1 numbers"]:
        return truth(self)


class BlocksTask(WorldModelTask[Config, RenderedEpisodes]):
    """Data and loss for one config."""

    def __init__(self, config: Config, device: torch.device) -> None:
        sets = {name: RenderedEpisodes(*make_episodes(config, name).to(device)) for name in SIZES}
        count = action_count(config.objects, config.stay)
        actions = Actions(count, config.objects, config.action)
        super().__init__(config, device, sets, actions, draws_seed=config.data_seed)

    def make_model(self, seed: int) -> WorldModel:
        model = super().make_model(seed)
        if self.config.start_from is not None:
            start = best_of(self.config.start_from, seed, "blocks", self.config, BUILD)
            model.load_state_dict(start)
        return model

    @torch.no_grad()
    def test(self, model: WorldModel) -> dict[str, Any]:
        """The ranking, the accuracy for each kind of move, and whether the trace shows pushes."""
        return {**super().test(model), **self.moves(model), **self.pushes(model)}

    def pushes(self, model: WorldModel, split: str = "test") -> dict[str, Any]:
        """`push_metrics` of the pushes in the all-actions test, and `firing_metrics`."""
        first = self.acted_from(split)
        train, data = self.sets["train"], self.sets[split]
        pushes = push_metrics(model, train, first, self.config.stay)
        return pushes | firing_metrics(model, train, data)

    def acted_from(self, split: str) -> State:
        """The first states of some episodes, in which every action is tried."""
        data = self.sets[split]
        return data.state(torch.arange(min(ACTED_FROM, len(data.action)), device=self.device), 0)

    def moves(self, model: WorldModel, split: str = "test") -> dict[str, float]:
        """The all-actions test: `moves_<kind>`, share of predictions nearest to their outcome."""
        data, stay = self.sets[split], self.config.stay
        count = action_count(self.config.objects, stay)
        hits, kinds = [], []
        for part in self.in_parts(min(ACTED_FROM, len(data.action)), IMAGES_AT_ONCE // count):
            before = data.state(part, 0)
            after, outcome = every_action(before, stay)
            flat = State(*(x.flatten(0, 1) for x in after))
            outcomes = model.encode(render(flat)).unflatten(0, outcome.shape)
            action = torch.arange(count, device=self.device).repeat(len(part))
            first = model.encode(render(before)).repeat_interleave(count, 0)
            near = nearest_outcome(
                model.predict(first, action),
                outcomes.repeat_interleave(count, 0),
                action,
                state=after.positions.repeat_interleave(count, 0),
            )
            hits.append(near)
            kinds.append(outcome.flatten())
        shares = share_by_kind(torch.cat(hits).cpu(), torch.cat(kinds).cpu(), KINDS)
        return {f"moves_{kind}": share for kind, share in shares.items() if kind != "invalid"}


def with_test_set(task: BlocksTask, mode: str) -> BlocksTask:
    """The task with test episodes of another mode."""
    try:
        config = replace(task.config, mode=mode)
    except ValueError as error:
        raise UserError(f"--on: {error}") from None
    return task.tested_on(RenderedEpisodes(*make_episodes(config, "test").to(task.device)))


def make_episodes(config: Config, split: str) -> BlockEpisodes:
    count, steps = (getattr(config, name) for name in SIZES[split])
    seed = rng.derive(config.data_seed, split)
    return episodes(count, steps, seed, config.mode, objects=config.objects, stay=config.stay)


def truth(data: BlockEpisodes) -> Integer[Tensor, "E S numbers"]:
    """The true states as numbers: equal exactly for equal images."""
    states = data.positions.shape[1]
    constant = torch.cat([data.shapes, data.colours.flatten(1)], 1)
    constant = constant.unsqueeze(1).expand(-1, states, -1)
    return torch.cat([data.positions.flatten(2), constant], -1)
