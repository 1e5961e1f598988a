"""`nps push RUN REPO`: upload a trained model to the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.shared import about, positional, require
from nps.errors import one_line
from nps.flag_help import flags_of
from nps.flags import parse

LICENCE = re.compile(r"[A-Za-z0-9.+-]{1,60}")


@dataclass(frozen=True)
class PushArgs:
    private: bool = False
    """Make the repository private, if it is new."""
    licence: str | None = None
    """Licence of the weights, such as apache-2.0 (default: none is named; of a model that ships
    with nps, its own)."""


def push(args: Sequence[str]) -> None:
    """Upload a trained model to the Hugging Face hub: weights, config and a model card.

    RUN is a run folder, a model folder, or the name of a model that ships with nps. REPO is
    owner/name; it is made if it does not exist. The card has the numbers of `nps eval`, if it was
    tested, and no path of this machine. Needs the extra `hub` and a token (`hf auth login`, or
    HF_TOKEN).

    Examples:
      nps push runs/mine me/my-world-model --private
      nps push runs/sharp me/arithmetic-sharp --licence apache-2.0
      nps push blocks-best me/blocks-best
    """
    from tempfile import TemporaryDirectory

    from nps.experiments.export import export
    from nps.training.model_folder import README
    from nps.training.run import run_at
    from nps.zoo import find_run, hub
    from nps.zoo.readme import readme

    name, rest = positional(push, "RUN REPO", args, lambda: flags_of(PushArgs))
    there = bool(rest) and not rest[0].startswith("-")
    require(there, "nps push RUN: expected REPO after it, as owner/name")
    repo, rest = rest[0], rest[1:]
    options = parse(PushArgs, rest, prog="nps push RUN REPO", about=about(push))
    require_repo(repo)
    licence = options.licence
    named = licence is None or LICENCE.fullmatch(licence) is not None
    require(named, f"--licence: got {licence!r}, expected the name of one, such as apache-2.0")
    hub.client()
    with TemporaryDirectory() as scratch:
        model = Path(scratch, "model")
        card = export(find_run(name), model, licence=licence)
        text = readme(run_at(model).read(), card, repo)
        (model / README).write_text(text)
        address = hub.upload(model, repo, private=options.private)
    print(one_line(f"{address}: uploaded"))
    if not card["test"]:
        print(one_line(f"Its card has no numbers: `nps eval {name}` and push again to add them."))


def require_repo(repo: str) -> None:
    right = re.fullmatch(r"[\w.-]+/[\w.-]+", repo, re.ASCII)
    require(right is not None, f"REPO: got {repo!r}, expected owner/name")
