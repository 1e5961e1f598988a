"""What each accelerated form gains: whole training steps of the presets with it and without it.

Every accelerated operation is switched off in turn, and the captured step is timed in alternation
with the step that has all of them. An operation earns its place if some published preset's step is
at least 1.25 times slower without it. The data are random arrays of the right shapes, so the script
needs no files.

    python benchmarks/kernel_gains.py --out gains.jsonl          on a GPU, minutes
    python benchmarks/kernel_gains.py --tiny                     on a CPU, eager: does it run?
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

from nps import kernels
from nps.bench.timing import burst, burst_size
from nps.capture import WARM_UP, Captured
from nps.experiments import find_preset
from nps.training.batches import Batches
from nps.training.precision import set_precision
from nps.training.stack import Stack
from nps.training.state import State
from nps.training.step import Step
from nps.worlds import atari, mnist
from nps.worlds.atari_games import GAMES

PRESETS = {
    "blocks-nps": (5, "bf16"),
    "blocks-gnn": (5, "bf16"),
    "blocks-fixed-nps": (5, "tf32"),
    "blocks-slots-nps": (1, "bf16"),
    "atari-nps": (20, "bf16"),
    "atari-gnn": (20, "bf16"),
    "mnist": (10, "bf16"),
    "arithmetic": (50, "float32"),
}
"""Seeds and precision of the published runs."""
TOGETHER = {
    "conv2d_cudnn + conv2d_stack": ("conv2d_cudnn", "conv2d_stack"),
    "feature_norm + attention": ("feature_norm", "attention"),
    "norm_relu_sum + bias_cast": ("norm_relu_sum", "bias_cast"),
}
"""Operations that may only gain together: without the one, another takes its place."""
TINY: dict[str, dict[str, Any]] = {
    "blocks": {
        "train_episodes": 4, "train_steps": 4, "validation_episodes": 4, "test_episodes": 4,
        "batch_size": 4, "hidden_dim": 16,
    },
    "atari": {
        "train_episodes": 8, "validation_episodes": 4, "test_episodes": 4,
        "batch_size": 4, "hidden_dim": 16,
    },
    "mnist": {"batch_size": 2},
    "arithmetic": {"batch_size": 4},
}  # fmt: skip


@contextlib.contextmanager
def without(*operations: str) -> Iterator[None]:
    """Use the plain form of some operations."""
    own = [name for name in operations if name in kernels.OPERATIONS]
    with contextlib.ExitStack() as stack:
        stack.enter_context(kernels.without(*own))
        for name in set(operations).difference(own):
            for patch in OTHERS[name]():
                stack.enter_context(patch)
        yield


def plain_rule_stage() -> list[Any]:
    """The stages of rule layers in torch's operations."""
    return [mock.patch("nps.kernels.rules.supported", return_value=False)]


def plain_linear() -> list[Any]:
    """Linear layers whose bias stays in float32 under autocast."""
    users = ("nps.networks", "nps.interactions.gnn", "nps.perception.slot_encoder")
    return [mock.patch(f"{user}.linear", F.linear) for user in users]


OTHERS: dict[str, Callable[[], list[Any]]] = {
    "rule_stage": plain_rule_stage,
    "bias_cast": plain_linear,
}
"""Accelerations outside of nps.kernels, switched off by patching."""
OPERATIONS = (*kernels.OPERATIONS, *OTHERS)


@contextlib.contextmanager
def random_data(tiny: bool) -> Iterator[None]:
    """Random arrays in the place of the files of Atari and MNIST."""

    def play(game: str, settings: Any) -> atari.Sets:
        def some(episodes: int) -> atari.AtariEpisodes:
            frames = torch.randint(256, (episodes, 12, 3, 50, 50), dtype=torch.uint8)
            return atari.AtariEpisodes(
                frames, torch.randint(len(GAMES[game].actions), (episodes, 10))
            )

        return atari.Sets(some(settings.train), some(settings.test))

    def digits(world: str = "mnist") -> mnist.Sets:
        def some(count: int) -> mnist.Digits:
            images = torch.randint(256, (count, 28, 28), dtype=torch.uint8)
            return mnist.Digits(images, torch.randint(10, (count,)))

        return mnist.Sets(*(some(count) for count in ((60_000, 100) if tiny else (60_000, 10_000))))

    with mock.patch.object(atari, "load", play), mock.patch.object(mnist, "load", digits):
        yield


class Steps:
    """The training step of a preset, ready to be built with some operations switched off."""

    def __init__(self, preset: str, seeds: int, precision: Any, device: torch.device, tiny: bool):
        experiment, found = find_preset(preset)
        self.config = found.config
        if tiny:
            self.config = dataclasses.replace(self.config, **TINY[experiment.name])
        self.seeds, self.precision, self.device = seeds, precision, device
        set_precision(precision)
        with random_data(tiny):
            self.task = experiment.make_task(self.config, device)

    def build(self, *off: str) -> Callable[[], None]:
        """A step without some operations, warmed up, and captured on CUDA."""
        task, config = self.task, self.config
        seeds = range(self.seeds)
        batches = Batches(task.data, config.batch_size, task.noise_size, seeds, self.device)
        batches.prepare(0)
        total = batches.steps_per_epoch
        state = State(Stack([task.make_model(seed) for seed in seeds]), config, total)
        eager = Step(task, config, state, batches, total, self.precision)
        step = Captured(eager) if self.device.type == "cuda" else eager

        def call() -> None:
            state.step.zero_()  # the first batch again
            step()

        with without(*off):
            for _ in range(WARM_UP + 1 if self.device.type == "cuda" else 1):
                call()
        call()
        return call


def compare(
    base: Callable[[], None], other: Callable[[], None], device: torch.device, rounds: int
) -> tuple[float, float]:
    """Milliseconds a call of both: medians over alternating rounds."""
    calls = {"base": base, "other": other}
    counts = {name: burst_size(call, device, 0.05) for name, call in calls.items()}
    seen: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            seen[name].append(1e3 * burst(call, counts[name], device))
    return statistics.median(seen["base"]), statistics.median(seen["other"])


def measure(
    preset: str, device: torch.device, rounds: int, tiny: bool, only: set[str]
) -> Iterator[dict[str, Any]]:
    """A row for each operation that the step uses, and for some of them together.

    An operation that can run asks at last whether it is on.
    """
    seeds, precision = PRESETS[preset]
    if tiny:
        seeds, precision = min(seeds, 2), "float32"  # a stack in bf16 needs CUDA
    steps = Steps(preset, seeds, precision, device, tiny)
    with mock.patch.object(kernels, "is_on", wraps=kernels.is_on) as asked:
        base = steps.build()
    used = {call.args[0] for call in asked.call_args_list}.union(OTHERS)
    single = {name: (name,) for name in OPERATIONS if name in used}
    groups = {name: off for name, off in TOGETHER.items() if used.issuperset(off)}
    for name, off in {**single, **groups, "all": OPERATIONS}.items():
        if only and name not in only:
            continue
        begun = time.perf_counter()
        row: dict[str, Any] = {"preset": preset, "seeds": seeds, "precision": precision}
        row["without"] = name
        try:
            call = steps.build(*off)
            fast, plain = compare(base, call, device, rounds)
            row |= {"ms": fast, "ms_without": plain, "ratio": plain / fast}
        except torch.cuda.OutOfMemoryError:
            row["failed"] = "out of memory"
        except Exception as error:  # a plain form that cannot run is a result, too
            traceback.print_exc()
            row["failed"] = f"{type(error).__name__}: {error}"[:200]
        call = None  # type: ignore[assignment]
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        yield {**row, "seconds": round(time.perf_counter() - begun, 1)}


def table(rows: list[dict[str, Any]]) -> str:
    """Preset by operation: the step time without it, and the ratio to the step with everything."""
    lines = ["| preset | without | ms | ms without it | ratio |", "|---|---|--:|--:|--:|"]
    for row in rows:
        if "failed" in row:
            numbers = f"– | – | {row['failed'].splitlines()[0]}"
        else:
            numbers = f"{row['ms']:.3f} | {row['ms_without']:.3f} | {row['ratio']:.2f}"
        lines.append(f"| {row['preset']} ({row['seeds']}) | {row['without']} | {numbers} |")
    best: dict[str, float] = {}
    for row in rows:
        best[row["without"]] = max(best.get(row["without"], 0.0), row.get("ratio", 0.0))
    lines += ["", "| operation | largest ratio |", "|---|--:|"]
    lines += [f"| {name} | {ratio:.2f} |" for name, ratio in best.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presets", nargs="+", default=list(PRESETS), choices=list(PRESETS))
    parser.add_argument("--without", nargs="+", default=[], help="only these, e.g. adam readout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", help="file for the rows, as JSON lines")
    parser.add_argument("--tiny", action="store_true", help="small sizes on a CPU, eager")
    args = parser.parse_args()
    if not args.tiny and not torch.cuda.is_available():
        parser.error("needs CUDA (or --tiny)")
    device = torch.device("cpu" if args.tiny else "cuda")
    rows = []
    for preset in args.presets:
        rounds = 1 if args.tiny else args.rounds
        for row in measure(preset, device, rounds, args.tiny, set(args.without)):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if args.out:
                with open(args.out, "a") as file:
                    file.write(json.dumps(row) + "\n")
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    print(table(rows))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
