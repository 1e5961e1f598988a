"""One go at a stack of seeds: steps, epochs, validation, saving, until the end or a signal.

The host decides what comes next; the numbers stay on the device, and are fetched when a line is
logged.
"""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from nps.capture import Captured
from nps.errors import RunFailed
from nps.files import write_json
from nps.training import checkpoint, distributed, provenance, rng
from nps.training.checkpoint import Checkpoint
from nps.training.config import TrainConfig
from nps.training.feed import Feed
from nps.training.log import MetricLog
from nps.training.precision import Precision
from nps.training.progress import ProgressLine
from nps.training.run import Run
from nps.training.saving import Best, from_checkpoint, to_checkpoint
from nps.training.signals import Interrupted, Signals
from nps.training.stack import Stack
from nps.training.task import Task
from nps.training.update import Update

SECONDS_BETWEEN_SAVES = 30.0
"""Saving is cheap but not free; between these the newest best model waits in memory."""
STEPS_BETWEEN_AGREEMENTS = 20
"""With several processes, how often they ask each other whether one was told to stop."""


@dataclass(frozen=True)
class Settings:
    """How to run, as opposed to what: nothing here changes a result, precision apart."""

    tensorboard: bool = False
    keep: int = 2
    """Checkpoints to keep; each carries the best model so far."""
    stop_at: int | None = None
    """Stop after this step as if by a signal, saved and ready to resume."""
    seconds_between_saves: float = SECONDS_BETWEEN_SAVES
    capture: bool = True
    """On CUDA, replay the step as a graph."""
    precision: Precision = "float32"
    seeds_at_once: int | None = None
    """Most seeds in a stack; by default as many as fit in memory."""


class Sitting:
    """One go at a stack of seeds that are equally far."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        runs: Mapping[int, Run],
        device: torch.device,
        settings: Settings,
        total: int,
    ) -> None:
        self.task, self.config, self.settings, self.total = task, config, settings, total
        self.seeds, self.runs = list(runs), list(runs.values())
        self.device = device
        share = distributed.share()
        self.stack = Stack([task.make_model(seed) for seed in self.seeds])
        self.feed = Feed(
            task.examples, config.batch_size, task.noise_size, self.seeds, device, share
        )
        self.update = Update(task, config, self.stack, self.feed, total, settings.precision)
        self.best = Best.none_yet(self.stack)
        self.step = 0
        self.failed: dict[int, str] = {}
        self.logs: list[MetricLog] = []
        self._log_lengths = [0] * len(self.seeds)

    def restore(self, found: Sequence[Checkpoint | None]) -> None:
        """Go where the checkpoints left off; all are at the same step, or none is there."""
        for s, one in enumerate(found):
            if one is None:
                continue
            from_checkpoint(one, self.update, self.best, s)
            self.step = one.step
            self._log_lengths[s] = one.state["log_length"]
        if found[0] is None:
            torch.manual_seed(rng.derive(self.seeds[0], "global"))
        else:
            rng.restore_global(found[0].state["rng"], found[0].tensors["rng"])

    def train(self, report: Callable[[str], None]) -> list[str]:
        """To the end, a signal, or until no seed is left; what failed and why."""
        start = self.step
        told = provenance.describe(self.device) | {"from_step": start}
        told |= {"precision": self.settings.precision, "captured": self._captures}
        told |= {"seeds_in_stack": len(self.seeds), "processes": distributed.share()[1]}
        if self.task.fingerprint is not None:
            told["data"] = self.task.fingerprint
        began = time.monotonic()
        self.stack.model.train()
        try:
            if distributed.is_first():
                self.logs = [self._open_log(s) for s in range(len(self.seeds))]
            self._steps(report)
        finally:
            for log in self.logs:
                log.close()
            told |= {"to_step": self.step, "wall_seconds": round(time.monotonic() - began, 2)}
            with contextlib.suppress(RunFailed):  # on a full disk, the first error is to be told
                for run in self.runs if distributed.is_first() else ():
                    run.add_provenance(told)
        return list(self.failed.values())

    @property
    def _captures(self) -> bool:
        return self.settings.capture and self.device.type == "cuda"

    def _open_log(self, s: int) -> MetricLog:
        run = self.runs[s]
        board = run.folder / "tensorboard" if self.settings.tensorboard else None
        return MetricLog(run.metrics_path, self._log_lengths[s], board)

    # -- the steps ----------------------------------------------------------------------------

    def _steps(self, report: Callable[[str], None]) -> None:
        saved_at = time.monotonic()
        count = len(self.seeds)
        title = self.runs[0].folder.name if count == 1 else f"{count} seeds"
        phase, step = None, self.update.__call__
        with Signals() as signals, self._line(title) as line:
            while self.step < self.total and len(self.failed) < count:
                if (now := self.task.phase(self.step / self.total)) != phase:
                    phase = self.update.phase = now
                    step = Captured(self.update) if self._captures else self.update
                self.feed.prepare(self.step)
                step()
                self.step += 1
                line.update(self.step)
                epoch, position = divmod(self.step, self.feed.steps_an_epoch)
                if self.device.type == "cpu" or position == 0:
                    self._notice_failures(report)
                if position == 0:
                    line.update(self.step, self._end_of_epoch(epoch))
                    if time.monotonic() - saved_at > self.settings.seconds_between_saves:
                        self._save()
                        saved_at = time.monotonic()
                stopped = self._stopped(signals)
                if stopped is not None and self.step < self.total:
                    self._notice_failures(report)
                    self._save()
                    raise Interrupted(stopped, f"after step {self.step}")
            self._save()

    def _line(self, title: str) -> ProgressLine:
        return ProgressLine(title, self.total, self.step, silent=not distributed.is_first())

    def _stopped(self, signals: Signals) -> int | None:
        if self.step == self.settings.stop_at:
            return signal.SIGTERM
        if self.step % STEPS_BETWEEN_AGREEMENTS and distributed.active():
            return None
        return distributed.agree(signals.received, self.device)

    # -- numbers that are not finite ----------------------------------------------------------

    def _notice_failures(self, report: Callable[[str], None]) -> None:
        if bool(self.update.alive.all()):
            return
        for s, alive in enumerate(self.update.alive.tolist()):
            if alive or s in self.failed:
                continue
            step, loss = int(self.update.lived[s]), float(self.update.last_loss[s])
            self.failed[s] = self._tell_failure(s, step, loss)
            if len(self.seeds) > 1:
                report(f"seed {self.seeds[s]} stopped, the others go on: {self.failed[s]}")

    def _tell_failure(self, s: int, step: int, loss: float) -> str:
        what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
        epoch, position = divmod(step, self.feed.steps_an_epoch)
        batch = self.feed.order(self.seeds[s], epoch)[position].tolist()
        run = self.runs[s]
        found = checkpoint.steps(run.checkpoints)
        good = checkpoint.path_of(run.checkpoints, found[-1]) if found else "none"
        path = run.folder / "not-finite.json"
        if distributed.is_first():
            write_json(path, {"what": what, "step": step + 1, "batch": batch})
        shown = ", ".join(map(str, batch[:8])) + (", …" if len(batch) > 8 else "")
        return (
            f"step {step + 1}: {what} on the batch of examples [{shown}] (all in {path}); "
            f"last good checkpoint: {good}"
        )

    # -- the end of an epoch ------------------------------------------------------------------

    def _end_of_epoch(self, epoch: int) -> dict[str, float]:
        """Write the logs' rows and remember the best; the first living seed's means to show."""
        names = list(self.update.sums)
        sums = torch.stack([self.update.sums[name] for name in names]).T.tolist()
        for total in self.update.sums.values():
            total.zero_()
        if not distributed.is_first():
            return {}
        due = epoch % self.config.validate_every == 0 or epoch == self.config.epochs
        judgements = self._validate() if due else None
        shown: dict[str, float] = {}
        for s, log in enumerate(self.logs):
            if s in self.failed:
                continue
            means = {n: v / self.feed.steps_an_epoch for n, v in zip(names, sums[s], strict=True)}
            row: dict[str, Any] = {"epoch": epoch, "step": self.step, **means}
            if judgements is not None:
                row["validation"] = judgements[s]
            log.write(row)
            shown = shown or means
        return shown

    def _validate(self) -> dict[int, dict[str, Any]]:
        """The judgement on each seed that is well."""
        model = self.stack.model
        model.eval()
        with torch.no_grad(), rng.untouched():
            measured = self.stack.each(self.task.measure)
        model.train()
        measured = {name: values.cpu() for name, values in measured.items()}
        judgements = {
            s: self.task.judge({name: values[s] for name, values in measured.items()})
            for s in range(len(self.seeds))
            if s not in self.failed  # of what it has become nothing can be said
        }
        scores = [
            judgements[s]["score"] if s in judgements else math.inf for s in range(len(self.seeds))
        ]
        self.best.consider(self.stack, scores, self.step)
        return judgements

    # -- saving -------------------------------------------------------------------------------

    def _save(self) -> None:
        """A checkpoint for every seed that is well; the others keep their last good one."""
        if not distributed.is_first():
            return
        moments: list[tuple[Run, Checkpoint]] = []
        for s, (run, log) in enumerate(zip(self.runs, self.logs, strict=True)):
            if s not in self.failed:
                log.sync()
                moments.append(
                    (run, to_checkpoint(self.update, self.best, s, self.step, log.length))
                )
        keep = self.settings.keep
        with ThreadPoolExecutor(8) as pool:  # a save waits for the disk most of the time
            for _ in pool.map(lambda m: checkpoint.save(m[0].checkpoints, m[1], keep), moments):
                pass
