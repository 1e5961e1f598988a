"""Train and test a world model on any episodes: C-SWM's loss, and its ranking with its baselines.

An experiment gives the sets "train", "validation" and "test". Episodes of the last two must have
equal length, since they are rolled out from their first observation; training episodes may differ.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from nps.experiments.world_models.config import HORIZONS, WorldModelConfig
from nps.experiments.world_models.episodes import Episodes, steps, transitions
from nps.experiments.world_models.model import make_dynamics, make_model
from nps.experiments.world_models.pictures import first_images, image_pool, rollout_picture
from nps.experiments.world_models.tracing import (
    first_episodes,
    first_transitions,
    rolled_out,
    traced,
)
from nps.inspect.rollouts import predict_images
from nps.metrics.ranking import hits_and_mrr, ranks, report
from nps.models.contrastive import (
    DRAWS,
    Moments,
    contrastive,
    energies_after,
    energy_shares,
    negative_moments,
    negatives,
    shortfall,
)
from nps.models.transitions import RuleTransition
from nps.models.world_model import AnyActions, WorldModel
from nps.perception.extractors import Norm, ObjectEncoder
from nps.rollouts import Rollout
from nps.rules import Trace, worth_loss
from nps.training import rng
from nps.training.data import Made
from nps.training.task import Batch, Task

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped, UInt8
    from numpy import ndarray

IMAGES_AT_ONCE = 1_000
"""In validation and test, which have no gradient but many images."""
DRAWN_EPISODES, DRAWN_STEPS = 3, 10
"""How much of the validation set is drawn while training."""
DRAWN_FROM = 100
"""Training images from which the picture of a prediction is chosen then."""

WITHOUT_CONTEXT, WITH_CONTEXT = "without context", "with context"
"""The phases of training."""

Encodings = Callable[[Tensor, Tensor], Tensor]
"""The slots at some episodes and times: (n,), (n,) -> (n, M, D)."""

C = TypeVar("C", bound=WorldModelConfig)
E = TypeVar("E", bound=Episodes)


class WorldModelTask(Task, Generic[C, E]):
    """Data and loss for one config.

    Args:
        config: the settings.
        device: where data and models are.
        sets: "train", "validation" and "test", on the device.
        actions: how an action is given to the slots.
        draws_seed: seed of the negatives in validation.
        judged: transitions of each validation episode in the validation loss.
    """

    stackable = True
    input_names = ("images", "action")
    sets: Mapping[str, E]

    def __init__(
        self,
        config: C,
        device: torch.device,
        sets: Mapping[str, E],
        actions: AnyActions,
        *,
        draws_seed: int = 0,
        judged: int = 1,
    ) -> None:
        self.config, self.device, self.sets, self.actions = config, device, sets, actions
        self.judged = judged
        self._transitions = transitions(sets["train"])
        self.data = Made(len(self._transitions.time))
        with torch.device("meta"):  # shapes only
            self.noise_size = DRAWS + make_dynamics(config, actions).noise_size(config.slots)
        # `judged` transitions of each validation episode, spread over all times; fixed negatives.
        count, length = sets["validation"].action.shape[:2]
        episode = torch.arange(count, device=device).repeat(judged)
        later = torch.arange(judged, device=device).repeat_interleave(count)
        self._judged = Moments(episode, (episode + later) % length)
        # Evenly spaced training images, for `settle`.
        some = torch.arange(min(IMAGES_AT_ONCE, self.examples), device=device)
        some = some * self.examples // len(some)
        self._settling = Moments(*(numbers[some] for numbers in self._transitions))
        draw = rng.generator("cpu", draws_seed, "negatives")
        self._draws = torch.rand(len(episode), DRAWS, generator=draw).to(device)

    @property
    def horizons(self) -> list[int]:
        """Numbers of steps after which test predictions are ranked: C-SWM's, and the longest."""
        most = steps(self.sets["test"])
        return sorted({most, *(step for step in HORIZONS if step <= most)})

    def tested_on(self, test: E) -> Self:
        """The same task with another test set."""
        other = copy.copy(self)
        other.sets = {**self.sets, "test": test}
        return other

    @property
    def image(self) -> tuple[int, int, int]:
        """(H, W, C)."""
        first = torch.zeros(1, dtype=torch.long, device=self.device)
        height, width, channels = self.sets["train"].images(first, first).shape[1:]
        return height, width, channels

    def make_model(self, seed: int) -> WorldModel:
        with rng.seeded(seed, "init"):
            return make_model(self.config, self.actions, self.image).to(self.device)

    def phase(self, progress: float) -> str:
        return WITHOUT_CONTEXT if progress < self.config.context_from else WITH_CONTEXT

    def loss(self, model: WorldModel, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        first_phase = batch.phase == WITHOUT_CONTEXT
        if isinstance(model.encoder, ObjectEncoder):
            model.encoder.without_contrast = first_phase
        if isinstance(model.transition, RuleTransition):
            model.transition.layer.without_context = first_phase
        now = Moments(*(numbers[batch.index] for numbers in self._transitions))
        data = self.sets["train"]
        terms = self.terms(model, data, self.encode_images(model, data), now, batch.noise)
        parts = {name: term.mean() for name, term in terms.items()}
        return total(parts), parts

    def encode_images(self, model: WorldModel, data: E) -> Encodings:
        return lambda episode, time: model.encode(data.images(episode, time))

    def terms(
        self,
        model: WorldModel,
        data: E,
        encodings: Encodings,
        now: Moments,
        noise: Float[Tensor, "B noise"],
    ) -> dict[str, Float[Tensor, "B"]]:
        """The terms of the loss, by name, for the transitions that start at the given moments."""
        kind = self.config.negatives
        draws, for_rules = noise[:, :DRAWS], noise[:, DRAWS:]
        more = negative_moments(kind, now, draws, len(data.lengths), data.lengths)
        moments = [now, Moments(now.episode, now.time + 1), more]
        state, next_state, others = self.encoded_moments(encodings, moments)
        far = negatives(kind, state, others, draws)
        action, hinge = data.actions(*now), self.config.hinge
        if self.config.objective == "free-energy" and model.training:
            every = self.free_energy(model, state, action, next_state)
            return {"positive": every, "negative": shortfall(state, far, hinge)}
        if self.config.transition == "anps" and model.training:
            predicted, worth = model.propose(state, action, for_rules)
            beside = {"worth": self.of_worth(worth, predicted, state, next_state)}
        else:
            predicted, beside = model.predict(state, action, for_rules), {}
        both = contrastive(predicted, next_state, state, far, hinge=hinge)
        return {"positive": both.positive, "negative": both.negative, **beside}

    def of_worth(
        self, worth: Tensor, predicted: Tensor, state: Tensor, next_state: Tensor
    ) -> Float[Tensor, "B"]:
        """What updates are worth is learned from how much each lowers the energy."""
        m = state.shape[-2]
        fired, kept = (energy_shares(x, next_state, m) for x in (predicted, state))
        return worth_loss(worth, fired, kept, self.config.firing_price).mean(-1)

    def free_energy(
        self, model: WorldModel, state: Tensor, action: Tensor, next_state: Tensor
    ) -> Float[Tensor, "B"]:
        """In place of the energy of the one prediction that would be drawn."""
        log_prior, updated = model.every_update(state, action)
        alone = self.config.transition == "pnps"  # each slot chooses for itself
        losses = energies_after(updated, state, next_state, alone=alone)
        found = self.config.energy(log_prior, losses, dims=2 if alone else 3)
        return found.sum(-1) if alone else found

    def encoded_moments(
        self, encodings: Encodings, moments: Sequence[Moments]
    ) -> Sequence[Float[Tensor, "n M D"]]:
        """The slots at each of several groups of moments: encoded as one batch, or apart."""
        sizes = [len(group.time) for group in moments]
        if self.config.separate_encoding:
            slots = torch.cat([encodings(*group) for group in moments if len(group.time)])
        else:
            slots = encodings(*map(torch.cat, zip(*moments, strict=True)))
        parts: tuple[Tensor, ...] = slots.split(sizes)
        return parts

    # -- validation ---------------------------------------------------------------------------

    def batches(self, split: str) -> list[E]:
        """A split is one batch: the ranking compares every episode with all others."""
        return [self.sets[split]]

    def measure(self, model: WorldModel, data: E) -> dict[str, Tensor]:
        if self.config.statistics == "settled":
            settle(model, self.sets["train"].images(*self._settling))
        encodings, last = self.encode_images(model, data), steps(data)
        if 2 * self.judged + 3 > last:  # most images are needed: encode each of them once
            states = self.encoded(model, data, range(last + 1))
            first, second, final = states[:, [0, 1, last]].unbind(1)
            encodings = stored(states)
        else:
            first, second, final = self.encoded(model, data, [0, 1, last]).unbind(1)
        parts = [x.split(IMAGES_AT_ONCE // 2) for x in (*self._judged, self._draws)]
        terms = [
            total(self.terms(model, data, encodings, Moments(episode, time), draws))
            for episode, time, draws in zip(*parts, strict=True)
        ]
        rolled = model.rollout(first, data.action)
        measured = {"loss": torch.cat(terms), "first": first, "true_1": second, "true_last": final}
        return measured | {"rolled_1": rolled[:, 0], "rolled_last": rolled[:, -1]}

    def judge(self, measured: dict[str, Tensor], split: str) -> dict[str, Any]:
        loss = measured["loss"].mean().item()
        metrics = {"score": loss, "loss": loss}
        for step, name in {1: "1", steps(self.sets[split]): "last"}.items():
            true = measured[f"true_{name}"]
            for baseline, predicted in {"": f"rolled_{name}", "identity_": "first"}.items():
                hits = hits_and_mrr(ranks(measured[predicted], true).lenient).hits
                metrics[f"{baseline}h1_{step}"] = hits
        return metrics

    @torch.no_grad()
    def draw(self, model: WorldModel) -> dict[str, UInt8[ndarray, "height width 3"]]:
        """Roll-outs of the first validation episodes; of stacked frames, the newest."""
        train, data = self.sets["train"], self.sets["validation"]
        if self.config.statistics == "settled":
            model = copy.deepcopy(model)  # settling must not change the model that is trained
            settle(model, train.images(*self._settling))
        action = data.action[:DRAWN_EPISODES, :DRAWN_STEPS]
        images = first_images(data, *action.shape[:2])
        found = predict_images(model, images, action, image_pool(train, DRAWN_FROM))
        return {"rollouts": rollout_picture(found)}

    # -- traces and roll-outs of a trained model ----------------------------------------------

    def first_inputs(self, split: str, count: int | None) -> tuple[Tensor, ...]:
        return first_transitions(self.sets[split], count, split)

    def trace(self, model: WorldModel, *inputs: Tensor) -> Trace:
        images, action = inputs
        return traced(model, images, action)

    def first_episodes(
        self, split: str, count: int | None, steps: int | None
    ) -> tuple[Tensor, Tensor]:
        return first_episodes(self.sets[split], count, steps, split)

    def rollout(self, model: WorldModel, images: Tensor, actions: Tensor) -> Rollout:
        return rolled_out(model, images, actions)

    # -- test ---------------------------------------------------------------------------------

    @torch.no_grad()
    def test(self, model: WorldModel) -> dict[str, Any]:
        """The ranking, and the number of the transition's parameters."""
        parameters = sum(p.numel() for p in model.transition.parameters())
        return {**self.ranking(model), "transition_parameters": parameters}

    @torch.no_grad()
    def ranking(self, model: WorldModel, most: int | None = None) -> dict[str, Any]:
        """C-SWM's ranking with its baselines, `<metric>_<steps>`, of all or the first episodes."""
        data = self.sets["test"]
        states = self.encoded(model, data, range(steps(data) + 1), most)
        parts = (x.split(IMAGES_AT_ONCE) for x in (states[:, 0], data.action[:most]))
        rolled = torch.cat([model.rollout(*part) for part in zip(*parts, strict=True)])
        numbers = report(rolled, states, self.horizons, state=data.truth()[:most])
        metrics: dict[str, Any] = {
            f"{name}_{step}": value for step, of in numbers.items() for name, value in of.items()
        }
        return {**metrics, "rollouts": len(states)}

    def encoded(
        self, model: WorldModel, data: E, moments: Sequence[int], episodes: int | None = None
    ) -> Float[Tensor, "E S M D"]:
        """The slots of all episodes, or of the first ones, at some times."""
        times = torch.tensor(list(moments), device=self.device)
        count = len(data.lengths) if episodes is None else episodes
        slots = []
        for part in self.in_parts(count, IMAGES_AT_ONCE // len(times)):
            episode, time = part.repeat_interleave(len(times)), times.repeat(len(part))
            encoded = model.encode(data.images(episode, time))
            slots.append(encoded.unflatten(0, (len(part), len(times))))
        return torch.cat(slots)

    def in_parts(self, count: int, size: int) -> Iterator[Int[Tensor, "n"]]:
        """0 to count - 1, in parts of at most `size`."""
        yield from torch.arange(count, device=self.device).split(max(1, size))


def total(terms: Mapping[str, Tensor]) -> Tensor:
    return functools.reduce(torch.add, terms.values())


def stored(states: Float[Tensor, "E S M D"]) -> Encodings:
    return lambda episode, time: states[episode, time]


def settle(model: WorldModel, images: Shaped[Tensor, "n H W C"]) -> None:
    """Set the statistics that batch normalisation uses in evaluation to those of some images.

    Running statistics lag behind the parameters. In front of a coloured background every change of
    a parameter moves a channel's mean, by many of its standard deviations between validations: the
    model that is validated, kept and tested would differ from the one that was trained.
    """
    norms = [module for module in model.modules() if isinstance(module, Norm)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    model.encode(images)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval()
        norm.momentum = momentum
