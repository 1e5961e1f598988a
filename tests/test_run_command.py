"""What `nps run` says, before and after: nothing is trained here."""

import pytest

from nps import experiments
from nps.experiments import EXPERIMENTS
from nps.inspect.report import Report
from nps.jobs import processes
from tests.test_cli import call


@pytest.fixture
def untrained(tmp_path, monkeypatch):
    """`nps run` of every experiment, without its trainings, tests and tables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "run_jobs", lambda jobs, workers: None)
    monkeypatch.setattr(experiments, "evaluate", lambda folder, device: None)

    def report(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return Report("none")

    for experiment in EXPERIMENTS.values():
        monkeypatch.setattr(experiment, "report", report)
        monkeypatch.setattr(experiment, "prepare", lambda config: None)
        monkeypatch.setattr(experiment, "inspect_in_report", False)
    return tmp_path


def test_the_whole_is_asked_for_with_the_same_data(untrained):
    (untrained / "my file.h5").write_text("")
    out, _ = call("run", "world-model", "--quick", "--data=my file.h5")
    assert "nps run world-model --data 'my file.h5' --seeds 10 --device cuda\n" in out
    assert "Report: runs/world-model-quick/report.html\n" in out  # it has no figures


def test_a_preset_without_a_short_version_says_how_long_it_is(untrained):
    _, err = call("run", "blocks", "--presets", "blocks-slots-nps")
    steps = 100 * (1_000 * 100 // 512)
    assert "blocks-slots-nps: has no quick version, so this is the full schedule" in err
    assert f"blocks-slots-nps: {steps:,} steps" in err
    assert "training 1 preset, 1 seed each" in err
    _, err = call("run", "blocks", "--presets", "shapes-gnn", "blocks-fixed-gnn", "--seeds=2")
    assert "this is the quick version" in err
    assert "no quick version" not in err
    assert "training 2 presets, 2 seeds each" in err


@pytest.mark.parametrize("out", ["", " "])
def test_an_empty_out_is_refused(untrained, out):
    _, err = call("run", "arithmetic", "--quick", "--out", out, code=2)
    assert "--out: got an empty path, expected a folder" in err
    assert not list(untrained.iterdir())


def test_out_is_where_the_report_goes(untrained):
    out, _ = call("run", "arithmetic", "--quick", "--out", "mine")
    assert "mine/report.html\n" in out


def test_help_says_when_seeds_are_a_stack():
    out, _ = call("run", "arithmetic", "--help")
    words = " ".join(out.replace("│", " ").split())
    assert "at once where they can be stacked, otherwise one after the other" in words
