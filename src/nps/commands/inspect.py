"""`nps inspect RUN`: see what a trained model has learned, and what its rules do."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from nps.commands.shared import (
    DataFolder,
    Device,
    OtherTestSet,
    about,
    find_device,
    own_data,
    positional,
    require,
    require_exists,
)
from nps.errors import one_line, say
from nps.flag_help import flags_of
from nps.flags import parse

MORE = "`nps inspect RUN --help` also shows the flags that only runs of its experiment have."


@dataclass(frozen=True, kw_only=True)
class InspectArgs:
    out: Path | None = None
    """PNG file to write (default: RUN/figures/NAME.png); several pictures become OUT-NAME.png, and
    moving ones .gif. Of a model that ships with nps: runs/MODEL/figures/NAME.png."""
    which: Literal["best", "last"] = "best"
    """The model with the best validation score, or the last one."""
    device: Device = "cpu"
    """cpu or cuda."""
    data: DataFolder = None
    on: OtherTestSet = None
    html: Path | None = None
    """Write the page of `nps view` into this one file instead: it plays an episode, says why each
    rule fired and what would be without it, and needs no server."""
    episode: int | None = None
    """With --html, the episode of the validation set; by default the one that nps view opens at."""


def inspect(args: Sequence[str]) -> None:
    """See what a trained model has learned: which rule serves which operation, and what it does.

    For runs of mnist, --compose applies a sequence of operations to test digits, each by the rule
    that the model uses for it, and draws the picture after each.

    Examples:
      nps inspect runs/sharp
      nps inspect runs/mnist --compose rotate_right,translate_up,translate_up
      nps inspect runs/blocks
      nps inspect blocks-best
      nps inspect runs/pong --device cuda
      nps inspect blocks-best --html blocks.html --episode 3
      nps inspect runs/mnist --rules 0,2 --digits 7,2,1,0 --out digits.png
    """
    from nps.experiments import find_experiment, load_task, with_test_set
    from nps.inspect.report import Figure, Report
    from nps.training.run import run_at
    from nps.zoo import find_run, is_shipped

    name, rest = positional(inspect, "RUN", args, lambda: flags_of(InspectArgs), note=MORE)
    path = find_run(name)
    run = run_at(path)
    saved = run.read()
    experiment = find_experiment(saved["experiment"])
    prog = f"nps inspect {name} (a run of {saved['experiment']})"
    options: Any = parse(
        _inspect_args(experiment.inspect_options), rest, prog=prog, about=about(inspect)
    )
    out: Path | None = options.out
    require(
        out is None or out.suffix == ".png", f"--out: got {out}, expected a name ending in .png"
    )
    if options.html is not None:
        _freeze(name, options)
        return
    given = own_data(experiment, options.data)
    find_device(options.device)
    task, model = load_task(path, options.device, options.which, given)
    task = with_test_set(path, task, options.on)
    parts = list(experiment.inspect(task, model, options.more))
    parts += experiment.curves(str(saved["preset"]), run.metrics())
    pictures = [part for part in parts if isinstance(part, Figure)]
    require(out is None or bool(pictures), "--out: there is no picture to write")
    title = f"{one_line(name)}: {saved['preset']}, seed {saved['seed']}"
    Report(title, [part for part in parts if part not in pictures]).show(Console())
    page = out is None and bool(pictures)
    folder = Path("runs", name) if is_shipped(run.folder) else run.folder
    if page:
        _write(folder / "report.html", Report(title, parts).to_html().encode())
    for picture in pictures:
        file = (out or folder / "figures" / f"{picture.name}.png").with_suffix(picture.suffix)
        if out is not None and len(pictures) > 1:
            file = file.with_stem(f"{out.stem}-{picture.name}")
        _write(file, picture.image)
        print(one_line(f"{file}: {picture.caption}"))
    if page:
        print(one_line(f"All of this on one page: {folder / 'report.html'}"))


def _inspect_args(more: type) -> type[Any]:
    """The flags of the command and those of the experiment."""
    config: Any = Annotated[more, tyro.conf.arg(name="")]
    fields = [("more", config, dataclasses.field(default_factory=more))]
    return dataclasses.make_dataclass(
        "Args", fields, bases=(InspectArgs,), frozen=True, kw_only=True
    )


def _freeze(name: str, options: InspectArgs) -> None:
    """The page of an episode as one file."""
    import nps
    from nps.inspect.workbench import require_index
    from nps.viewer.freeze import WARN, frozen_page
    from nps.viewer.session import Session

    path = options.html
    assert path is not None
    right = path.suffix in (".html", ".htm")
    require(right, f"--html: got {path}, expected a name ending in .html")
    require(options.out is None, "--out: expected --html or --out, not both")
    require(options.on is None, "--on: the page of --html shows the validation set")
    require_exists(options.data)
    run = nps.load(name, options.device, options.which, data=options.data)
    bench = run.workbench
    wanted = bench.opening if options.episode is None else options.episode
    episode = require_index("--episode", wanted, bench.count())
    page = frozen_page(Session([run]), episode=episode).encode()
    _write(path, page)
    size = len(page) / 1e6
    print(one_line(f"{path}: episode {episode}, one page of {size:.1f} MB"))
    if len(page) > WARN:
        say(f"{path}: {size:.0f} MB take long to open; a shorter episode gives a smaller page")


def _write(path: Path, content: bytes) -> None:
    from nps.files import os_errors_in_one_line, replace_file

    with os_errors_in_one_line(f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)
