"""Sphinx settings. `make docs` builds without warnings or fails.

Formulas become MathML while building, so pages need neither a network nor scripts to show them.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

from nps import RuleConfig
from nps.version import __version__

project = "Neural Production Systems"
copyright = "the nps maintainers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"nps {release}"
html_static_path = ["static"]
html_css_files = ["nps.css"]
html_math_renderer = "mathml"
myst_enable_extensions = ["attrs_block", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"
napoleon_numpy_docstring = False
autodoc_typehints = "none"  # shapes are in the docstrings; the signatures would be unreadable
autodoc_preserve_defaults = True  # as they are written, not as this machine prints them
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": True}
suppress_warnings = ["ref.python"]

ALIGNED = re.compile(r"\\begin\{(?:split|aligned)\}(.*)\\end\{(?:split|aligned)\}", re.DOTALL)


def mathml(latex: str, display: str) -> str:
    """LaTeX as MathML; lines that are aligned at `&` become rows of a table."""
    found = ALIGNED.fullmatch(latex.strip())
    body = rf"\begin{{align*}}{found.group(1)}\end{{align*}}" if found else latex.strip()
    return str(convert(body, display=display))


def inline_math(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block_math(self: Any, node: nodes.math_block) -> None:
    text = node.astext()
    # reStructuredText puts lines that end in \\ and align at & side by side without a frame.
    if "&" in text and r"\begin" not in text:
        text = rf"\begin{{split}}{text}\end{{split}}"
    self.body.append(f'<div class="math">{mathml(text, "block")}</div>\n')
    raise nodes.SkipNode


def no_types_in_text(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from reading "words: more words" as a type and its description.

    That is how it parses attributes and `Returns:`. Types are in our signatures, never in the text,
    so the type is given as empty.
    """
    if what in ("attribute", "property") and lines:
        lines[0] = f": {lines[0]}"
    for n, line in enumerate(lines[:-1]):
        if line.strip() == "Returns:":
            text = lines[n + 1]
            indent = len(text) - len(text.lstrip())
            lines[n + 1] = f"{text[:indent]}: {text[indent:]}"


def values_of_settings(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str | None, Any]:
    """Show the value of a default that is written `RuleConfig.stages`."""
    value = lambda found: repr(getattr(RuleConfig, found[1]))  # noqa: E731
    return signature and re.sub(r"RuleConfig\.(\w+)", value, signature), returns


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", values_of_settings)
    app.connect("autodoc-process-docstring", no_types_in_text, priority=400)  # before napoleon
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
