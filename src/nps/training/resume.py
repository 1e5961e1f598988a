"""Which checkpoint each seed continues from.

The seeds of a stack continue together, from the newest step that all of them have. A process that
is killed while it saves a stack leaves some seeds one checkpoint ahead. Continued in two smaller
stacks they would equal an uninterrupted run to float tolerance only, and take twice as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nps.errors import UserError
from nps.training import checkpoint, distributed, stored
from nps.training.checkpoint import Checkpoint, Found
from nps.training.run import Run

Starts = dict[int, Checkpoint | None]
"""The checkpoint that each seed continues from; None for the beginning."""


def find_starts(runs: Mapping[int, Run], report: Callable[[str], None]) -> Starts:
    """The checkpoint to continue from, for each seed.

    Makes room for new checkpoints: damaged ones are renamed, unfinished ones and those ahead of the
    stack are deleted. Nothing changes if a checkpoint is refused.
    """
    found = {seed: _find(run) for seed, run in runs.items()}
    starts: Starts = {seed: each.checkpoint for seed, each in found.items()}
    _bring_together(starts, runs, report)
    distributed.wait_for_all()  # the first process is about to change what the others read
    if distributed.is_first():
        for seed, run in runs.items():
            _tidy(run, found[seed], _step(starts[seed]), report)
    distributed.wait_for_all()
    return starts


def _find(run: Run) -> Found:
    try:
        for step in checkpoint.steps(run.checkpoints):
            stored.require_folder(checkpoint.path_of(run.checkpoints, step))
        return checkpoint.find(run.checkpoints, run.identity())
    except (checkpoint.Unreadable, checkpoint.Foreign) as error:
        raise UserError(f"{error}; --fresh starts over") from None


def _tidy(run: Run, found: Found, start: int, report: Callable[[str], None]) -> None:
    checkpoint.remove_unfinished(run.checkpoints)
    for path, problem in found.damaged.items():
        report(f"{problem}, set aside as {checkpoint.set_aside(path).name}")
    if found.damaged and found.checkpoint is not None:
        report(f"using {found.checkpoint.path}")
    checkpoint.remove_after(run.checkpoints, start)


def _bring_together(starts: Starts, runs: Mapping[int, Run], report: Callable[[str], None]) -> None:
    """Take seeds that are ahead of others of their stack back to the newest common step."""
    ids = {str(seed): (run.identity() or {}).get("id") for seed, run in runs.items()}
    for seed, run in runs.items():
        saved = starts[seed]
        if saved is None:
            continue
        # A run with another id was started over since, and is no longer part of that stack.
        stack = [s for s in runs if (str(s), ids[str(s)]) in saved.stack.items()]
        members = [s for s in stack if _step(starts[s]) <= saved.step]
        if all(_step(starts[s]) == saved.step for s in members):
            continue
        common = _common_step([runs[s] for s in members])
        if common == 0 and not _killed_in_first_save(run, saved):
            continue
        where = f"step {common}" if common else "the beginning"
        what = f"not every seed of its stack has step {saved.step}"
        report(f"{run.folder}: {what}; all of them go on from {where}")
        for s in members:
            path = checkpoint.path_of(runs[s].checkpoints, common)
            starts[s] = runs[s].load(path) if common else None


def _step(saved: Checkpoint | None) -> int:
    return 0 if saved is None else saved.step


def _common_step(runs: Sequence[Run]) -> int:
    """The newest step of which all runs have a whole checkpoint; 0 if there is none."""
    found = [set(checkpoint.steps(run.checkpoints)) for run in runs]
    for step in sorted(set.intersection(*found), reverse=True):
        try:
            for run in runs:
                run.load(checkpoint.path_of(run.checkpoints, step))
        except checkpoint.Damaged:
            continue
        return step
    return 0


def _killed_in_first_save(run: Run, saved: Checkpoint) -> bool:
    """Whether its only checkpoint was written by a session that never recorded its end."""
    sessions = run.provenance()
    only = checkpoint.steps(run.checkpoints) == [saved.step]
    return only and bool(sessions) and sessions[-1].get("to_step", saved.step) < saved.step
