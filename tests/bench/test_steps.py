"""Whole training steps, timed: of the loop's own update, for stacks of several sizes."""

import json

import pytest
import torch

from nps.bench.steps import StepRow, measure_steps, table
from nps.experiments import find_preset
from tests.test_cli import call

CPU = torch.device("cpu")


def test_rows_for_every_stack():
    experiment, _ = find_preset("arithmetic")
    rows = measure_steps(experiment, "arithmetic", torch.device("cpu"), seeds=(1, 2), rounds=1)
    assert [(row.seeds, row.mode) for row in rows] == [(1, "eager"), (2, "eager")]
    for row in rows:
        assert 0 < row.ms_least <= row.ms <= row.ms_most
        assert row.launches > 50


def test_steps_a_second_count_every_seed():
    row = StepRow("arithmetic", 50, "captured", 0.5, 0.5, 0.5, 100, 2_000_000)
    assert row.per_second == pytest.approx(100_000)
    assert table([row]).rows == [["50", "captured", "0.5", "100,000", "100", "2.0"]]


def test_the_command_writes_its_rows(tmp_path):
    flags = ["--steps=arithmetic", "--seeds", "1", "--rounds=1", "--out", str(tmp_path)]
    out, _ = call("bench", *flags)
    assert "steps/s, all seeds" in out
    written = json.loads((tmp_path / "steps-arithmetic-cpu.json").read_text())
    assert written["rows"][0]["preset"] == "arithmetic"
    assert written["environment"]["torch"] == torch.__version__
    assert "did you mean arithmetic?" in call("bench", "--steps=arithmetc", code=2)[1]
    assert "--seeds: got 0" in call("bench", "--steps=arithmetic", "--seeds", "0", code=2)[1]


def test_a_task_whose_seeds_train_one_by_one_is_measured_alone():
    _, err = call("bench", "--steps=balls", "--seeds", "2", code=2)
    assert "--seeds: got 2, expected 1: balls trains seeds one by one" in err


def test_the_phase_is_that_of_the_share_of_training(monkeypatch):
    experiment, _ = find_preset("balls")
    task, seen = type(experiment.make_task(experiment.presets["balls"].config, CPU)), []
    monkeypatch.setattr(task, "loss", lambda self, model, batch: seen.append(batch.phase))
    for at in (0.0, 0.9):
        with pytest.raises(TypeError):  # it has no loss
            measure_steps(experiment, "balls", CPU, seeds=(1,), rounds=1, at=at)
    assert seen == ["explore 4", "explore 8"]
    assert "--at: got 1" in call("bench", "--steps=arithmetic", "--at=1", code=2)[1]


def test_the_precision_is_that_of_the_step(monkeypatch):
    experiment, _ = find_preset("arithmetic")
    task, seen = type(experiment.make_task(experiment.presets["arithmetic"].config, CPU)), []
    loss = task.loss

    def watched(self, model, batch):
        seen.append(torch.is_autocast_enabled("cpu"))
        return loss(self, model, batch)

    monkeypatch.setattr(task, "loss", watched)
    for precision, expected in {"float32": False, "bf16": True}.items():
        seen.clear()
        measure_steps(experiment, "arithmetic", CPU, (1,), 1, precision)
        assert set(seen) == {expected}
