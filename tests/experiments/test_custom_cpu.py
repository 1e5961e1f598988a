"""Own data on a small CPU: a long training says so first, and `nps run` shortens itself."""

import json

import numpy as np
import pytest

from nps import experiments
from nps.experiments.custom import cpu_time
from nps.experiments.custom.presets import PRESETS
from nps.inspect.report import Report
from nps.jobs import processes
from tests.experiments.test_custom import arrays_of
from tests.test_cli import call

TINY = [
    "--epochs=3",
    "--validate-every=3",
    "--batch-size=4",
    "--hidden-dim=8",
    "--slots=2",
    "--slot-dim=4",
]


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """The commands that `nps run world-model` would start in this folder."""
    monkeypatch.chdir(tmp_path)
    started = []
    monkeypatch.setattr(processes, "run_jobs", lambda jobs, workers: started.extend(jobs))
    monkeypatch.setattr(experiments, "evaluate", lambda folder, device: None)

    def report(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return Report("none")

    monkeypatch.setattr(experiments.EXPERIMENTS["world-model"], "report", report)
    monkeypatch.setattr(experiments.EXPERIMENTS["world-model"], "inspect_in_report", False)

    def run(*flags: str, side: int = 20) -> list[set[str]]:
        np.savez(tmp_path / "my.npz", **arrays_of(side=side))
        started.clear()
        call("run", "world-model", "--data=my.npz", *flags)
        assert [job.arguments[0] for job in started] == list(PRESETS)
        return [
            {
                word
                for word in job.arguments
                if word.startswith(("--epochs", "--extractor", "--frames"))
            }
            for job in started
        ]

    return run


@pytest.mark.parametrize(
    ("flags", "side", "changed"),
    [
        ([], 20, {"--epochs=10", "--extractor=small"}),
        (["--quick"], 20, {"--epochs=10", "--extractor=small"}),
        ([], 25, {"--epochs=10", "--extractor=small"}),
        (["--epochs=3"], 20, {"--epochs=3", "--extractor=small"}),
        (["--extractor=large"], 20, {"--epochs=10", "--extractor=large"}),
        (["--frames=2"], 20, {"--epochs=10", "--extractor=small", "--frames=2"}),
        (["--full"], 20, set()),
        (["--full", "--epochs=30", "--extractor=small"], 20, {"--epochs=30", "--extractor=small"}),
    ],
)
def test_run_shortens_itself_on_a_cpu(jobs, flags, side, changed):
    assert jobs(*flags, side=side) == [changed] * len(PRESETS)


def test_a_long_training_says_what_is_faster(tmp_path, monkeypatch):
    data, out = tmp_path / "my.npz", tmp_path / "run"
    np.savez(data, **arrays_of())
    monkeypatch.setattr(cpu_time, "seconds_a_step", lambda *_: 60.0)
    train = ["train", "world-model", f"--data={data}", f"--out={out}", *TINY]
    _, err = call(*train)
    steps = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert err.splitlines()[-1] == (
        f"nps: this takes about {steps} minutes on this CPU; "
        "faster: --extractor small, fewer --epochs, --device cuda"
    )
    assert "this takes" not in call(*train)[1]  # it has begun already
    _, err = call(*train[:-1], "--slot-dim=4", f"--out={out}-small", "--extractor=small")
    assert "this takes" not in err


def test_a_short_training_says_nothing(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of())
    _, err = call("train", "world-model", f"--data={tmp_path}/my.npz", f"--out={tmp_path}/r", *TINY)
    assert "this takes" not in err


def test_the_time_is_told_in_words():
    assert cpu_time.slow(3_000).startswith("this takes about 50 minutes on this CPU")
    assert cpu_time.slow(7_200).startswith("this takes about 2.0 hours on this CPU")
