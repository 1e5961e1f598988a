"""Model folders on the Hugging Face hub, through its own client (extra `hub`).

What comes from the hub is data of somebody else: only the files that the card lists are fetched,
their sizes are asked for before, and each is compared with the card.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nps.errors import RunFailed, UserError, extra, one_line
from nps.files import write_bytes
from nps.reading import MAX_BYTES, Damaged, read_bytes
from nps.training.model_folder import CARD, CONFIG, PROVENANCE, file_of, parse_card

MOST_BYTES = 2 * 2**30
"""Largest file that is downloaded."""


def client() -> Any:
    """The hub's library, or a line that says how to install it."""
    try:
        import huggingface_hub
    except ImportError:
        raise UserError(f"huggingface_hub is not installed: {extra('hub')}") from None
    return huggingface_hub


def upload(folder: Path, repo: str, *, private: bool = False) -> str:
    """Upload a model folder into a model repository, made if needed; returns its address."""
    hub = client()
    if hub.get_token() is None:
        raise UserError("no token for the hub: run `hf auth login`, or set HF_TOKEN")
    with _one_line(f"cannot upload to {repo}"):
        api = hub.HfApi(library_name="nps")
        api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload a model of nps")
        return str(hub.hf_hub_url(repo, "").split("/resolve/")[0])


def download(repo: str, folder: Path, revision: str | None = None) -> None:
    """Download a model into an empty folder.

    Args:
        repo: the repository, as owner/name.
        folder: where the files go.
        revision: branch, tag or commit (default: the newest of its main branch).
    """
    with _one_line(f"cannot download {repo}"):
        commit = _about(repo, CARD, revision).commit_hash or revision
        card = parse_card(_fetch(repo, CARD, commit, folder, MAX_BYTES), f"{repo}: {CARD}")
        _fetch(repo, CONFIG, commit, folder, MAX_BYTES)
        for name, file in card["files"].items():
            data = _fetch(repo, name, commit, folder, max(0, min(file["bytes"], MOST_BYTES)))
            if file_of(data) != file:
                raise Damaged(f"{repo}: damaged, the sha256 of {name} differs")
        if _is_there(repo, PROVENANCE, commit):
            _fetch(repo, PROVENANCE, commit, folder, MAX_BYTES)


def _about(repo: str, name: str, revision: str | None) -> Any:
    """Size and commit of a file, without its content."""
    hub = client()
    return hub.get_hf_file_metadata(hub.hf_hub_url(repo, name, revision=revision))


def _is_there(repo: str, name: str, revision: str | None) -> bool:
    from huggingface_hub.errors import EntryNotFoundError

    try:
        _about(repo, name, revision)
    except EntryNotFoundError:
        return False
    return True


def _fetch(repo: str, name: str, revision: str | None, folder: Path, most: int) -> bytes:
    """Download one file of at most `most` bytes."""
    size = _about(repo, name, revision).size or 0
    if size > most:
        raise Damaged(f"{repo}: {name} has {size} bytes, expected at most {most}")
    with TemporaryDirectory() as scratch:  # beside the file, the client leaves one of its own
        client().hf_hub_download(repo, name, revision=revision, local_dir=scratch)
        data = read_bytes(Path(scratch, name), most=most)
    write_bytes(folder / name, data)
    return data


@contextmanager
def _one_line(doing: str) -> Iterator[None]:
    """Report what the hub or the network says in one line."""
    from huggingface_hub import errors

    unreachable = getattr(errors, "HTTPError", ConnectionError)  # of the client's HTTP library
    try:
        yield
    except errors.HFValidationError as error:
        raise UserError(f"{doing}: {_first_line(error)}") from None
    except errors.EntryNotFoundError as error:
        raise UserError(f"{doing}: not a model of nps ({_first_line(error)})") from None
    except errors.RepositoryNotFoundError:
        raise UserError(f"{doing}: no such repository, or no token that may read it") from None
    except (errors.OfflineModeIsEnabled, errors.LocalTokenNotFoundError) as error:
        raise UserError(f"{doing}: {_first_line(error)}") from None
    except errors.HfHubHTTPError as error:
        raise RunFailed(f"{doing}: {_first_line(error)}") from None
    except (unreachable, ConnectionError, errors.FileMetadataError) as error:
        raise RunFailed(f"{doing}: cannot reach the hub ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return one_line(lines[0].rstrip(".")) if lines else type(error).__name__
