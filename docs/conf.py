"""Sphinx settings. `make docs` builds without warnings or fails."""

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
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"
autodoc_typehints = "none"  # shapes are in the docstrings; the signatures would be unreadable
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": True}
suppress_warnings = ["ref.python"]
