"""README and docs keep their promises: links lead somewhere, numbers come from generated tables,
code fits the page, and the README stays short."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("**/*.md"))
PAGES = [ROOT / "README.md", *(page for page in DOCS if "_build" not in page.parts)]
GENERATED = re.compile(r"<!-- table: ([a-z ]+) -->\n(.*?)<!-- end -->", re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*\.?\d*(?: ± \d+\.\d+)?")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_blocks(page: Path, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}.*?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_images_lead_to_files(page):
    text = re.sub(r"^```(?!\{image\}).*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"\{image\} (\S+)", text)
    local = [target.split("#")[0] for target in targets if not target.startswith("http")]
    missing = [target for target in local if target and not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_fits_the_page(page):
    wide = [line for block in code_blocks(page) for line in block.splitlines() if len(line) > 88]
    assert wide == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_code_can_be_parsed(page):
    for block in code_blocks(page, "python"):
        ast.parse(block)


def test_the_readme_takes_a_minute():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_image_of_the_docs_is_shown():
    text = "".join(page.read_text() for page in PAGES)
    images = [path.name for path in (ROOT / "docs/images").iterdir()]
    assert [image for image in images if f"images/{image}" not in text] == []


def test_make_results_fills_every_generated_table():
    commands = re.findall(r"nps table results/(\w+).*--into (.*)", (ROOT / "Makefile").read_text())
    filled = {(experiment, path) for experiment, paths in commands for path in paths.split()}
    marked = {
        (table.split()[0], name(page))
        for page in PAGES
        for table, _ in GENERATED.findall(page.read_text())
    }
    assert marked == filled


def table_numbers(text: str) -> set[str]:
    """Numbers in the cells of Markdown tables, `mean ± deviation` as one."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return {number for row in rows for number in NUMBER.findall(row)}


@pytest.mark.parametrize("experiment", ["blocks", "atari"])
def test_the_numbers_of_a_page_s_own_table_stand_in_the_generated_ones(experiment):
    notes = (ROOT / f"docs/notes/{experiment}.md").read_text()
    generated = "".join(table for _, table in GENERATED.findall(notes))
    page = (ROOT / f"docs/experiments/{experiment}.md").read_text()
    _, _, body = page.partition("---:")
    assert table_numbers(body) - table_numbers(generated) - {"5", "10"} == set()


def test_the_numbers_of_the_readme_s_results_stand_in_the_generated_tables():
    readme = (ROOT / "README.md").read_text()
    rows = [line for line in readme.splitlines() if line.startswith("| [")]
    assert len(rows) == 4
    generated = "".join(table for page in PAGES for _, table in GENERATED.findall(page.read_text()))
    known = {part for number in table_numbers(generated) for part in number.split(" ± ")}
    # Only numbers with a fraction: the others count steps, seeds and rules.
    shown = {n for row in rows for n in re.findall(r"\d+\.\d+", re.sub(r"\(.*?\)", "", row))}
    assert shown - known == set()
    for count in re.findall(r"\d+ of \d+", " ".join(rows)):
        assert count in generated


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    """docs/figures.py, which is not part of the package."""
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("figures_of_docs", ROOT / "docs/figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_image_but_the_diagrams_is_drawn_by_one_command(drawing):
    reports = {f"{name}.png" for names in drawing.REPORTS.values() for name in names.values()}
    bench = {
        f"{device}-time-over-{axis}.png" for device in drawing.BENCH for axis in ("slots", "rules")
    }
    trained = {f"{name}.png" for name in drawing.TRAINED.values()}
    drawn = reports | bench | trained | {"blocks.png", "pushes.gif"}
    assert {path.name for path in drawing.IMAGES.iterdir()} == drawn | {"overview.svg", "house.svg"}


def test_the_animation_shows_true_pushes(drawing):
    pushes, contexts = drawing.true_pushes()
    assert len(pushes.action) >= drawing.ROUNDS * drawing.WORLDS
    where = pushes.before.positions.int()
    for p, pusher in enumerate(contexts):
        apart = where[p, pusher] - where[p, int(pushes.pushed[p])]
        assert apart.abs().sum() == 1  # who pushes stands beside the pushed block
    assert drawing.animation(pushes, contexts).startswith(b"GIF89a")
    assert (drawing.IMAGES / "pushes.gif").read_bytes().startswith(b"GIF89a")
