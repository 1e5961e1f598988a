"""`nps bench`: measure the speed of the layers and of whole training steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Console

from nps.commands.shared import about, find_device
from nps.flags import parse


def bench(args: Sequence[str]) -> None:
    """Time NPS, GNN and attention side by side, and count their parameters, FLOPs and memory.

    Models are measured in alternating rounds, so that noise affects all of them alike. Writes
    bench-DEVICE.json into the folder --out and, with the extra `plots`, figures of time over slots
    and over rules.

    Examples:
      nps bench --quick
      nps bench --device cuda --out runs/bench-a100
      nps bench --only goals
      nps bench --only slots --slots 2 5 10 --works step --models sequential gnn-512
      nps bench --steps arithmetic --seeds 1 10 50
      nps bench --table results/bench/bench-cpu.json
      nps bench --table a/bench-cuda.json b/bench-cuda.json --draw docs/images
    """
    from nps.bench import command
    from nps.bench.report import join, read, report
    from nps.bench.steps import table as step_table
    from nps.inspect.report import Report

    options = parse(command.BenchArgs, args, prog="nps bench", about=about(bench))
    if options.table:
        read_again = join([read(path) for path in options.table])
        report(read_again).show(Console())
        if options.draw is not None:
            drawn = command.write_figures(read_again, options.draw)
            print("\nWritten: " + ", ".join(map(str, drawn)))
        return
    find_device(options.device)
    if options.steps is not None:
        steps = command.run_steps(options)
        path = command.write_steps(steps, options)
        Report(f"nps bench --steps {options.steps}", [step_table(steps["rows"])]).show(Console())
        print(f"\nWritten: {path}")
        return
    measured = command.run(options, partial(command.write, folder=options.out, draw=False))
    paths = command.write(measured, options.out)
    report(measured).show(Console())
    print("\nWritten: " + ", ".join(map(str, paths)))
