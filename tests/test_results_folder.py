"""The committed results: few files, all readable, the source of every table in the documents."""

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


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_documents_have_the_tables_of_results(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "available", lambda: False)
    texts = {path: path.read_text() for path in DOCUMENTS}
    marker = f"<!-- table: {experiment} -->"
    with_table = {path: text for path, text in texts.items() if marker in text}
    assert with_table
    copies = [tmp_path / f"{number}.md" for number in range(len(with_table))]
    for copy, text in zip(copies, with_table.values(), strict=True):
        copy.write_text(text)
    call("table", str(RESULTS / experiment), "--into", *map(str, copies))
    for copy, (path, text) in zip(copies, with_table.items(), strict=True):
        assert copy.read_text() == text, f"{path} is out of date: make results"
