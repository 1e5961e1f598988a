"""The page in one file: its modules joined into one, its style inline, a policy for just these.

A file on disk may not load modules or fetch anything, so a frozen page carries its answers as JSON.
The modules use a small part of the language, which this relies on and checks: named imports from
each other at the start of a line, `export` before a declaration, and no name twice.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"

IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"\./([\w-]+\.js)";[^\S\n]*\n?', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function|const|let|class)", re.MULTILINE)
TOP_LEVEL = re.compile(
    r"^(?:export )?(?:async function\*?|function\*?|const|let|class) (\w+|\{[^}]*\}|\[[^\]]*\])",
    re.MULTILINE,
)


def bundle(entry: str = "main.js") -> str:
    """All modules that the entry needs as one module, each after those that it imports."""
    order: list[str] = []
    _visit(entry, order, set())
    owners: dict[str, str] = {}
    parts = []
    for name in order:
        source = IMPORT.sub(_renames, (STATIC / name).read_text())
        for declared in TOP_LEVEL.findall(source):
            for each in re.findall(r"\w+", declared):
                if owners.setdefault(each, name) != name:
                    raise ValueError(f"{name}: declares {each}, as does {owners[each]}")
        source = EXPORT.sub("", source)
        if left := re.search(r"^(import|export)\b.*", source, re.MULTILINE):
            raise ValueError(f"{name}: cannot join {left[0]!r}")
        parts.append(f"// {name}\n{source.strip()}\n")
    return "\n".join(parts)


def _visit(name: str, order: list[str], seen: set[str]) -> None:
    """Depth first; modules that import one another stand in the order in which they are met."""
    if name in seen:
        return
    seen.add(name)
    for _, other in IMPORT.findall((STATIC / name).read_text()):
        _visit(other, order, seen)
    order.append(name)


def _renames(imported: re.Match[str]) -> str:
    """In place of an import: nothing but the names that it gives to what is in scope anyway."""
    pairs = [each.split() for each in imported[1].split(",") if " as " in each]
    return "".join(f"const {new} = {old};\n" for old, _, new in pairs)


def page(title: str, frozen: Mapping[str, Any]) -> str:
    """The page with everything that it needs inside.

    Args:
        title: of the window.
        frozen: its "answers" and the state that it starts in.
    """
    script = bundle().replace("</script", "<\\/script").replace("<!--", "<\\!--")
    style = (STATIC / "style.css").read_text()
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(frozen, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    data = data.replace("<", "\\u003c")
    text = (STATIC / "index.html").read_text()
    text = _replace(
        text, r'<meta charset="utf-8">',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
    )  # fmt: skip
    text = _replace(text, r"<title>[^<]*</title>", f"<title>{html.escape(title)}</title>")
    text = _replace(text, r'<link rel="stylesheet"[^>]*>', f"<style>{style}</style>")
    return _replace(
        text, r'<script type="module"[^>]*></script>',
        f'<script type="application/json" id="frozen">{data}</script>\n'
        f'<script type="module">{script}</script>',
    )  # fmt: skip


def _replace(text: str, pattern: str, by: str) -> str:
    text, count = re.subn(pattern, lambda _: by, text)
    if count != 1:
        raise ValueError(f"index.html: found {pattern} {count} times, expected once")
    return text


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
