"""Section 4.1, coordinate arithmetic: rules discovered from raw demonstrations.

Which of four operations changed which point, with which other as argument, is nowhere told; NPS
with 4 rules should give each operation a rule of its own. Paper: MSE 0.01 ± 0.001 against
0.04 ± 0.008 for a routing MLP; tables of rule use with 5 and (commented out) 6 rules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from nps.experiments import arithmetic_report
from nps.experiments.balance import use_entropy
from nps.experiments.experiment import Experiment, Look, Preset
from nps.inspect.symbolic import read_rule
from nps.interactions import Routing
from nps.metrics.segregation import normalised_mutual_information, segregation, usage_table
from nps.models.arithmetic import COORDINATES, CoordinateArithmetic
from nps.rules import MLPRules, RuleLayer, SequentialNPS, Trace
from nps.rules.check import require_choice, require_int, require_number
from nps.training import rng
from nps.training.config import TrainConfig
from nps.training.task import Batch
from nps.worlds.arithmetic import OPERATIONS, POINTS, demonstrate


@dataclass(frozen=True)
class Config(TrainConfig):
    """Coordinate arithmetic. Defaults are the paper's."""

    epochs: int = 300
    """Passes over the training set."""
    batch_size: int = 64
    """Examples a step."""
    learning_rate: float = 1e-4
    """Adam's learning rate."""
    model: Literal["nps", "routing"] = "nps"
    """What chooses: slots and rules (nps) or a routing MLP (the paper's baseline)."""
    rules: int = 4
    """Number of rules N."""
    reading: Literal["any", "other"] = "any"
    """The contextual point: any of the two, the primary itself included, or the other one."""
    rule_dim: int = 12
    """Size of a rule's embedding."""
    key_dim: int = 32
    """Size of queries and keys."""
    hidden_dim: int = 16
    """Hidden units of a rule's MLP."""
    dropout: float = 0.35
    """Probability that a selection score is set to zero in training."""
    dropout_until: float | None = None
    """Share of the training over which dropout falls linearly to zero; none keeps it constant."""
    score_gain: float = 3.0
    """Factor on the initial W^q: choices start sharp enough to be told from the noise."""
    balance: float = 0.0
    """Weight of a bonus on the entropy of the rules' mean use: no rule is left behind early."""
    settle_from: float | None = None
    """Share of the training after which choices are made without noise and dropout."""
    query: Literal["linear", "mlp"] = "linear"
    """Queries of the rule choice: the paper's matrix, or a small network."""
    context_query: Literal["linear", "mlp"] = "linear"
    """Queries and keys of the context choice, likewise."""
    self_context: bool = True
    """May a point be its own context?"""
    temperature: float = 1.0
    """Of the straight-through softmax."""
    router_noise: bool = False
    """Gumbel noise in the routing MLP's choices; without it they are argmax, as in a Switch."""
    train_examples: int = 10_000
    """Size of the training set."""
    validation_examples: int = 2_000
    """Size of the validation set, which picks the best model."""
    test_examples: int = 2_000
    """Size of the test set."""
    data_seed: int = 0
    """Seed of the three sets; runs with other seeds share them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rules", "rule_dim", "key_dim", "hidden_dim"):
            require_int(name, getattr(self, name), at_least=1)
        for name in ("train_examples", "validation_examples", "test_examples"):
            require_int(name, getattr(self, name), at_least=1)
        if self.batch_size > self.train_examples:
            raise ValueError(
                f"batch_size: got {self.batch_size}, expected at most the {self.train_examples} "
                "training examples"
            )
        require_number("dropout", self.dropout, 0.0, 1.0, open_top=True)
        if self.dropout_until is not None:
            require_number("dropout_until", self.dropout_until, 0.01, 1.0, open_top=False)
        if self.settle_from is not None:
            require_number("settle_from", self.settle_from, 0.0, 1.0, open_top=False)
        require_number("balance", self.balance, 0.0, 1e3, open_top=False)
        require_number("score_gain", self.score_gain, 0.0, 1e3, open_top=False)
        require_number("temperature", self.temperature, 1e-6, 1e6, open_top=False)
        require_choice("model", self.model, ("nps", "routing"))
        require_choice("reading", self.reading, ("any", "other"))


class ArithmeticTask:
    """Data and loss for one config."""

    fingerprint: str | None = None

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        sizes = (config.train_examples, config.validation_examples, config.test_examples)
        self.truth = {
            split: demonstrate(size, rng.derive(config.data_seed, split), config.reading)
            for split, size in zip(("train", "validation", "test"), sizes, strict=True)
        }
        self.sets = {split: data.to(device) for split, data in self.truth.items()}
        self.examples = config.train_examples
        self._noise_shape = make_layer(config).noise_shape(slots=POINTS)
        self.noise_size = math.prod(self._noise_shape)

    def make_model(self, seed: int) -> CoordinateArithmetic:
        with rng.seeded(seed, "init"):
            return CoordinateArithmetic(make_layer(self.config)).to(self.device)

    def phase(self, progress: float) -> str:
        settle = self.config.settle_from
        return "explore" if settle is None or progress < settle else "settle"

    def loss(self, model: CoordinateArithmetic, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        config, exploring = self.config, batch.phase == "explore"
        model.train(exploring)  # evaluation mode: the argmax
        if config.dropout_until is not None:
            left = (1.0 - batch.progress / config.dropout_until).clamp(min=0.0)
            model.layer.dropout = config.dropout * left
        data = self.sets["train"]
        before, after = data.before[batch.index], data.after[batch.index]
        noise = batch.noise.unflatten(-1, self._noise_shape)
        if config.balance == 0.0:
            return (model(before, after, noise=noise) - after).square().mean(), {}
        predicted, trace = model(before, after, noise=noise, return_trace=True)
        error = (predicted - after).square().mean()
        bonus = config.balance * use_entropy(trace) if exploring else 0.0
        return error - bonus, {"mse": error}

    def measure(self, model: CoordinateArithmetic, split: str = "validation") -> dict[str, Tensor]:
        data = self.sets[split]
        predicted, trace = model(data.before, data.after, return_trace=True)
        primary, rule, context = what_fired(trace)
        error = (predicted - data.after).square().mean()
        return {"error": error, "primary": primary, "rule": rule, "context": context}

    def judge(self, measured: dict[str, Tensor], split: str = "validation") -> dict[str, Any]:
        data = self.truth[split]
        table = usage_table(data.operation, measured["rule"], len(OPERATIONS), self.config.rules)
        error = measured["error"].item()
        return {
            "score": error,
            "mse": error,
            "segregation": segregation(table),
            "nmi": normalised_mutual_information(table),
            "primary_accuracy": (measured["primary"] == data.primary).float().mean().item(),
            "context_accuracy": (measured["context"] == data.context).float().mean().item(),
            "table": table.tolist(),
        }

    @torch.no_grad()
    def test(self, model: CoordinateArithmetic) -> dict[str, Any]:
        measured = {name: values.cpu() for name, values in self.measure(model, "test").items()}
        metrics = self.judge(measured, "test")
        del metrics["score"]
        return {**metrics, "rules": self.read_rules(model)}

    @torch.no_grad()
    def read_rules(self, model: CoordinateArithmetic) -> list[dict[str, Any]]:
        """Every rule in words, fitted on the test points it was used for."""
        data, rules = self.sets["test"], model.layer.rules
        assert isinstance(rules, MLPRules)  # as make_layer builds them
        _, trace = model(data.before, data.after, return_trace=True)
        primary, rule, context = what_fired(trace)
        example = torch.arange(len(rule), device=rule.device)
        readings = []
        for i in range(self.config.rules):
            used = rule == i
            mine = data.before[example[used], primary[used]]
            others = data.before[example[used], context[used]]
            reading = read_rule(rules, i, mine, others, COORDINATES)
            r2 = None if reading.r2 != reading.r2 else reading.r2
            readings.append({"rule": i, "says": reading.sentence, "r2": r2, "uses": reading.uses})
        return readings


def what_fired(trace: Trace) -> tuple[Tensor, Tensor, Tensor]:
    """Primary slot, rule and context of each example, from a trace of one sequential stage."""
    rule, context = trace.rule[..., 0, :], trace.context[..., 0, :]
    primary = (rule >= 0).long().argmax(-1)
    here = primary.unsqueeze(-1)
    return primary, rule.gather(-1, here).squeeze(-1), context.gather(-1, here).squeeze(-1)


def make_layer(config: Config) -> RuleLayer:
    shared: dict[str, Any] = {
        "hidden_dim": config.hidden_dim,
        "selection_dim": 2 * len(COORDINATES),
        "temperature": config.temperature,
    }
    if config.model == "routing":
        return Routing(
            len(COORDINATES),
            config.rules,
            num_slots=POINTS,
            noisy=config.router_noise,
            **shared,
        )
    layer = SequentialNPS(
        len(COORDINATES),
        config.rules,
        rule_dim=config.rule_dim,
        key_dim=config.key_dim,
        dropout=config.dropout,
        query=config.query,
        context_query=config.context_query,
        self_context=config.self_context,
        **shared,
    )
    with torch.no_grad():
        layer.select.query.out.weight *= config.score_gain
    return layer


PRESETS = {
    "arithmetic": Preset("The paper's settings: 4 rules.", Config()),
    "arithmetic-baseline": Preset(
        "The paper's baseline: a routing MLP of 4 layers of 32 instead of slots × rules.",
        Config(model="routing"),
    ),
    "arithmetic-baseline-noisy": Preset(
        "The routing MLP with NPS's own Gumbel noise in its choices: a stronger baseline.",
        Config(model="routing", router_noise=True),
    ),
    "arithmetic-5-rules": Preset("One rule more than operations.", Config(rules=5)),
    "arithmetic-6-rules": Preset("Two rules more than operations.", Config(rules=6)),
    "arithmetic-other": Preset(
        "The other reading of the task: the context is always the other point.",
        Config(reading="other"),
    ),
    "arithmetic-sharp": Preset(
        "Ours: explore with noise and dropout, then settle without; context is the other point.",
        Config(
            reading="other",
            self_context=False,
            epochs=200,
            batch_size=256,
            learning_rate=3e-3,
            final_learning_rate=1e-5,
            restart_at=0.6,
            balance=0.3,
            settle_from=0.6,
        ),
    ),
    "arithmetic-sharp-any": Preset(
        "Ours in the harder reading: the context may be the point itself, so binding it needs "
        "the small network.",
        Config(
            learning_rate=1e-3,
            final_learning_rate=1e-5,
            dropout_until=0.7,
            balance=0.01,
            settle_from=0.8,
            context_query="mlp",
        ),
    ),
}

EXPERIMENT = Experiment(
    name="arithmetic",
    about="Coordinate arithmetic: four operations discovered from demonstrations (section 4.1).",
    config=Config,
    presets=PRESETS,
    make_task=ArithmeticTask,
    write_report=arithmetic_report.write_report,
    threads=1,  # products of 16 x 64 numbers: a second thread costs more than it brings
    quick={
        "arithmetic": {},
        "arithmetic-baseline": {},
        "arithmetic-sharp": {"epochs": 100},
    },
    look=Look(arithmetic_report.look),
)
