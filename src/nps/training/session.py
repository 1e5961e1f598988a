"""One training session of a stack of seeds: restore, step, validate, save, until the end.

The host decides what comes next; all numbers stay on the device (`state.py`) and are fetched once
an epoch, for the log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from nps.capture import Captured
from nps.errors import RunFailed, UserError
from nps.files import write_json
from nps.threads import in_parallel
from nps.training import checkpoint, distributed, provenance, rng
from nps.training.batches import Batches
from nps.training.checkpoint import Checkpoint
from nps.training.config import Settings, TrainConfig
from nps.training.data import accumulate
from nps.training.identity import signature
from nps.training.log import MetricLog
from nps.training.plain_progress import PlainProgress, in_terminal
from nps.training.progress import ProgressLine
from nps.training.run import Run
from nps.training.signals import Interrupted, Signals
from nps.training.stack import Stack
from nps.training.state import State
from nps.training.step import Step
from nps.training.task import Task

SAVING = 0.05
"""Share of the time that saving may take: models may be large, and disks slow."""
STEPS_BETWEEN_AGREEMENTS = 20
"""How often several processes ask each other whether one of them received a signal."""
Means = Sequence[Mapping[str, float]]
"""Of the loss and its parts over the steps of an epoch, for each seed."""


class TrainingSession:
    """Trains a stack of seeds that are at the same step.

    Args:
        task: data, loss and evaluation.
        config: the settings of the training.
        runs: the run folder of each seed.
        models: the model of each seed, in the same order.
        device: where to train.
        settings: how to run.
        total: steps of the whole training.
        report: called with each line for the user.
    """

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        runs: Mapping[int, Run],
        models: Sequence[nn.Module],
        device: torch.device,
        settings: Settings,
        total: int,
        report: Callable[[str], None],
    ) -> None:
        self.task, self.config, self.settings, self.total = task, config, settings, total
        self.seeds, self.runs = list(runs), list(runs.values())
        identities = [run.identity() for run in self.runs]
        self.signatures = [None if each is None else signature(each) for each in identities]
        self.device, self.report = device, report
        self.state = State(Stack(models), config, total)
        size, share = config.batch_size, distributed.share()
        self.batches = Batches(task.data, size, task.noise_size, self.seeds, device, share)
        self.train_step = Step(task, config, self.state, self.batches, total, settings.precision)
        self.step = 0
        self.failed: dict[int, str] = {}
        self.logs: list[MetricLog] = []
        self._log_lengths = [0] * len(self.seeds)
        self._saved_at = time.monotonic()
        self._pause = settings.seconds_between_saves

    def restore(self, found: Sequence[Checkpoint | None]) -> None:
        """Continue from checkpoints, all of the same step, or from the beginning where None."""
        for s, saved in enumerate(found):
            if saved is None:
                continue
            if (what := self.state.misfit(s, saved)) is not None:
                why = f"does not fit this run: {what}; --fresh starts over"
                raise UserError(f"{saved.path}: {why}")
            self.runs[s].require_log(saved.state["log_length"], self.report)
            try:
                self.state.restore(s, saved)
                self.step, self._log_lengths[s] = saved.step, saved.state["log_length"]
            except (checkpoint.Misfit, KeyError) as error:
                raise UserError(f"{saved.path}: does not fit this run: {error}") from None

    def train(self) -> list[str]:
        """Train to the end, to a signal, or until no seed is left; returns why seeds failed."""
        try:
            with self._recorded():
                if distributed.is_first():
                    self.logs = [self._open_log(s) for s in range(len(self.seeds))]
                self._loop()
        finally:
            self.batches.close()
            for log in self.logs:
                log.close()
        return list(self.failed.values())

    # -- the loop -----------------------------------------------------------------------------

    def _loop(self) -> None:
        self.state.stack.model.train()
        phase: str | None = None
        step: Callable[[], None] = self.train_step
        program = self.settings.call is not None
        with Signals(raises=program) as signals, self._progress_line() as line:
            while self.step < self.total and len(self.failed) < len(self.seeds):
                if (now := self.task.phase(self.step / self.total)) != phase:
                    phase = self.train_step.phase = now  # another program: capture it anew
                    step = Captured(self.train_step) if self._captures else self.train_step
                self.batches.prepare(self.step)
                step()
                self.step += 1
                line.update(self.step)
                epoch, position = divmod(self.step, self.batches.steps_per_epoch)
                if self.device.type == "cpu" or position == 0:
                    self._find_failures()
                if position == 0:
                    line.update(self.step, self._end_epoch(epoch))
                self._stop_if_asked(signals)
            self._save()

    def _end_epoch(self, epoch: int) -> dict[str, float]:
        """Log, validate, draw, save; returns the first healthy seed's means to show."""
        means = [
            {name: total / self.batches.steps_per_epoch for name, total in sums.items()}
            for sums in self.state.take_sums()
        ]
        if not distributed.is_first():
            return {}
        validation = self._evaluate(epoch, means)
        healthy = self._healthy()
        for s in healthy:
            row: dict[str, Any] = {"epoch": epoch, "step": self.step, **means[s]}
            if validation:
                row["validation"] = validation[s]
            self.logs[s].write(row)
        if time.monotonic() - self._saved_at > self._pause:
            self._save()
        return means[healthy[0]] if healthy else {}

    def _stop_if_asked(self, signals: Signals) -> None:
        """After a signal to any of the processes: save and raise `Interrupted`."""
        if self.step == self.settings.stop_at:
            received: int | None = signal.SIGTERM
        elif self.step % STEPS_BETWEEN_AGREEMENTS and distributed.active():
            received = None
        else:
            received = distributed.agree(signals.received, self.device)
        if received is not None and self.step < self.total:
            self._find_failures()
            self._save()
            raise Interrupted(received, f"after step {self.step}")

    @property
    def _captures(self) -> bool:
        return self.settings.capture and self.device.type == "cuda"

    # -- evaluation ---------------------------------------------------------------------------

    def _evaluate(self, epoch: int, means: Means) -> dict[int, dict[str, Any]]:
        """Validate and draw if it is time to, with the averaged weights if there are any."""
        last, draw_every = epoch == self.config.epochs, self.settings.draw_every
        validates = last or epoch % self.config.validate_every == 0
        draws = last or (draw_every is not None and epoch % draw_every == 0)
        if not validates and not draws:
            return {}
        stack = self.state.stack
        with torch.no_grad(), stack.using(self.state.evaluated):
            stack.model.eval()
            metrics = self._validate(means) if validates else {}
            if draws:
                self._draw(epoch)
            stack.model.train()
        return metrics

    def _validate(self, means: Means) -> dict[int, dict[str, Any]]:
        """The metrics of each healthy seed; the best models are kept."""
        stack, task = self.state.stack, self.task
        rng.seed_global(self.device, self.seeds[0], "validation", self.step)
        parts = []
        for batch in task.batches("validation"):
            values = stack.each(lambda model, batch=batch: task.measure(model, batch))
            parts.append({name: value.cpu() for name, value in values.items()})
        measured = accumulate(parts, dim=1)
        metrics = {
            s: task.judge({name: value[s] for name, value in measured.items()}, "validation")
            for s in self._healthy()
        }
        for s, judged in metrics.items():
            judged["score"] = task.score(judged, means[s])
        scores = [metrics[s]["score"] if s in metrics else math.inf for s in range(stack.size)]
        self.state.best.consider(scores, self.step)
        return metrics

    def _draw(self, epoch: int) -> None:
        """Write the pictures of one seed to figures/, a file for each picture and epoch.

        Of a stack only the first healthy seed is drawn: fifty sets of pictures help nobody. A
        picture that cannot be drawn or written is reported; it must not cost a training.
        """
        for s in self._healthy()[:1]:
            rng.seed_global(self.device, self.seeds[s], "draw", self.step)
            try:
                for name, picture in self.task.draw(self.state.stack.model_of(s)).items():
                    self.logs[s].write_picture(name, picture, epoch, self.step)
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                self.report(f"{self.runs[s].folder}: no pictures of epoch {epoch}: {why}")

    # -- losses and gradients that are not finite ---------------------------------------------

    def _healthy(self) -> list[int]:
        """The seeds that have not failed, by their place in the stack."""
        return [s for s in range(len(self.seeds)) if s not in self.failed]

    def _find_failures(self) -> None:
        state = self.state
        if bool(state.alive.all()):
            return
        for s, alive in enumerate(state.alive.tolist()):
            if alive or s in self.failed:
                continue
            self.failed[s] = self._describe_failure(s)
            if len(self.seeds) > 1:
                self.report(f"seed {self.seeds[s]} stopped, the others continue: {self.failed[s]}")

    def _describe_failure(self, s: int) -> str:
        """One line for the user; the whole batch goes to not-finite.json."""
        step, loss = int(self.state.steps_done[s]), float(self.state.last_loss[s])
        what = "the gradient is not finite" if math.isfinite(loss) else f"the loss is {loss}"
        epoch, position = divmod(step, self.batches.steps_per_epoch)
        batch = self.batches.order(self.seeds[s], epoch)[position].tolist()
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

    # -- files --------------------------------------------------------------------------------

    def _save(self) -> None:
        """Write a checkpoint for every healthy seed; the others keep their last good one."""
        began = self._saved_at = time.monotonic()
        if not distributed.is_first():
            return
        healthy = self._healthy()
        stack = self._ids(healthy) if len(self.seeds) > 1 else {}
        folders, saved = [self.runs[s].checkpoints for s in healthy], []
        for s in healthy:
            self.logs[s].sync()
            state = self.state.to_checkpoint(s, self.step, self.logs[s].length)
            saved.append(dataclasses.replace(state, run=self.signatures[s], stack=stack))
        # In parallel: a save mostly waits for the disk.
        pairs = list(zip(folders, saved, strict=True))
        in_parallel(lambda pair: checkpoint.write(*pair), pairs, 8)
        # Only now: killed in between, all seeds still have the step before (`resume.py`).
        for folder in folders:
            checkpoint.prune(folder, self.step, self.settings.keep)
        self._saved_at = time.monotonic()
        wanted = self.settings.seconds_between_saves
        if wanted > 0:  # 0: after every epoch, whatever it costs
            self._pause = max(wanted, (self._saved_at - began) / SAVING)

    def _ids(self, members: Sequence[int]) -> dict[str, str | None]:
        """Seed -> id of its run, if it has one."""
        return {str(self.seeds[s]): (self.signatures[s] or {}).get("id") for s in members}

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[None]:
        """Write provenance.json, at the start (a killed session leaves a trace) and at the end."""
        session = provenance.describe(self.device, self.settings.call) | {
            "from_step": self.step,
            "precision": self.settings.precision,
            "captured": self._captures,
            "seeds_in_stack": len(self.seeds),
            "processes": distributed.share()[1],
        }
        if self.task.fingerprint is not None:
            session["data"] = self.task.fingerprint
        runs = self.runs if distributed.is_first() else []
        began = time.monotonic()
        session |= {"to_step": self.step, "wall_seconds": 0.0}
        for run in runs:
            run.begin_session(session)
        try:
            yield
        finally:
            seconds = round(time.monotonic() - began, 2)
            session |= {"to_step": self.step, "wall_seconds": seconds}
            with contextlib.suppress(RunFailed):  # on a full disk, the first error is reported
                for run in runs:
                    run.end_session(session)

    def _open_log(self, s: int) -> MetricLog:
        run = self.runs[s]
        board = run.folder / "tensorboard" if self.settings.tensorboard else None
        return MetricLog(run.metrics_path, self._log_lengths[s], board, self.step)

    def _progress_line(self) -> ProgressLine | PlainProgress:
        count = len(self.seeds)
        title = self.runs[0].folder.name if count == 1 else f"{count} seeds"
        silent = not distributed.is_first() or not self.settings.progress
        if self.settings.call is not None and not silent and not in_terminal():
            return PlainProgress(title, self.total, self.step)
        return ProgressLine(title, self.total, self.step, silent=silent)
