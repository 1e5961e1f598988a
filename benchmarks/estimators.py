"""Bias and variance of the gradients that hard choices can learn from, on coordinate arithmetic.

    python benchmarks/estimators.py runs/estimators.jsonl

The model can be so small that its expected loss is a sum over 16 outcomes, so the exact gradient is
known. Each estimator is drawn many times on one batch of the training set, at initialisation and
after some epochs of training as in the paper. One JSON line a seed, model and estimator; the
gradients of selection and of binding are compared separately. docs/notes/recipe.md reads it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nps.experiments.arithmetic.config import Config
from nps.experiments.arithmetic.presets import ENERGY
from nps.experiments.arithmetic.task import ArithmeticTask, error_of_each
from nps.models.arithmetic import CoordinateArithmetic
from nps.rules import free_energy, gumbel, hard_choice
from nps.training import provenance
from nps.training.task import Batch

CONFIG = replace(ENERGY, objective="expected", reading="any")
"""The network of our preset, trained as in the paper, without dropout."""
SEEDS, EPOCHS, DRAWS, SAMPLES = 5, 5, 300, 4
PARTS = ("selection", "binding")


class Problem:
    """A model and a batch, and all that it could do to it."""

    def __init__(self, model: CoordinateArithmetic, before: Tensor, after: Tensor) -> None:
        self.model, self.before, self.after = model.train(), before, after

    def outcomes(self) -> tuple[Tensor, Tensor]:
        """Log-probability and loss of the 16 outcomes of each example."""
        log_prior, updated = self.model.every_update(self.before, self.after)
        losses = error_of_each(self.before, updated, self.after)
        return log_prior.flatten(1), losses.flatten(1)

    def gradient(self, loss: Tensor) -> dict[str, Tensor]:
        """By part, as one vector each."""
        layer = self.model.layer
        groups = {
            "selection": [*layer.select.parameters(), layer.rules.embedding],
            "binding": [*layer.bind.parameters()],
        }
        names, parameters = [], []
        for name, group in groups.items():
            names += [name] * len(group)
            parameters += group
        found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        return {
            part: torch.cat(
                [g.flatten() for name, g in zip(names, found, strict=True) if name == part]
            )
            for part in PARTS
        }

    def mixed(self, weights: Tensor) -> Tensor:
        """The loss if the slots are changed by a weighted sum of all updates."""
        _, updated = self.model.every_update(self.before, self.after)
        change = updated - self.before[:, :, None, None]
        moved = torch.einsum("bprc,bprcd->bpd", weights.view(change.shape[:-1]), change)
        return (self.before + moved - self.after).square().mean()


def expected(problem: Problem) -> Tensor:
    """The exact expected loss."""
    log_prior, losses = problem.outcomes()
    return (log_prior.exp() * losses).sum(-1).mean()


def straight_through(problem: Problem) -> Tensor:
    """The layer as it is: the gradient passes through the rule's and the chosen slots' inputs."""
    predicted = problem.model(problem.before, problem.after)
    loss: Tensor = (predicted - problem.after).square().mean()
    return loss


def in_every_context(problem: Problem) -> Tensor:
    """The same with `context_gradient="update"`."""
    layer = problem.model.layer
    layer.context_gradient = "update"
    loss = straight_through(problem)
    layer.context_gradient = "slot"
    return loss


def over_outcomes(problem: Problem) -> Tensor:
    """Straight-through Gumbel over the 16 outcomes: the gradient knows what each would do."""
    log_prior, _ = problem.outcomes()
    return problem.mixed(hard_choice(log_prior, uniform=torch.rand_like(log_prior)))


def reinmax(problem: Problem) -> Tensor:
    """ReinMax (Liu et al., 2023) over the 16 outcomes: second order instead of first."""
    logits, _ = problem.outcomes()
    drawn = draw(logits)
    prior = logits.softmax(-1)
    middle = (((drawn + prior) / 2).log().detach() - logits.detach() + logits).softmax(-1)
    soft = 2 * middle - prior / 2
    return problem.mixed(drawn + soft - soft.detach())


def leave_one_out(problem: Problem) -> Tensor:
    """REINFORCE with 4 samples, each judged by the mean of the others (Kool et al., 2019)."""
    log_prior, losses = problem.outcomes()
    drawn = torch.stack([draw(log_prior) for _ in range(SAMPLES)])
    loss = (drawn * losses.detach()).sum(-1)
    others = (loss.sum(0) - loss) / (SAMPLES - 1)
    return ((loss - others) * (drawn * log_prior).sum(-1)).mean()


def energy(problem: Problem) -> Tensor:
    """The free energy: the gradient of another objective, which is what the recipe minimises."""
    return free_energy(*problem.outcomes(), CONFIG.energy_temperature, dims=1).mean()


ESTIMATORS: dict[str, Callable[[Problem], Tensor]] = {
    "straight-through, the paper's": straight_through,
    'context_gradient="update"': in_every_context,
    "straight-through over outcomes": over_outcomes,
    "ReinMax over outcomes": reinmax,
    "leave-one-out, 4 samples": leave_one_out,
    "free energy": energy,
}


def draw(log_prior: Tensor) -> Tensor:
    """A one-hot sample of each row."""
    noisy = log_prior.detach() + gumbel(torch.rand_like(log_prior))
    return torch.nn.functional.one_hot(noisy.argmax(-1), log_prior.shape[-1]).to(log_prior)


def quality(problem: Problem, estimator: Callable[[Problem], Tensor]) -> dict[str, Any]:
    """Cosine of the mean to the exact gradient; bias and variance relative to its squared norm."""
    exact, found = problem.gradient(expected(problem)), {}
    count = 2 if estimator is energy else DRAWS  # nothing is drawn
    draws = [problem.gradient(estimator(problem)) for _ in range(count)]
    for part in PARTS:
        true, drawn = exact[part], torch.stack([each[part] for each in draws])
        mean, scale = drawn.mean(0), true.square().sum()
        variance = drawn.var(0).sum()
        # The mean of finitely many draws is longer, and further away, than the estimator's own.
        noise = variance / count
        bias = ((mean - true).square().sum() - noise).clamp(min=0).sqrt()
        norm = (mean.square().sum() - noise).clamp(min=0).sqrt()
        found[part] = {
            "cosine": (mean @ true / (norm * scale.sqrt())).item(),
            "bias": (bias / scale.sqrt()).item(),
            "variance": (variance / scale).item(),
            "norm": (norm / scale.sqrt()).item(),
        }
    return found


def trained(task: ArithmeticTask, model: CoordinateArithmetic, config: Config) -> None:
    """Some epochs as in the paper."""
    adam = torch.optim.Adam(model.parameters(), config.learning_rate)
    steps = EPOCHS * (config.train_examples // config.batch_size)
    for step in range(steps):
        index = torch.randint(config.train_examples, (config.batch_size,))
        noise = torch.rand(config.batch_size, task.noise_size)
        loss, _ = task.loss(model, Batch(index, noise, torch.tensor(step / steps), "explore"))
        adam.zero_grad()
        loss.backward()
        adam.step()


def measure(seed: int) -> list[dict[str, Any]]:
    torch.manual_seed(seed)
    task = ArithmeticTask(CONFIG, torch.device("cpu"))
    model, lines = task.make_model(seed), []
    batch = torch.randperm(CONFIG.train_examples)[: CONFIG.batch_size]
    data = task.sets["train"]
    for epochs in (0, EPOCHS):
        if epochs:
            trained(task, model, CONFIG)
        problem = Problem(model, data.before[batch], data.after[batch])
        for name, estimator in ESTIMATORS.items():
            found = quality(problem, estimator)
            lines.append({"seed": seed, "epochs": epochs, "estimator": name, **found})
    return lines


def main() -> None:
    path = Path(sys.argv[1])
    lines = [line for seed in range(SEEDS) for line in measure(seed)]
    given = provenance.describe(torch.device("cpu")) | {
        "command": f"python benchmarks/estimators.py {path}",
        "seeds": SEEDS,
        "draws": DRAWS,
        "batch": CONFIG.batch_size,
    }
    path.write_text("".join(json.dumps(line) + "\n" for line in [given, *lines]))
    for epochs in (0, EPOCHS):
        for part in PARTS:
            print(f"{part} after {epochs} epochs: cosine, bias, variance, norm (medians)")
            for name in ESTIMATORS:
                rows = [x[part] for x in lines if (x["epochs"], x["estimator"]) == (epochs, name)]
                medians = [statistics.median(row[key] for row in rows) for key in rows[0]]
                print(f"  {name:32}", *(f"{value:8.3g}" for value in medians))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main()
