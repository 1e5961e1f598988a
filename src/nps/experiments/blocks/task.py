"""The data, model and loss of the world models of blocks (experiments/blocks/)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.blocks.config import Config
from nps.metrics.ranking import hits_and_mrr, nearest_outcome, ranks, report, share_by_kind
from nps.models.contrastive import (
    DRAWS,
    Moments,
    Terms,
    contrastive,
    elsewhere,
    negatives,
)
from nps.models.transitions import Transition, make_transition
from nps.models.world_model import Actions, WorldModel
from nps.perception.extractors import ObjectEncoder
from nps.training import rng
from nps.training.task import Batch
from nps.worlds.blocks import Episodes, State, action_count, episodes, every_action, render

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Integer

HORIZONS = (1, 5, 10)
IMAGES_AT_ONCE = 1_000
"""Where there is no gradient but there are many images."""
ACTED_FROM = 1_000
"""Test episodes in whose first state every action is tried."""
KINDS = ("no_op", "free", "push", "invalid")
"""In the order of `nps.worlds.blocks.Outcome`."""


class BlocksTask:
    """Data and loss for one config."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        self.sets = {name: make_episodes(config, name).to(device) for name in SIZES}
        self.examples = config.train_episodes * config.train_steps
        self.noise_size = DRAWS + make_parts(config)[0].noise_size(config.objects)
        self.horizons = [step for step in HORIZONS if step <= config.test_steps]
        # One transition of each validation episode, at all times alike, with a fixed negative.
        episode = torch.arange(config.validation_episodes, device=device)
        self._judged = episode * config.test_steps + episode % config.test_steps
        draw = rng.generator("cpu", config.data_seed, "negatives")
        self._draws = torch.rand(len(episode), DRAWS, generator=draw).to(device)

    def make_model(self, seed: int) -> WorldModel:
        config = self.config
        with rng.seeded(seed, "init"):
            encoder = ObjectEncoder(
                config.extractor,
                config.objects,
                config.slot_dim,
                hidden_dim=config.hidden_dim,
                width=config.width,
            )
            return WorldModel(encoder, *make_parts(config)).to(self.device)

    def phase(self, progress: float) -> str:
        return "all"

    def loss(self, model: WorldModel, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        terms = self.terms(model, "train", batch.index, batch.noise)
        positive, negative = (term.mean() for term in terms)
        return positive + negative, {"positive": positive, "negative": negative}

    def terms(
        self,
        model: WorldModel,
        split: str,
        index: Int[Tensor, "B"],
        noise: Float[Tensor, "B noise"],
    ) -> Terms:
        """Both parts of the loss of some transitions, counted through all episodes."""
        data, kind = self.sets[split], self.config.negatives
        steps = data.action.shape[1]
        now = Moments(index // steps, index % steps)
        draws, for_rules = noise[:, :DRAWS], noise[:, DRAWS:]
        more = elsewhere(kind, now, draws, len(data.action), steps + 1)
        episode = torch.cat([now.episode, now.episode, more.episode])
        time = torch.cat([now.time, now.time + 1, more.time])
        slots = model.encode(render(data.state(episode, time)))
        state, came, others = slots.split([len(index), len(index), len(more.time)])
        predicted = model.predict(state, data.action[now.episode, now.time], for_rules)
        far = negatives(kind, state, others, draws)
        return contrastive(predicted, came, state, far, hinge=self.config.hinge)

    # -- validation ---------------------------------------------------------------------------

    def measure(self, model: WorldModel) -> dict[str, Tensor]:
        index, draws = (x.split(IMAGES_AT_ONCE // 2) for x in (self._judged, self._draws))
        parts = zip(index, draws, strict=True)
        terms = [torch.stack(self.terms(model, "validation", *part)).sum(0) for part in parts]
        data = self.sets["validation"]
        first, one, end = self.encoded(model, data, [0, 1, self.config.test_steps]).unbind(1)
        rolled = model.rollout(first, data.action)
        measured = {"loss": torch.cat(terms), "first": first, "true_1": one, "true_last": end}
        return measured | {"rolled_1": rolled[:, 0], "rolled_last": rolled[:, -1]}

    def judge(self, measured: dict[str, Tensor]) -> dict[str, Any]:
        loss = measured["loss"].mean().item()
        metrics = {"score": loss, "loss": loss}
        for step, name in {1: "1", self.config.test_steps: "last"}.items():
            true = measured[f"true_{name}"]
            for who, predicted in {"": f"rolled_{name}", "identity_": "first"}.items():
                hits = hits_and_mrr(ranks(measured[predicted], true).lenient).hits
                metrics[f"{who}h1_{step}"] = hits
        return metrics

    # -- test ---------------------------------------------------------------------------------

    @torch.no_grad()
    def test(self, model: WorldModel) -> dict[str, Any]:
        """C-SWM's ranking with its floors, `<number>_<steps>`, and what each kind of move gets."""
        data = self.sets["test"]
        states = self.encoded(model, data, range(self.config.test_steps + 1))
        parts = (x.split(IMAGES_AT_ONCE) for x in (states[:, 0], data.action))
        rolled = torch.cat([model.rollout(*part) for part in zip(*parts, strict=True)])
        numbers = report(rolled, states, self.horizons, state=truth(data))
        metrics = {
            f"{name}_{step}": value for step, of in numbers.items() for name, value in of.items()
        }
        parameters = sum(p.numel() for p in model.transition.parameters())
        return {**metrics, **self.moves(model), "transition_parameters": parameters}

    def encoded(
        self, model: WorldModel, data: Episodes, moments: range | list[int]
    ) -> Float[Tensor, "E S M D"]:
        """All episodes at some times."""
        times = torch.tensor(list(moments), device=self.device)
        slots = []
        for part in self._in_parts(len(data.action), IMAGES_AT_ONCE // len(times)):
            episode, time = part.repeat_interleave(len(times)), times.repeat(len(part))
            encoded = model.encode(render(data.state(episode, time)))
            slots.append(encoded.unflatten(0, (len(part), len(times))))
        return torch.cat(slots)

    def moves(self, model: WorldModel, split: str = "test") -> dict[str, float]:
        """The all-actions test: `moves_<kind>`, the share of predictions nearest to the outcome."""
        data, stay = self.sets[split], self.config.stay
        count = action_count(self.config.objects, stay)
        hits, kinds = [], []
        for part in self._in_parts(min(ACTED_FROM, len(data.action)), IMAGES_AT_ONCE // count):
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

    def _in_parts(self, count: int, size: int) -> Iterator[Int[Tensor, "n"]]:
        yield from torch.arange(count, device=self.device).split(max(1, size))


SIZES = {
    "train": ("train_episodes", "train_steps"),
    "validation": ("validation_episodes", "test_steps"),
    "test": ("test_episodes", "test_steps"),
}
"""The fields that say how large each set is."""


def make_episodes(config: Config, split: str) -> Episodes:
    count, steps = (getattr(config, name) for name in SIZES[split])
    seed = rng.derive(config.data_seed, split)
    return episodes(count, steps, seed, config.mode, objects=config.objects, stay=config.stay)


def make_parts(config: Config) -> tuple[Transition, Actions]:
    """The transition, and how its slots are told of actions."""
    count = action_count(config.objects, config.stay)
    actions = Actions(count, config.objects, config.action)
    transition = make_transition(
        config.transition,
        config.slot_dim,
        actions.dim,
        slots=config.objects,
        hidden_dim=config.hidden_dim,
        rules=config.rules,
        stages=config.stages,
        rule_dim=config.rule_dim,
        key_dim=config.key_dim,
        rule_hidden_dim=config.rule_hidden_dim,
        selection=config.selection,
        temperature=config.temperature,
        self_context=config.self_context,
    )
    return transition, actions


def truth(data: Episodes) -> Integer[Tensor, "E S numbers"]:
    """What the world was, as numbers that are equal for equal images."""
    states = data.positions.shape[1]
    constant = torch.cat([data.shapes, data.colours.flatten(1)], 1)
    constant = constant.unsqueeze(1).expand(-1, states, -1)
    return torch.cat([data.positions.flatten(2), constant], -1)
