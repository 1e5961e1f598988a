"""Reports: nothing from outside in the page, nothing lost in the terminal, documents kept whole."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from nps.errors import UserError
from nps.inspect.figures import usage_over_training
from nps.inspect.report import Figure, Heading, Lines, Report, Table, Text, markdown, put_into

TABLE = Table(["", "a<b"], [["x [red]", "1"], ["y", "2"]], "of & on")


def full_report() -> Report:
    report = Report("Title & more")
    tables = np.ones((3, 2, 4), dtype=int)
    png = usage_over_training({"nps": ([1, 2, 3], tables)}, ["one", "two"])
    report.add(Heading("H"), Text("t < u"), Lines(["x ← x + 1"]), TABLE, Figure("use", png, "fig"))
    return report


def test_page_is_self_contained_and_escaped():
    page = full_report().to_html()
    assert "<td>x [red]</td>" in page
    assert "a&lt;b" in page
    assert "t &lt; u" in page
    assert "Title &amp; more" in page
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in sources)
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)


def test_figures_are_files_too(tmp_path):
    page = full_report().write(tmp_path)
    assert page == tmp_path / "report.html"
    assert (tmp_path / "figures/use.png").read_bytes().startswith(b"\x89PNG")


def test_moving_pictures_keep_their_kind(tmp_path):
    report = Report("x", [Figure("turn", b"GIF89a and more", "turning")])
    assert (
        '<img alt="turning" src="data:image/gif;base64,R0lGOD' in report.write(tmp_path).read_text()
    )
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["turn.gif"]
    out = io.StringIO()
    report.show(Console(file=out, width=100))
    assert "turning (figures/turn.gif)" in out.getvalue()


def test_terminal_shows_text_with_brackets_as_they_are():
    out = io.StringIO()
    full_report().show(Console(file=out, width=100))
    text = out.getvalue()
    for part in ("Title & more", "t < u", "x ← x + 1", "x [red]", "a<b", "of & on"):
        assert part in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_names_and_numbers_stay_whole_at_any_width(width):
    columns = ["Model", *(f"H@1, {step}" for step in range(12))]
    names = ["2D shapes: C-SWM", "Fixed palette: NPS, ours"]
    rows = [[name, *(f"{n}{step}.5 ± 0.1" for step in range(12))] for n, name in enumerate(names)]
    out = io.StringIO()
    report = Report("", [Table(columns, rows, "A caption, " * 12)])
    report.show(Console(file=out, width=width))
    text = out.getvalue()
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for row in rows:
        assert all(cell in text for cell in row)
    assert text.count(names[0]) == text.count(names[1]) == text.count("Model")
    assert (text.count("Model") == 1) == (width == 200)
    assert "A caption, A caption, A caption, A" in text  # as wide as the terminal, not as a part


def test_several_columns_may_be_the_name():
    rows = [["0.1", "8", *["0.123 (0.1 to 0.2)"] * 8]]
    out = io.StringIO()
    table = Table(["learning_rate", "hidden_dim", *"abcdefgh"], rows, names=2)
    Report("", [table]).show(Console(file=out, width=80))
    assert out.getvalue().count("learning_rate ┃ hidden_dim") > 1


def test_put_into_replaces_only_its_table(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- table: a -->\nold\n<!-- end -->\nafter\n")
    assert put_into(path, {"a": TABLE}) == ["a"]
    text = path.read_text()
    assert text.startswith("before\n<!-- table: a -->\n|  | a<b |\n| --- | ---: |\n")
    assert text.endswith("| y | 2 |\n<!-- end -->\nafter\n")
    with pytest.raises(UserError, match="has no <!-- table: b --> or <!-- table: c -->"):
        put_into(path, {"b": TABLE, "c": TABLE})
    assert path.read_text() == text


def test_documents_ask_for_tables_by_name(tmp_path):
    tables = {"e": Table(["A"], [["1"]]), "e more": Table(["B"], [["2"]])}
    page = tmp_path / "page.md"
    asked = "x\n<!-- table: e -->\nold\n<!-- end -->\ny\n<!-- table: e more -->\n<!-- end -->z"
    page.write_text(asked)
    assert put_into(page, tables) == ["e", "e more"]
    one, two = page.read_text().split("y\n")
    assert "| A |" in one
    assert "old" not in one
    assert "| B |" in two
    assert two.endswith("<!-- end -->z")
    before = page.read_text()
    put_into(page, tables)
    assert page.read_text() == before


def test_a_document_shows_some_of_the_tables(tmp_path):
    tables = {"e": Table(["A"], [["1"]]), "e more": Table(["B"], [["2"]])}
    page = tmp_path / "page.md"
    page.write_text("<!-- table: e more --><!-- end -->")
    assert put_into(page, tables) == ["e more"]
    assert "| B |" in page.read_text()
    assert "| A |" not in page.read_text()
    page.write_text("<!-- table: e --><!-- end --> <!-- table: e more -->")
    with pytest.raises(UserError, match="<!-- table: e more --> has no <!-- end -->"):
        put_into(page, tables)
    assert page.read_text() == "<!-- table: e --><!-- end --> <!-- table: e more -->"


def test_columns_that_name_the_row_are_left_aligned():
    table = Table(["world", "model", "H@1"], [["a", "b", "1"]], names=2)
    assert markdown(table) == "| world | model | H@1 |\n| --- | --- | ---: |\n| a | b | 1 |"
