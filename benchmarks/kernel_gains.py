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
import functools
import gc
import importlib
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.nn import functional as F

from nps.bench.timing import burst, burst_size
from nps.capture import WARM_UP, Captured
from nps.experiments import find_preset
from nps.training.feed import Feed
from nps.training.precision import set_precision
from nps.training.stack import Stack
from nps.training.update import Update
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
    "cudnn + convolution": ("cudnn", "convolution"),
    "readout + batch norm": ("readout", "batch norm"),
    "cudnn + convolution + readout + batch norm": (
        "cudnn",
        "convolution",
        "readout",
        "batch norm",
    ),
    "feature norm + attend": ("feature norm", "attend"),
    "norm sum + messages": ("norm sum", "messages"),
    "norm sum + messages + bias cast": ("norm sum", "messages", "bias cast"),
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


class Switch:
    """Patches operations, to switch them off or (`watch`) to see only which of them run."""

    def __init__(self, watch: bool = False) -> None:
        self.watch = watch
        self.used: set[str] = set()

    @contextlib.contextmanager
    def on(self, *names: str) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in names:
                for patch in OPERATIONS[name](self, name):
                    stack.enter_context(patch)
            yield

    def refuse(self, name: str, real: Callable[..., bool]) -> Callable[..., bool]:
        """The condition of a fast form, which is never met."""

        @functools.wraps(real)
        def answer(*args: Any, **kwargs: Any) -> bool:
            met = real(*args, **kwargs)
            if met:
                self.used.add(name)
            return met and self.watch

        return answer

    def replace(
        self, name: str, real: Callable[..., Any], plain: Callable[..., Any]
    ) -> Callable[..., Any]:
        """The plain function in the place of the fast one."""

        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.used.add(name)
            return (real if self.watch else plain)(*args, **kwargs)

        return call


def condition(module: str, attribute: str) -> Callable[[Switch, str], list[Any]]:
    """Patches a function that says whether the fast form runs."""

    def patches(switch: Switch, name: str) -> list[Any]:
        target = _target(module)
        return [
            mock.patch.object(target, attribute, switch.refuse(name, getattr(target, attribute)))
        ]

    return patches


def triton(module: str) -> Callable[[Switch, str], list[Any]]:
    """Patches `kernels.possible` as one module sees it."""

    def patches(switch: Switch, name: str) -> list[Any]:
        target = _target(module)
        possible = switch.refuse(name, target.kernels.possible)
        return [mock.patch.object(target, "kernels", SimpleNamespace(possible=possible))]

    return patches


def _target(path: str) -> Any:
    module, _, attribute = path.partition(":")
    target = importlib.import_module(module)
    return getattr(target, attribute) if attribute else target


def plain_feature_norm(switch: Switch, name: str) -> list[Any]:
    return _without_kernels_of_attend(switch, name, "normalise", ("slot_attention", "slot_encoder"))


def plain_attend(switch: Switch, name: str) -> list[Any]:
    return _without_kernels_of_attend(switch, name, "attend", ("slot_attention",))


def _without_kernels_of_attend(
    switch: Switch, name: str, function: str, users: tuple[str, ...]
) -> list[Any]:
    """One of the two functions that share a condition."""
    attend = _target("nps.perception.attend")
    fast, refuse = getattr(attend, function), switch.refuse(name, attend._has_kernels)

    def plain(*args: Any) -> Any:
        with mock.patch.object(attend, "_has_kernels", refuse):
            return fast(*args)

    return [mock.patch.object(_target(f"nps.perception.{user}"), function, plain) for user in users]


def plain_enlarge(switch: Switch, name: str) -> list[Any]:
    """Bilinear enlargement, replicated border and convolution one after another."""
    enlarge = _target("nps.perception.enlarge")

    def forward(layer: Any, image: torch.Tensor) -> torch.Tensor:
        x = F.interpolate(image.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear")
        if layer.padding:
            x = F.pad(x, (layer.padding,) * 4, mode="replicate")
        return enlarge.convolve(x.permute(0, 2, 3, 1), layer.weight[None, None], layer.bias)

    layer = enlarge.EnlargeConv
    return [mock.patch.object(layer, "forward", switch.replace(name, layer.forward, forward))]


def plain_linear(switch: Switch, name: str) -> list[Any]:
    """Linear layers whose bias stays in float32 under autocast."""
    users = ("nps.networks.linear", "nps.interactions.gnn", "nps.perception.slot_encoder")
    linear = switch.replace(name, _target(users[0]).linear, F.linear)
    return [mock.patch.object(_target(user), "linear", linear) for user in users]


OPERATIONS: dict[str, Callable[[Switch, str], list[Any]]] = {
    "convolution": condition("nps.perception.convolution", "_has_kernels"),
    "cudnn": condition("nps.perception.cudnn", "suits"),
    "unroll": triton("nps.perception.unroll"),
    "enlarge": plain_enlarge,
    "batch norm": condition("nps.perception.normalise", "_has_kernels"),
    "readout": condition("nps.perception.readout", "suits"),
    "feature norm": plain_feature_norm,
    "attend": plain_attend,
    "norm sum": condition("nps.networks.normalised", "_has_kernels"),
    "bias cast": plain_linear,
    "messages": condition("nps.interactions.messages", "_has_kernels"),
    "rule stage": condition("nps.rules.layer:RuleLayer", "_fuses"),
    "adam": triton("nps.training.adam"),
}


@contextlib.contextmanager
def random_data(tiny: bool) -> Iterator[None]:
    """Random arrays in the place of the files of Atari and MNIST."""

    def play(game: str, settings: Any) -> atari.Sets:
        def some(episodes: int) -> atari.Episodes:
            frames = torch.randint(256, (episodes, 12, 3, 50, 50), dtype=torch.uint8)
            return atari.Episodes(frames, torch.randint(len(GAMES[game].actions), (episodes, 10)))

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

    def build(self, *off: str, switch: Switch | None = None) -> Callable[[], None]:
        """A step without some operations, warmed up, and captured on CUDA."""
        task, config = self.task, self.config
        stack = Stack([task.make_model(seed) for seed in range(self.seeds)])
        feed = Feed(
            task.examples, config.batch_size, task.noise_size, range(self.seeds), self.device
        )
        feed.prepare(0)
        update = Update(task, config, stack, feed, feed.steps_an_epoch, self.precision)
        step = Captured(update) if self.device.type == "cuda" else update

        def call() -> None:
            update.step.zero_()  # the first batch again
            step()

        with (switch or Switch()).on(*off):
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


def measure(preset: str, device: torch.device, rounds: int, tiny: bool) -> Iterator[dict[str, Any]]:
    """A row for each operation that the preset's step uses."""
    seeds, precision = PRESETS[preset]
    if tiny:
        seeds, precision = min(seeds, 2), "float32"  # a stack in bf16 needs CUDA
    steps = Steps(preset, seeds, precision, device, tiny)
    watch = Switch(watch=True)
    base = steps.build(*OPERATIONS, switch=watch)
    used = set(OPERATIONS) if tiny else watch.used
    single = {name: (name,) for name in OPERATIONS if name in used}
    groups = {name: off for name, off in TOGETHER.items() if used.issuperset(off)}
    for name, off in {**single, **groups, "all": tuple(OPERATIONS)}.items():
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
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", help="file for the rows, as JSON lines")
    parser.add_argument("--tiny", action="store_true", help="small sizes on a CPU, eager")
    args = parser.parse_args()
    if not args.tiny and not torch.cuda.is_available():
        parser.error("needs CUDA (or --tiny)")
    device = torch.device("cpu" if args.tiny else "cuda")
    rows = []
    for preset in args.presets:
        for row in measure(preset, device, 1 if args.tiny else args.rounds, args.tiny):
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
