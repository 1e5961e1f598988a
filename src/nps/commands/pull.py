"""`nps pull REPO`: get a trained model from the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nps.commands.push import require_repo
from nps.commands.shared import about, positional
from nps.errors import UserError, one_line
from nps.flag_help import flags_of
from nps.flags import parse


@dataclass(frozen=True)
class PullArgs:
    out: Path
    """The folder to write; it must not exist yet."""
    revision: str | None = None
    """Branch, tag or commit (default: the newest)."""


def pull(args: Sequence[str]) -> None:
    """Get a trained model from the Hugging Face hub, into a folder that is read like a run.

    REPO is owner/name, as given to `nps push`. Only safetensors and JSON are fetched; every file
    is compared with the sha256 in the model's card. Needs the extra `hub`; private models need a
    token (`hf auth login`, or HF_TOKEN).

    Examples:
      nps pull me/blocks-best --out runs/blocks-best
      nps eval runs/blocks-best
    """
    from nps.experiments import config_of
    from nps.files import os_errors_in_one_line, whole_folder
    from nps.training.run import find_checkpoint, run_at
    from nps.zoo import hub

    repo, rest = positional(pull, "REPO", args, lambda: flags_of(PullArgs))
    options = parse(PullArgs, rest, prog="nps pull REPO", about=about(pull))
    require_repo(repo)
    hub.client()
    out: Path = options.out.expanduser()
    if out.exists():
        raise UserError(f"--out: {out} exists already, expected a new folder")
    with os_errors_in_one_line(f"cannot write {out}"), whole_folder(out) as folder:
        hub.download(repo, folder, options.revision)
        try:
            config_of(find_checkpoint(folder)[0])
        except UserError as error:
            raise UserError(str(error).replace(str(folder), repo)) from None
    saved = run_at(out).read()
    print(one_line(f"{out}: {saved['preset']}, seed {saved['seed']}. Test it: nps eval {out}"))
