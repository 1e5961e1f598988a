"""The data, model and loss of coordinate arithmetic (experiments/arithmetic/)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.experiments.arithmetic.config import Config
from nps.experiments.balance import use_entropy
from nps.inspect.grids import usage_picture
from nps.inspect.symbolic import read_rule
from nps.interactions import Routing
from nps.metrics.segregation import normalised_mutual_information, segregation, usage_table
from nps.models.arithmetic import COORDINATES, CoordinateArithmetic
from nps.rules import MLPRules, RuleLayer, SequentialNPS, Trace
from nps.training import rng
from nps.training.data import Made
from nps.training.task import Batch, Task, how_many
from nps.worlds.arithmetic import OPERATIONS, POINTS, Demonstrations, demonstrate

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8
    from numpy import ndarray


class ArithmeticTask(Task):
    """Data and loss for one config."""

    stackable = True
    input_names = ("before", "after")

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        sizes = (config.train_examples, config.validation_examples, config.test_examples)
        self.truth = {
            split: demonstrate(size, rng.derive(config.data_seed, split), config.reading)
            for split, size in zip(("train", "validation", "test"), sizes, strict=True)
        }
        self.sets = {split: data.to(device) for split, data in self.truth.items()}
        self.data = Made(config.train_examples)
        with torch.device("meta"):  # shapes only
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
            remaining = (1.0 - batch.progress / config.dropout_until).clamp(min=0.0)
            model.layer.dropout = config.dropout * remaining
        data = self.sets["train"]
        before, after = data.before[batch.index], data.after[batch.index]
        if config.objective == "free-energy":
            log_prior, updated = model.every_update(before, after)
            losses = error_of_each(before, updated, after)
            return config.energy(log_prior, losses).mean(), {}
        noise = batch.noise.unflatten(-1, self._noise_shape)
        if config.balance == 0.0:
            return (model(before, after, noise=noise) - after).square().mean(), {}
        predicted, trace = model(before, after, noise=noise, return_trace=True)
        error = (predicted - after).square().mean()
        bonus = config.balance * use_entropy(trace) if exploring else 0.0
        return error - bonus, {"mse": error}

    def batches(self, split: str) -> list[Demonstrations]:
        """A split is one batch: its examples are small."""
        return [self.sets[split]]

    def measure(self, model: CoordinateArithmetic, data: Demonstrations) -> dict[str, Tensor]:
        predicted, trace = model(data.before, data.after, return_trace=True)
        primary, rule, context = what_fired(trace)
        error = (predicted - data.after).square().mean()
        return {"error": error, "primary": primary, "rule": rule, "context": context}

    def judge(self, measured: dict[str, Tensor], split: str) -> dict[str, Any]:
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

    def first_inputs(self, split: str, count: int | None) -> tuple[Tensor, ...]:
        data = self.sets[split]
        count = how_many("n", count, len(data.operation), split)
        return data.before[:count], data.after[:count]

    def trace(self, model: CoordinateArithmetic, *inputs: Tensor) -> Trace:
        before, after = inputs
        trace: Trace = model(before, after, return_trace=True)[1]
        return trace

    def draw(self, model: CoordinateArithmetic) -> dict[str, UInt8[ndarray, "height width 3"]]:
        """How often each rule serves each operation."""
        return {"usage": usage_picture(self.evaluate(model, "validation")["table"])}

    def test(self, model: CoordinateArithmetic) -> dict[str, Any]:
        data = self.sets["test"]
        copied = (data.before - data.after).square().mean().item()
        floors = {"copy": copied}
        return {**super().test(model), "floors": floors, "rules": self.read_rules(model)}

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
            primaries = data.before[example[used], primary[used]]
            contexts = data.before[example[used], context[used]]
            reading = read_rule(rules, i, primaries, contexts, COORDINATES)
            r2 = None if reading.r2 != reading.r2 else reading.r2
            readings.append({"rule": i, "says": reading.sentence, "r2": r2, "uses": reading.uses})
        return readings


def what_fired(trace: Trace) -> tuple[Tensor, Tensor, Tensor]:
    """Primary slot, rule and context of each example, from a trace of one sequential stage."""
    rule, context = trace.rule[..., 0, :], trace.context[..., 0, :]
    primary = (rule >= 0).long().argmax(-1)
    here = primary.unsqueeze(-1)
    return primary, rule.gather(-1, here).squeeze(-1), context.gather(-1, here).squeeze(-1)


def error_of_each(
    before: Float[Tensor, "B M 2"],
    updated: Float[Tensor, "B M N M 2"],
    after: Float[Tensor, "B M 2"],
) -> Float[Tensor, "B M N M"]:
    """The squared error of each example if only that one update were made."""
    unchanged = (before - after).square().sum(-1)
    others = unchanged.sum(-1, keepdim=True) - unchanged
    own = (updated - after[:, :, None, None]).square().sum(-1)
    return (own + others[..., None, None]) / after[0].numel()


def make_layer(config: Config) -> RuleLayer:
    rules, dim = config.rule_config, len(COORDINATES)
    if config.model == "routing":
        noisy = config.router_noise
        return Routing.from_config(rules, dim, selection_dim=2 * dim, num_slots=POINTS, noisy=noisy)
    layer = SequentialNPS.from_config(rules, dim, selection_dim=2 * dim)
    with torch.no_grad():
        layer.select.query.out.weight *= config.score_gain
    return layer
