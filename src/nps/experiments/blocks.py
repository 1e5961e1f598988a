"""Section 4.3, physics environment: world models of blocks that push one another.

C-SWM with its GNN, against the same with NPS in the GNN's place. The paper encodes images with four
convolutions and slot attention; here the extractors are C-SWM's own, as in the study that the
paper's setup is from (Ke et al. 2021). Paper: NPS with one rule and one stage is better than the
GNN after 1, 5 and 10 steps (a figure without numbers). C-SWM's 2D shapes check the pipeline: the
published H@1 is 100, 100 and 99.9 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor

from nps.experiments import blocks_report
from nps.experiments.blocks_look import look
from nps.experiments.experiment import Experiment, Look, Preset
from nps.metrics.ranking import hits_and_mrr, nearest_outcome, ranks, report, share_by_kind
from nps.models.contrastive import (
    DRAWS,
    Moments,
    Negatives,
    Terms,
    contrastive,
    elsewhere,
    negatives,
)
from nps.models.transitions import Kind, Selection, Transition, make_transition
from nps.models.world_model import ActionEncoding, Actions, WorldModel
from nps.perception.extractors import Extractor, ObjectEncoder
from nps.rules.check import require_choice, require_int, require_number
from nps.training import rng
from nps.training.config import TrainConfig
from nps.training.task import Batch
from nps.worlds.blocks import MODES, Episodes, State, action_count, episodes, every_action, render
from nps.worlds.blocks.modes import OBJECTS

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Integer

HORIZONS = (1, 5, 10)
IMAGES_AT_ONCE = 1_000
"""Where there is no gradient but there are many images."""
ACTED_FROM = 1_000
"""Test episodes in whose first state every action is tried."""
KINDS = ("no_op", "free", "push", "invalid")
"""In the order of `nps.worlds.blocks.Outcome`."""


@dataclass(frozen=True)
class Config(TrainConfig):
    """World models of blocks. Defaults are the paper's and Ke et al.'s."""

    epochs: int = 100
    """Passes over the training set."""
    batch_size: int = 512
    """Transitions a step."""
    learning_rate: float = 5e-4
    """Adam's learning rate."""
    validate_every: int = 5
    """Epochs between validations."""
    mode: str = "unobserved"
    """How blocks look and weigh, a name in nps.worlds.blocks.MODES."""
    objects: int = 5
    """Blocks in the world, and slots of the model."""
    stay: bool = True
    """Is there an action that tells a block to stay?"""
    extractor: Extractor = "medium"
    """Which of C-SWM's extractors makes the slots' maps."""
    width: int = 32
    """Channels of the extractor."""
    slot_dim: int = 64
    """Size of a slot."""
    hidden_dim: int = 512
    """Width of the encoder and of transitions that are not rules."""
    transition: Kind = "snps"
    """Sequential or parallel NPS, or what it is compared with."""
    action: ActionEncoding = "copied"
    """Is every slot told the action, or only the slot with the number of the block it moves?"""
    selection: Selection = "per-slot"
    """How rules see slots; the authors' programs have a matrix for each slot position. With one
    rule, the paper's linear selection cannot see a copied action."""
    rules: int = 1
    """Number of rules N."""
    stages: int = 1
    """Rules applied one after the other in a step of the world."""
    rule_dim: int = 64
    """Size of a rule's embedding."""
    key_dim: int = 32
    """Size of queries and keys."""
    rule_hidden_dim: int = 128
    """Hidden units of a rule's MLP."""
    negatives: Negatives = "batch"
    """Shuffled batch; half of it other times of the same episode; or other episodes' same time."""
    hinge: float = 1.0
    """How far apart negatives are to be."""
    train_episodes: int = 1_000
    """Episodes to train with."""
    train_steps: int = 100
    """Steps of each."""
    validation_episodes: int = 500
    """Episodes that pick the best model."""
    test_episodes: int = 10_000
    """Episodes to test with."""
    test_steps: int = 10
    """Steps of each, in validation too."""
    data_seed: int = 0
    """Seed of the episodes; runs with other seeds share them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "slot_dim", "hidden_dim", "rules", "stages", "rule_dim", "key_dim"):
            require_int(name, getattr(self, name), at_least=1)
        for name in ("rule_hidden_dim", "train_steps", "test_steps"):
            require_int(name, getattr(self, name), at_least=1)
        for name in ("train_episodes", "validation_episodes", "test_episodes"):
            require_int(name, getattr(self, name), at_least=2)
        require_choice("mode", self.mode, tuple(MODES))
        require_choice("extractor", self.extractor, get_args(Extractor))
        require_choice("transition", self.transition, get_args(Kind))
        require_choice("action", self.action, get_args(ActionEncoding))
        require_choice("selection", self.selection, get_args(Selection))
        require_choice("negatives", self.negatives, get_args(Negatives))
        require_number("hinge", self.hinge, 0.0, 1e6, open_top=False)
        if self.objects not in OBJECTS:
            raise ValueError(f"objects: got {self.objects}, expected {OBJECTS[0]} to {OBJECTS[-1]}")
        if self.transition == "attention" and self.hidden_dim % 4:
            raise ValueError(f"hidden_dim: got {self.hidden_dim}, expected a multiple of 4 heads")


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

    def moves(self, model: WorldModel) -> dict[str, float]:
        """The all-actions test: `moves_<kind>`, the share of predictions nearest to the outcome."""
        data, stay = self.sets["test"], self.config.stay
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
    )
    return transition, actions


def truth(data: Episodes) -> Integer[Tensor, "E S numbers"]:
    """What the world was, as numbers that are equal for equal images."""
    states = data.positions.shape[1]
    constant = torch.cat([data.shapes, data.colours.flatten(1)], 1)
    constant = constant.unsqueeze(1).expand(-1, states, -1)
    return torch.cat([data.positions.flatten(2), constant], -1)


FIXED = Config(mode="fixed-palette", extractor="small", slot_dim=8)
"""Only positions differ between episodes, so that dynamics are all there is to learn."""

PRESETS = {
    "shapes-gnn": Preset(
        "C-SWM on its 2D shapes, where nothing pushes: a check of the pipeline.",
        Config(
            mode="shapes",
            stay=False,
            extractor="small",
            slot_dim=2,
            transition="gnn",
            action="factored",
            batch_size=1024,
        ),
    ),
    "blocks-nps": Preset("The paper's setting: 1 rule, 1 stage.", Config()),
    "blocks-gnn": Preset("The GNN, told of actions as NPS is.", Config(transition="gnn")),
    "blocks-gnn-factored": Preset(
        "The GNN as C-SWM has it: only the block that moves is told.",
        Config(transition="gnn", action="factored"),
    ),
    "blocks-nps-episode": Preset(
        "The paper's setting, with half of the negatives from the same episode.",
        Config(negatives="episode"),
    ),
    "blocks-gnn-episode": Preset(
        "The GNN, with half of the negatives from the same episode.",
        Config(transition="gnn", negatives="episode"),
    ),
    "blocks-fixed-nps": Preset("Blocks that look alike in every episode: 1 rule, 1 stage.", FIXED),
    "blocks-fixed-nps-linear": Preset(
        "The same with the paper's linear selection, which cannot see the action.",
        replace(FIXED, selection="linear"),
    ),
    "blocks-fixed-gnn": Preset("The same world and the GNN.", replace(FIXED, transition="gnn")),
    "blocks-fixed-gnn-factored": Preset(
        "The same world and the GNN as C-SWM has it.",
        replace(FIXED, transition="gnn", action="factored"),
    ),
}

QUICK = {
    "epochs": 20,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "hidden_dim": 64,
    "train_episodes": 200,
    "test_episodes": 1_000,
    "validation_episodes": 200,
}

EXPERIMENT = Experiment(
    name="blocks",
    about="World models of blocks that push one another: NPS against a GNN (section 4.3).",
    config=Config,
    presets=PRESETS,
    make_task=BlocksTask,
    write_report=blocks_report.write_report,
    look=Look(look),
    threads=None,
    quick=dict.fromkeys(("shapes-gnn", "blocks-fixed-nps", "blocks-fixed-gnn"), QUICK),
    heavy=True,
)
