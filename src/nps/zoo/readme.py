"""The model card of a model on the Hugging Face hub: README.md, made from card.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nps.training.model_folder import Card


def readme(saved: Mapping[str, Any], card: Card, repo: str) -> str:
    """README.md: metadata that the hub reads, what the model is, its test, how to load it.

    Args:
        saved: the model's config.json.
        card: its card.json.
        repo: where it goes, as `owner/name`.
    """
    preset, experiment = plain(saved["preset"]), plain(saved["experiment"])
    name = repo.rpartition("/")[2]
    metadata = ["library_name: nps", f"tags: [neural-production-systems, {experiment}]"]
    if card["licence"] is not None:
        metadata.insert(0, f"license: {card['licence'].lower()}")
    parts = [
        "\n".join(["---", *metadata, "---"]),
        f"# {name}",
        f"{plain(card['about'])} Preset `{preset}` of nps, Neural Production Systems in PyTorch; "
        f"seed {saved['seed']}.",
        f"```bash\nnps pull {repo} --out {name}\nnps eval {name}\nnps inspect {name}\n```",
        f'```python\nimport nps\n\nrun = nps.load("{name}")\nrun.model, run.trace(n=3)\n```',
    ]
    if card["verdict"]:
        parts.append(plain(card["verdict"]))
    if card["numbers"]:
        rows = [[plain(cell) for cell in row] for row in card["numbers"]]
        table = [[plain(column) for column in card["columns"]], ["---"] * len(rows[0]), *rows]
        parts.append("\n".join("| " + " | ".join(row) + " |" for row in table))
    parts.append("\n".join(f"- {what}: {plain(text)}" for what, text in facts(card)))
    return "\n\n".join(parts) + "\n"


def facts(card: Card) -> list[tuple[str, str]]:
    """How it was trained, as name and text."""
    trained, seconds = card["trained"], card["trained"]["seconds"]
    time = "" if seconds is None else f", {seconds:.0f} s"
    found = [
        ("Data", card["data"]),
        ("Trained with", f"`{trained['command']}`"),
        ("On", f"{trained['device'] or 'an unknown device'}{time}"),
        ("Commit", trained["commit"] or "unknown"),
        ("Weights", f"the {card['which']}, of step {card['step']}"),
        ("Settings", budget(card)),
    ]
    return found + ([("Note", card["note"])] if card["note"] else [])


def budget(card: Card) -> str:
    """How the settings differ from the preset's, the length of training first."""
    changed = dict(card["changed"])
    if not changed:
        return "the preset's"
    words = []
    if "epochs" in changed:
        ours, preset = changed.pop("epochs")
        words.append(f"{ours} of {preset} epochs")
    if changed:
        words.append(f"{len(changed)} other setting{'s' * (len(changed) > 1)} changed")
    return ", ".join(words)


def plain(text: Any) -> str:
    """Text for one line or cell of Markdown."""
    return " ".join(str(text).replace("|", "\\|").split())
