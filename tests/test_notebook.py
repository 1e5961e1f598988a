"""The notebook of the workbench runs from its first cell to its last, and says what it shows."""

import ast
import json
import re
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "docs/guides/workbench.ipynb"


def cells():
    return json.loads(NOTEBOOK.read_text())["cells"]


def last_value(source, scope):
    """Run a cell as a notebook does; returns the value of its last line."""
    tree = ast.parse(source)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    exec(compile(tree, "cell", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), scope)


def test_every_cell_runs(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scope, shown = {}, []
    for cell in cells():
        if cell["cell_type"] == "code":
            shown.append(last_value("".join(cell["source"]), scope))
    html = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(html) == 5  # film, explanation, description, two what-ifs
    for page in html:
        assert "<script" not in page
        assert not re.search(r"(src|href)=\"(?!data:)", page)
    before, after = shown[-1].values()
    assert after > before  # the rule that is used most was of use
    off, names = shown[-2]
    assert len(off) == 1
    assert names[off[0]] == "favourite"
    assert (scope["here"] / "edited" / "edits.json").is_file()


def test_outputs_are_stored():
    stored = [cell for cell in cells() if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in stored] == list(range(1, len(stored) + 1))
    assert all(cell["outputs"] for cell in stored)
    text = NOTEBOOK.read_text()
    assert "/tmp" not in text
    assert '"output_type": "error"' not in text
    assert len(text) < 200_000
