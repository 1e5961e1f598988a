"""The committed results: few files, all readable, the source of every table in the documents."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nps.experiments import find_experiment
from nps.experiments.results import read_runs
from nps.inspect import figures
from nps.training.config import from_json
from tests.test_cli import call

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
EXPERIMENTS = sorted(path.parent.name for path in RESULTS.glob("*/runs.jsonl.xz"))
FILLED = {
    folder: documents.split()
    for folder, documents in re.findall(
        r"nps table (results\S*) .*?--into (.*)", (ROOT / "Makefile").read_text()
    )
}
"""The folder of each command of `make results`, and the documents whose tables it fills."""
GENERATED = re.compile(r"(<!-- table: [^>]* -->\n).*?(<!-- end -->)", re.DOTALL)
SURGERY = ["docs/experiments/surgery.md", "docs/notes/surgery.md"]
"""Filled by a script: these measurements are no runs."""
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_there_are_few_files():
    made = ("report.html", "figures")  # by `nps table --report`; git ignores them
    files = [
        path
        for path in RESULTS.rglob("*")
        if path.is_file() and not set(made) & set(path.relative_to(RESULTS).parts)
    ]
    assert len(files) <= 100
    assert sum(path.stat().st_size for path in files) <= 8e6


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_runs_are_whole(experiment):
    runs = read_runs(RESULTS / experiment)
    assert {run.experiment for run in runs} == {experiment}
    for run in runs:
        assert run.provenance
        assert run.curve()
        assert run.tested or not run.published


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_todays_config_reads_every_run(experiment):
    """Also those that were saved before fields were added or renamed."""
    config = find_experiment(experiment).config
    for run in read_runs(RESULTS / experiment):
        from_json(config, run.config)


@pytest.mark.parametrize("folder", FILLED)
def test_documents_have_the_tables_of_results(folder, tmp_path, monkeypatch):
    """Each command of `make results` fills every marked table of its documents, as it stands."""
    monkeypatch.setattr(figures, "available", lambda: False)
    copies = [tmp_path / f"{number}.md" for number in range(len(FILLED[folder]))]
    for copy, document in zip(copies, FILLED[folder], strict=True):
        copy.write_text(GENERATED.sub(r"\1\2", (ROOT / document).read_text()))
    call("table", str(ROOT / folder), "--into", *map(str, copies))
    for copy, document in zip(copies, FILLED[folder], strict=True):
        assert copy.read_text() == (ROOT / document).read_text(), f"{document}: run make results"


def test_the_pages_of_rule_surgery_have_the_tables_of_their_measurements(tmp_path):
    copies = [tmp_path / f"{number}.md" for number in range(len(SURGERY))]
    for copy, document in zip(copies, SURGERY, strict=True):
        copy.write_text(GENERATED.sub(r"\1\2", (ROOT / document).read_text()))
    subprocess.run([sys.executable, ROOT / "benchmarks/surgery_tables.py", *copies], check=True)
    for copy, document in zip(copies, SURGERY, strict=True):
        assert copy.read_text() == (ROOT / document).read_text(), f"{document}: run make results"
    assert f"benchmarks/surgery_tables.py {' '.join(SURGERY)}" in (ROOT / "Makefile").read_text()


def test_rule_surgery_was_measured_on_committed_code():
    for path in (RESULTS / "surgery").iterdir():
        commits = {json.loads(line)["commit"] for line in path.read_text().splitlines()}
        assert [commit for commit in commits if "-dirty" in commit] == []


def test_make_results_fills_every_document_that_has_a_marked_table():
    filled = [document for documents in FILLED.values() for document in documents]
    marked = [
        path.relative_to(ROOT).as_posix()
        for path in DOCUMENTS
        if "<!-- table: " in path.read_text()
    ]
    assert sorted([*filled, *SURGERY]) == sorted(marked)
    assert set(FILLED) == {"results", *(f"results/{experiment}" for experiment in EXPERIMENTS)}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_the_page_of_an_experiment_has_one_short_table_and_it_is_generated(experiment):
    page = (ROOT / f"docs/experiments/{experiment}.md").read_text()
    (table,) = (match.group() for match in GENERATED.finditer(page))
    rows = table.count("\n|") - 2  # the first two lines are the head
    assert 1 <= rows <= 8
    assert "\n|" not in GENERATED.sub("", page)


def test_the_readme_has_a_verdict_on_each_experiment():
    (table,) = (match.group() for match in GENERATED.finditer((ROOT / "README.md").read_text()))
    linked = re.findall(r"^\| \[.*?\]\(docs/experiments/(\w+)\.md\)", table, re.MULTILINE)
    assert sorted(linked) == EXPERIMENTS
