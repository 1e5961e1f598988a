"""The training loop: one for every experiment, and it never loses work.

`train(2n)` equals `train(n)`, stop, `train(n)`, bit for bit: weights, optimiser, random numbers and
metric log. So everything a step depends on is a function of the seed and the step, or is saved:
the order of an epoch is f(seed, epoch), noise comes from one saved generator, validation leaves
every generator as it was, and sums over the running epoch are part of the checkpoint.
"""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nps.errors import RunFailed, UserError
from nps.training import checkpoint, provenance, rng
from nps.training.checkpoint import Checkpoint, Tensors
from nps.training.config import TrainConfig
from nps.training.files import write_json
from nps.training.log import MetricLog
from nps.training.progress import ProgressLine
from nps.training.run import Run
from nps.training.signals import Interrupted, Signals
from nps.training.task import Task

SECONDS_BETWEEN_SAVES = 30.0
"""Saving is cheap but not free; between these the newest best model waits in memory."""


@dataclass
class Moment:
    """All that changes while training, besides the model and the optimiser."""

    noise: torch.Generator
    step: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    best_score: float = math.inf
    best_step: int = 0
    best: Tensors = field(default_factory=dict)
    log_length: int = 0


@dataclass(frozen=True)
class Settings:
    """How to run, as opposed to what: nothing here changes a result."""

    tensorboard: bool = False
    keep: int = 2
    """Checkpoints to keep; each carries the best model so far."""
    stop_at: int | None = None
    """Stop after this step as if by a signal, saved and ready to resume."""
    seconds_between_saves: float = SECONDS_BETWEEN_SAVES


def train(
    task: Task,
    config: TrainConfig,
    run: Run,
    seed: int,
    settings: Settings | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Train to the end of the config's schedule, from the newest whole checkpoint if any.

    The caller holds the run's lock and has claimed its config. Raises `Interrupted` after a signal,
    `RunFailed` when the loss or gradient is not finite or the disk is full.
    """
    settings = settings or Settings()
    device = next(task.model.parameters()).device
    optimiser = torch.optim.Adam(task.model.parameters(), lr=config.learning_rate, fused=True)
    moment = Moment(noise=rng.generator(device, seed, "noise"))
    found = checkpoint.newest(run.checkpoints, report)
    if found is not None:
        _restore(found, task.model, optimiser, moment)
    else:
        torch.manual_seed(rng.derive(seed, "global"))
    steps_an_epoch = task.examples // config.batch_size
    if steps_an_epoch == 0:
        raise UserError(
            f"batch_size: got {config.batch_size}, expected at most the {task.examples} "
            "training examples"
        )
    total = config.epochs * steps_an_epoch
    if moment.step >= total:
        report(f"{run.folder}: complete, {moment.step} steps")
        return
    if moment.step:
        report(f"{run.folder}: going on after step {moment.step} of {total}")

    sitting = provenance.describe(device) | {"from_step": moment.step}
    started = saved_at = time.monotonic()
    board = run.folder / "tensorboard" if settings.tensorboard else None
    log = MetricLog(run.metrics_path, moment.log_length, board)
    save = functools.partial(_save, run, task.model, optimiser, moment, log, settings.keep)
    order = _order(task.examples, seed, moment.step // steps_an_epoch)
    task.model.train()
    try:
        with Signals() as signals, ProgressLine(run.folder.name, total, moment.step) as line:
            while moment.step < total:
                epoch, position = divmod(moment.step, steps_an_epoch)
                if position == 0:
                    order = _order(task.examples, seed, epoch)
                index = order[position * config.batch_size :][: config.batch_size].to(device)
                _set_rate(optimiser, config, moment.step / total)
                _step(task, config, optimiser, index, moment, moment.step / total, run)
                moment.step += 1
                line.update(moment.step)
                if position == steps_an_epoch - 1:
                    row = _end_of_epoch(task, config, moment, epoch + 1, steps_an_epoch)
                    log.write(row)
                    line.update(moment.step, {k: v for k, v in row.items() if type(v) is float})
                    if time.monotonic() - saved_at > settings.seconds_between_saves:
                        save()
                        saved_at = time.monotonic()
                stopped = signals.received
                if moment.step == settings.stop_at:
                    stopped = signal.SIGTERM
                if stopped is not None and moment.step < total:
                    save()
                    raise Interrupted(stopped, f"after step {moment.step}")
            save()
    finally:
        log.close()
        sitting |= {
            "to_step": moment.step,
            "wall_seconds": round(time.monotonic() - started, 2),
        }
        with contextlib.suppress(RunFailed):  # on a full disk, the first error is the one to tell
            run.add_provenance(sitting)


def _order(examples: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch's examples: a function of seed and epoch alone."""
    return torch.randperm(examples, generator=rng.generator("cpu", seed, "order", epoch))


def _set_rate(optimiser: torch.optim.Optimizer, config: TrainConfig, progress: float) -> None:
    if config.final_learning_rate is None:
        return
    split = config.restart_at
    if split:
        progress = progress / split if progress < split else (progress - split) / (1.0 - split)
    low, high = config.final_learning_rate, config.learning_rate
    rate = low + (high - low) * 0.5 * (1.0 + math.cos(math.pi * progress))
    for group in optimiser.param_groups:
        group["lr"] = rate


def _step(
    task: Task,
    config: TrainConfig,
    optimiser: torch.optim.Optimizer,
    index: Tensor,
    moment: Moment,
    progress: float,
    run: Run,
) -> None:
    """One update. Nothing is changed when loss or gradient is not finite."""
    loss, extras = task.loss(index, moment.noise, progress)
    optimiser.zero_grad()
    loss.backward()
    gradients = [p.grad for p in task.model.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm(gradients)
    if not math.isfinite(value := loss.item()) or not torch.isfinite(norm):
        what = f"the loss is {value}" if not math.isfinite(value) else "the gradient is not finite"
        raise RunFailed(_not_finite(what, moment.step + 1, index, run))
    if config.clip_norm is not None:
        nn.utils.clip_grads_with_norm_(task.model.parameters(), config.clip_norm, norm)
    optimiser.step()
    for name, scalar in {"loss": loss, **extras}.items():
        moment.sums[name] = moment.sums.get(name, 0.0) + float(scalar.detach())


def _not_finite(what: str, step: int, index: Tensor, run: Run) -> str:
    found = checkpoint.steps(run.checkpoints)
    good = checkpoint.path_of(run.checkpoints, found[-1]) if found else "none"
    report = run.folder / "not-finite.json"
    write_json(report, {"what": what, "step": step, "batch": index.tolist()})
    shown = ", ".join(map(str, index[:8].tolist()))
    return (
        f"step {step}: {what} on the batch of examples [{shown}{', …' if len(index) > 8 else ''}] "
        f"(all in {report}); last good checkpoint: {good}"
    )


def _end_of_epoch(
    task: Task, config: TrainConfig, moment: Moment, epoch: int, steps: int
) -> dict[str, Any]:
    """The log's row: means over the epoch and, when due, the validation; remembers the best."""
    row: dict[str, Any] = {"epoch": epoch, "step": moment.step}
    row |= {name: total / steps for name, total in moment.sums.items()}
    moment.sums = {}
    if epoch % config.validate_every == 0 or epoch == config.epochs:
        task.model.eval()
        with torch.no_grad(), rng.untouched():
            result = task.validate()
        task.model.train()
        if result["score"] < moment.best_score:
            moment.best_score, moment.best_step = result["score"], moment.step
            moment.best = _copy(task.model.state_dict())
        row["validation"] = result
    return row


def _copy(tensors: dict[str, Tensor]) -> Tensors:
    return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def _save(
    run: Run,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    moment: Moment,
    log: MetricLog,
    keep: int,
) -> None:
    """Put the moment, the model and the optimiser into a checkpoint."""
    log.sync()
    state, random_states = rng.global_state()
    random_states["noise"] = moment.noise.get_state()
    tensors = {
        "model": _copy(model.state_dict()),
        "optimizer": _flatten(optimiser.state_dict()["state"]),
        "rng": random_states,
    }
    if moment.best:
        tensors["best"] = moment.best
    numbers = {
        "sums": moment.sums,
        "best_score": moment.best_score if moment.best else None,
        "best_step": moment.best_step,
        "log_length": log.length,
        "rng": state,
    }
    checkpoint.save(run.checkpoints, Checkpoint(moment.step, tensors, numbers), keep)


def _restore(
    found: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer, moment: Moment
) -> None:
    model.load_state_dict(found.tensors["model"])
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict(
        {"state": _unflatten(found.tensors["optimizer"]), "param_groups": groups}
    )
    moment.step = found.step
    moment.sums = found.state["sums"]
    moment.best = found.tensors.get("best", {})
    moment.best_score = found.state["best_score"] if moment.best else math.inf
    moment.best_step = found.state["best_step"]
    moment.log_length = found.state["log_length"]
    moment.noise.set_state(found.tensors["rng"]["noise"])
    rng.restore_global(found.state["rng"], found.tensors["rng"])


def _flatten(state: dict[int, dict[str, Tensor]]) -> Tensors:
    """Adam's state as flat names, e.g. `3.exp_avg`."""
    return {
        f"{number}.{name}": tensor.cpu().clone()
        for number, values in state.items()
        for name, tensor in values.items()
    }


def _unflatten(tensors: Tensors) -> dict[int, dict[str, Tensor]]:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = tensor
    return state
