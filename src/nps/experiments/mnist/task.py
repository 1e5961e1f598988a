"""The data, model and loss of MNIST transformation (experiments/mnist/)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.errors import UserError
from nps.experiments.balance import use_entropy
from nps.experiments.mnist.compose import composition
from nps.experiments.mnist.config import BUILD, Config
from nps.experiments.mnist.pictures import digits_picture, pictures
from nps.experiments.mnist.surgery import deletion, fifth
from nps.experiments.mnist.tracing import rolled_out, traced
from nps.experiments.start import best_of
from nps.metrics.segregation import normalised_mutual_information, segregation, usage_table
from nps.models.digits import IMAGE, OPERATION, DigitTransformation, OneMLP, OperandNPS
from nps.models.digits_authors import AuthorsNPS, OperationMLP
from nps.rollouts import Rollout
from nps.rules import Trace
from nps.training import rng
from nps.training.data import Made
from nps.training.task import Batch, Task, how_many
from nps.worlds import mnist
from nps.worlds.transformations import EVERY_OPERATION, OPERATIONS, matrices, paste, transform

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt8
    from numpy import ndarray

SLOTS = 2
DIGITS_AT_ONCE = 100
"""In validation and test, which have no gradient but thousands of images."""


class Pairs(NamedTuple):
    """Images before and after an operation."""

    before: Float[Tensor, "B 64 64"]
    after: Float[Tensor, "B 64 64"]
    operation: Int[Tensor, "B"]


class MnistTask(Task):
    """Data and loss for one config."""

    stackable = True
    input_names = ("images", "operation")

    def __init__(self, config: Config, device: torch.device) -> None:
        self.config, self.device = config, device
        self.operations = EVERY_OPERATION if config.flip else OPERATIONS
        self.matrices = matrices(config.rotation, config.shift).to(device)
        self.sets = self.digits = {name: x.to(device) for name, x in split(config).items()}
        self.truth = {name: self._draw_chains(name) for name in ("validation", "test")}
        """The operations of each digit's chain."""
        self.chains = {name: chain.to(device) for name, chain in self.truth.items()}
        self.data = Made(len(self.digits["train"]))
        with torch.device("meta"):  # shapes only
            self._noise_shape = make_layer(config, self.rules).noise_shape(slots=SLOTS)
        # Pairs of each digit, and the numbers that choose them: one for each operation of a chain,
        # and one for the place of a single pair in it.
        self._pairs = config.depth if config.whole_chains else 1
        self._draws = config.depth + (not config.whole_chains)
        self.noise_size = self._draws + self._pairs * math.prod(self._noise_shape)

    @property
    def rules(self) -> int:
        """Number of rules of a model."""
        return self.config.rules + self.config.flip

    def _draw_chains(self, name: str) -> Int[Tensor, "E depth"]:
        draw = rng.generator("cpu", self.config.data_seed, name)
        shape = (len(self.digits[name]), self.config.depth)
        return torch.randint(len(self.operations), shape, generator=draw)

    def make_model(self, seed: int) -> DigitTransformation:
        config = self.config
        with rng.seeded(seed, "init"):
            layer = make_layer(config, config.rules)
            model = DigitTransformation(layer, config.slot_dim, make_operations(config))
            if config.start_from is not None:
                start = best_of(config.start_from, seed, "mnist", config, BUILD)
                model.load_state_dict(start)
                model.freeze()
            if config.flip:
                model.add_operation()
        return model.to(self.device)

    def loss(self, model: DigitTransformation, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config
        pairs = self.training_pairs(batch.index, batch.noise[:, : self._draws])
        if config.objective == "free-energy":
            log_prior, logits = model.every_result(pairs.before, pairs.operation)
            target = pairs.after[:, None, None].expand_as(logits)
            each = F.binary_cross_entropy_with_logits(logits.float(), target, reduction="none")
            losses = each.mean((-2, -1), dtype=torch.float64)  # their differences matter
            return config.energy(log_prior, losses, dims=2).mean().float(), {}
        for_rules = batch.noise[:, self._draws :]
        noise = for_rules.unflatten(-1, (self._pairs, *self._noise_shape)).flatten(0, 1)
        remaining = (1.0 - batch.progress / config.explore_until).clamp(min=0.0)
        if config.dropout > 0.0:
            model.layer.dropout = config.dropout * remaining
        if config.balance == 0.0:
            return cross_entropy(model(pairs.before, pairs.operation, noise=noise), pairs), {}
        logits, trace = model(pairs.before, pairs.operation, noise=noise, return_trace=True)
        error = cross_entropy(logits, pairs)
        return error - config.balance * remaining * use_entropy(trace), {"error": error}

    def training_pairs(self, index: Int[Tensor, "B"], noise: Float[Tensor, "B draws"]) -> Pairs:
        """Digits under 0 to depth - 1 random operations, and under one more.

        Of each digit one such pair, or with `whole_chains` all of one chain.
        """
        depth = self.config.depth
        chain = (noise[:, :depth] * len(self.operations)).long()
        if self.config.whole_chains:
            return self.chain_pairs(self.digits["train"][index], chain)
        earlier = (noise[:, depth] * depth).long()
        before = paste(self.digits["train"][index])
        for i in range(depth - 1):
            moved = transform(before, chain[:, i], self.matrices)
            before = torch.where((i < earlier)[:, None, None], moved, before)
        operation = chain[:, depth - 1]
        return Pairs(before, transform(before, operation, self.matrices), operation)

    def chain_pairs(self, digits: UInt8[Tensor, "E 28 28"], chain: Int[Tensor, "E depth"]) -> Pairs:
        """All pairs of each digit's chain, digit by digit."""
        images = [paste(digits)]
        for operation in chain.unbind(1):
            images.append(transform(images[-1], operation, self.matrices))
        befores, afters = torch.stack(images[:-1], 1), torch.stack(images[1:], 1)
        return Pairs(befores.flatten(0, 1), afters.flatten(0, 1), chain.flatten())

    def batches(self, split: str) -> Iterator[Pairs]:
        """All pairs of the chains of some digits at a time."""
        digits, chains = self.digits[split], self.chains[split]
        parts = zip(digits.split(DIGITS_AT_ONCE), chains.split(DIGITS_AT_ONCE), strict=True)
        return (self.chain_pairs(*part) for part in parts)

    def measure(
        self, model: DigitTransformation, pairs: Pairs
    ) -> dict[str, Float[Tensor, "pairs"]]:
        logits, trace = model(pairs.before, pairs.operation, return_trace=True)
        selecting, rule, changed = what_fired(trace)
        error = (logits.sigmoid() - pairs.after).square().mean((-2, -1))
        return {"error": error, "selecting": selecting, "rule": rule, "changed": changed}

    def judge(self, measured: dict[str, Tensor], split: str) -> dict[str, Any]:
        operation, error = self.truth[split].flatten(), measured["error"]
        mse = error.mean().item()
        by_operation = {
            name: error[operation == o].mean().item() for o, name in enumerate(self.operations)
        }
        metrics = {"score": mse, "mse": mse, "mse_by_operation": by_operation}
        if self.config.model == "mlp":
            return metrics
        table = usage_table(operation, measured["rule"], len(self.operations), self.rules)
        return {
            **metrics,
            "segregation": segregation(table),
            "nmi": normalised_mutual_information(table),
            "asked_by_operation": (measured["selecting"] == OPERATION).float().mean().item(),
            "changed_image": (measured["changed"] == IMAGE).float().mean().item(),
            "table": table.tolist(),
        }

    # -- traces and roll-outs of a trained model ----------------------------------------------

    def first_inputs(self, split: str, count: int | None) -> tuple[Tensor, ...]:
        """The first pairs of the chains of a split."""
        depth, chains = self.config.depth, self._chains_of(split)
        count = how_many("n", count, chains.numel(), split)
        some = slice(math.ceil(count / depth))
        pairs = self.chain_pairs(self.digits[split][some], chains[some])
        return pairs.before[:count], pairs.operation[:count]

    def trace(self, model: DigitTransformation, *inputs: Tensor) -> Trace:
        images, operation = inputs
        return traced(model, images, operation)[1]

    def first_episodes(
        self, split: str, count: int | None, steps: int | None
    ) -> tuple[Tensor, Tensor]:
        """The images of the first chains of a split, and their operations."""
        chains, depth = self._chains_of(split), self.config.depth
        count = how_many("n", count, len(chains), split)
        steps = how_many("steps", steps, depth, f"a chain of {split}", usual=depth)
        some = chains[:count, :steps]
        before, after, _ = self.chain_pairs(self.digits[split][:count], some)
        first = before.unflatten(0, some.shape)[:, :1]
        return torch.cat([first, after.unflatten(0, some.shape)], 1), some

    def rollout(self, model: DigitTransformation, images: Tensor, actions: Tensor) -> Rollout:
        return rolled_out(model, images, actions)

    def _chains_of(self, split: str) -> Int[Tensor, "E depth"]:
        if split not in self.chains:  # those of training are drawn anew at each step
            raise UserError(f"split: got {split!r}, expected {' or '.join(self.chains)}")
        return self.chains[split]

    def draw(self, model: DigitTransformation) -> dict[str, UInt8[ndarray, "height width 3"]]:
        """A few validation digits under every operation."""
        digits, operations = self.digits["validation"], len(self.operations)
        return {"digits": digits_picture(model, digits, self.matrices, operations)}

    @torch.no_grad()
    def test(self, model: DigitTransformation) -> dict[str, Any]:
        metrics = super().test(model)
        digits = self.digits["test"]
        metrics["pairs"] = self.truth["test"].numel()
        metrics["floors"] = self.floors("test")
        metrics["pictures"] = pictures(model, digits, self.matrices, len(self.operations))
        if not self.config.flip:
            metrics["composition"] = composition(model, digits, self.matrices)
            metrics["deletion"] = deletion(model, self.inputs(), self.matrices)
        return metrics

    def inputs(self) -> Float[Tensor, "B 64 64"]:
        """Input images of part of the test set, for measurements that need fewer."""
        return self.chain_pairs(self.digits["test"][:250], self.chains["test"][:250]).before

    def compare(self, start: DigitTransformation, model: DigitTransformation) -> dict[str, Any]:
        """What the added rule did to the model that it was added to."""
        return {"fifth": fifth(start, model, self.inputs(), self.matrices)}

    @torch.no_grad()
    def floors(self, split: str) -> dict[str, float]:
        """MSE of two baselines: an all-black picture, and the input itself."""
        black, copy, count = 0.0, 0.0, 0
        for before, after, _ in self.batches(split):
            black += after.square().mean((-2, -1)).sum().item()
            copy += (before - after).square().mean((-2, -1)).sum().item()
            count += len(after)
        return {"black": black / count, "copy": copy / count}


def cross_entropy(logits: Float[Tensor, "B 64 64"], pairs: Pairs) -> Float[Tensor, ""]:
    return F.binary_cross_entropy_with_logits(logits.float(), pairs.after)


def split(config: Config) -> dict[str, UInt8[Tensor, "E 28 28"]]:
    """The digits of training, validation (the last of the training digits) and test."""
    train, test = (digits.images for digits in mnist.load(config.world))
    held = config.validation_examples or len(train) // 12
    if held >= len(train):
        raise UserError(
            f"validation_examples: got {held}, expected fewer than the {len(train)} training digits"
        )
    return {
        "train": train[:-held][: config.train_examples],
        "validation": train[-held:],
        "test": test[: config.test_examples],
    }


def what_fired(trace: Trace) -> tuple[Tensor, Tensor, Tensor]:
    """The slot that chose the rule, the rule, and the slot it changed, of each pair."""
    rule, context = trace.rule[..., 0, :], trace.context[..., 0, :]
    return context.amax(-1), rule.amax(-1), (rule >= 0).long().argmax(-1)


def make_layer(config: Config, rules: int) -> OperandNPS | OneMLP:
    if config.model == "mlp":
        return OneMLP(config.slot_dim, config.hidden_dim * rules)
    of_layer = replace(config.rule_config, num_rules=rules)
    if config.model == "authors":
        return AuthorsNPS.from_config(of_layer, config.slot_dim, slots=SLOTS)
    layer = OperandNPS.from_config(
        of_layer, config.slot_dim, selecting_slot=None if config.image_selects else OPERATION
    )
    with torch.no_grad():
        layer.select.query.out.weight *= config.score_gain
    return layer


def make_operations(config: Config) -> int | OperationMLP:
    """The slots of the operations, for `DigitTransformation`."""
    count = len(OPERATIONS)
    return OperationMLP(count, config.slot_dim) if config.model == "authors" else count
