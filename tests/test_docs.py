"""README and docs keep their promises: links lead somewhere, code fits the page, and the README
stays short. That their tables are those of results/ is checked in test_results_folder.py."""

import ast
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("**/*.md"))
PAGES = [ROOT / "README.md", *(page for page in DOCS if "_build" not in page.parts)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_blocks(page: Path, language: str = "") -> list[str]:
    return re.findall(rf"^```{language}.*?\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def targets(page: Path) -> list[str]:
    """Where the links and images of a page lead, besides the web."""
    text = re.sub(r"^```(?!\{image\}).*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"\{image\} (\S+)", text)
    return [target for target in found if not target.startswith("http")]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them, and those it sets itself."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_images_lead_to_files(page):
    local = [target.split("#")[0] for target in targets(page)]
    missing = [target for target in local if target and not (page.parent / target).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_headings(page):
    missing = []
    for target in targets(page):
        path, _, heading = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        if heading and heading not in anchors(to):
            missing.append(target)
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


def test_the_quickstart_lists_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    table = (ROOT / "docs/start/quickstart.md").read_text().partition("| extra |")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [extra for row in rows for extra in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted(project["optional-dependencies"])


def test_every_page_that_records_cartpole_installs_what_draws_it():
    for page in PAGES:
        if any("nps data record CartPole" in block for block in code_blocks(page, "bash")):
            blocks = "".join(code_blocks(page, "bash"))
            assert re.search(r"\.\[gym.*gymnasium\[classic-control\]", blocks), page


def test_every_image_of_the_docs_is_shown():
    text = "".join(page.read_text() for page in PAGES)
    images = [path.name for path in (ROOT / "docs/images").iterdir()]
    assert [image for image in images if f"images/{image}" not in text] == []


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
    given = {*drawing.OWN.values(), *drawing.BALLS.values()}
    given |= set(drawing.PAGE)
    worlds = {"blocks.png", "stacks.png", "sprites.png", "pushes.gif"}
    drawn = reports | bench | trained | given | worlds
    assert {path.name for path in drawing.IMAGES.iterdir()} == drawn | {"overview.svg", "house.svg"}


def test_towers_are_drawn(drawing):
    assert drawing.of_towers().startswith(b"\x89PNG")


def test_sprites_are_drawn(drawing):
    assert drawing.of_sprites().startswith(b"\x89PNG")


def test_the_animation_shows_true_pushes(drawing):
    pushes, contexts = drawing.true_pushes()
    assert len(pushes.action) >= drawing.ROUNDS * drawing.WORLDS
    where = pushes.before.positions.int()
    for p, pusher in enumerate(contexts):
        apart = where[p, pusher] - where[p, int(pushes.pushed[p])]
        assert apart.abs().sum() == 1  # who pushes stands beside the pushed block
    assert drawing.animation(pushes, contexts).startswith(b"GIF89a")
    assert (drawing.IMAGES / "pushes.gif").read_bytes().startswith(b"GIF89a")
