"""Many seeds at once: each is its own single run, and none disturbs another."""

import copy
import dataclasses
import itertools
import json

import pytest
import torch
from torch import nn

from nps.errors import RunFailed
from nps.training import checkpoint, memory
from nps.training.batches import Batches
from nps.training.data import Made, Resident, Streamed
from nps.training.run import Run
from nps.training.stack import Stack
from nps.training.state import State
from nps.training.step import Step
from tests.training.tools import CONFIG, CPU, STEPS, TinyTask, files, go

SEEDS = (0, 1, 5)


def plain() -> TinyTask:
    return TinyTask(dropout=0.0)


def assert_same_run(one: Run, two: Run) -> None:
    """The same to float tolerance: logs, weights, optimiser."""
    for row, other in zip(one.metrics(), two.metrics(), strict=True):
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert row["validation"]["score"] == pytest.approx(other["validation"]["score"], rel=1e-5)
    ours, theirs = (checkpoint.newest(run.checkpoints, print) for run in (one, two))
    assert ours.step == theirs.step
    assert ours.state["best_step"] == theirs.state["best_step"]
    assert ours.tensors.keys() == theirs.tensors.keys()
    for group in ours.tensors:
        assert ours.tensors[group].keys() == theirs.tensors[group].keys()
        for name, tensor in theirs.tensors[group].items():
            torch.testing.assert_close(ours.tensors[group][name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "changes", [{}, {"clip_norm": 0.7}, {"weight_decay": 0.1, "ema_decay": 0.9, "warmup_steps": 5}]
)
def test_a_seed_of_a_stack_equals_its_single_run(tmp_path, changes):
    """Clipping too: a norm over the whole stack would couple the seeds."""
    config = dataclasses.replace(CONFIG, **changes)
    go(tmp_path / "stack", task=plain(), seeds=SEEDS, config=config)
    for seed in SEEDS:
        go(tmp_path / f"alone-{seed}", task=plain(), seeds=(seed,), config=config)
        assert_same_run(Run(tmp_path / f"stack/seed-{seed}"), Run(tmp_path / f"alone-{seed}"))


class FromSource(TinyTask):
    """The same regression, with its examples from a source."""

    def __init__(self, source):
        super().__init__(dropout=0.0)
        inputs = self.inputs
        self.data = {
            "made": Made(22, lambda index: {"inputs": inputs[index]}),
            "resident": Resident({"inputs": inputs}),
            "streamed": Streamed(22, lambda indices: {"inputs": inputs[list(indices)]}),
        }[source]

    def loss(self, model, batch):
        x = batch.data["inputs"] + 0.2 * (batch.noise - 0.5)
        loss = (model(x) - x.sum(-1, keepdim=True)).square().mean()
        return loss, {"progress": batch.progress}


@pytest.mark.parametrize("source", ["made", "resident", "streamed"])
def test_a_stack_takes_its_examples_from_any_source(tmp_path, source):
    go(tmp_path / "by-index", task=plain(), seeds=SEEDS)
    go(tmp_path / source, stop_at=7, task=FromSource(source), seeds=SEEDS)
    go(tmp_path / source, task=FromSource(source), seeds=SEEDS)
    last = f"checkpoints/step-{STEPS:08d}"
    for seed in SEEDS:
        ours, theirs = (files(tmp_path / name / f"seed-{seed}") for name in (source, "by-index"))
        assert ours["metrics.jsonl"] == theirs["metrics.jsonl"]
        for name in (name for name in theirs if name.startswith(last)):
            assert ours[name] == theirs[name], name


def test_seeds_differ(tmp_path):
    go(tmp_path / "stack", task=plain(), seeds=SEEDS)
    losses = {Run(tmp_path / f"stack/seed-{s}").metrics()[-1]["loss"] for s in SEEDS}
    assert len(losses) == 3


@pytest.mark.parametrize("ema", [None, 0.9])
def test_a_stack_resumes_exactly(tmp_path, ema):
    how = {"seeds": SEEDS, "config": dataclasses.replace(CONFIG, ema_decay=ema)}
    go(tmp_path / "whole", task=plain(), **how)
    go(tmp_path / "parts", stop_at=7, task=plain(), **how)
    go(tmp_path / "parts", stop_at=12, task=plain(), **how)
    go(tmp_path / "parts", task=plain(), **how)
    last = f"checkpoints/step-{STEPS:08d}"
    for seed in SEEDS:
        whole, parts = (files(tmp_path / name / f"seed-{seed}") for name in ("whole", "parts"))
        assert parts["metrics.jsonl"] == whole["metrics.jsonl"]
        last_files = [name for name in whole if name.startswith(last)]
        assert len(last_files) == (5 if ema is None else 6)
        for name in last_files:
            assert parts[name] == whole[name], name


def test_a_seed_can_leave_the_stack(tmp_path):
    """What a stack saved goes on as a single run, and the other way round."""
    go(tmp_path / "stack", stop_at=8, task=plain(), seeds=(1, 2))
    go(tmp_path / "stack/seed-2", task=plain(), seeds=(2,))
    go(tmp_path / "alone", task=plain(), seeds=(2,))
    assert_same_run(Run(tmp_path / "stack/seed-2"), Run(tmp_path / "alone"))
    go(tmp_path / "stack", task=plain(), seeds=(1, 2))
    assert Run(tmp_path / "stack/seed-1").metrics()[-1]["step"] == STEPS


def test_seeds_at_different_steps_catch_up(tmp_path):
    """Two done, one in the middle, one new: only what is missing is trained."""
    go(tmp_path / "stack", task=plain(), seeds=(0, 1))
    go(tmp_path / "stack/seed-2", stop_at=6, task=plain(), seeds=(2,))
    before = files(tmp_path / "stack/seed-0")
    task = go(tmp_path / "stack", task=plain(), seeds=(0, 1, 2, 3))
    assert files(tmp_path / "stack/seed-0") == before
    assert sum("complete" in line for line in task.said) == 2
    assert any("resuming after step 6" in line for line in task.said)
    for seed in (2, 3):
        go(tmp_path / f"alone-{seed}", task=plain(), seeds=(seed,))
        assert_same_run(Run(tmp_path / f"stack/seed-{seed}"), Run(tmp_path / f"alone-{seed}"))


class Sick(TinyTask):
    """The seed whose first weight is marked fails at its eighth step: in the loss or gradient."""

    def __init__(self, sick_seed: int, where: str) -> None:
        super().__init__(dropout=0.0)
        self.sick_seed, self.where = sick_seed, where
        self.judged: list[bool] = []

    def make_model(self, seed):
        model = super().make_model(seed)
        model.register_buffer("sick", torch.tensor(float(seed == self.sick_seed)))
        return model

    def loss(self, model, batch):
        loss, extras = super().loss(model, batch)
        now = model.sick * (batch.progress >= 7 / STEPS)
        if self.where == "loss":
            return loss / (1 - now), extras
        weight = model[0].weight
        return loss + now * ((weight * 0).sum().abs() + (1 - now)).sqrt(), extras

    def measure(self, model, batch):
        return {**super().measure(model, batch), "sick": model.sick}

    def judge(self, measured, split):
        self.judged.append(bool(measured["sick"].any()))
        return super().judge(measured, split)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_sick_seed_is_frozen_and_the_others_go_on(tmp_path, where):
    go(tmp_path / "stack", stop_at=5, task=Sick(1, where), seeds=SEEDS)
    task = Sick(1, where)
    with pytest.raises(RunFailed) as error:
        go(tmp_path / "stack", task=task, seeds=SEEDS)
    message = str(error.value)
    assert "1 of 3 seeds failed" in message
    assert "step 8" in message
    assert ("the loss is inf" if where == "loss" else "gradient is not finite") in message
    assert any("seed 1 stopped, the others continue" in line for line in task.said)
    assert task.judged.count(False) > 2 * task.judged.count(True)  # no judgement once it failed
    failure = json.loads((tmp_path / "stack/seed-1/not-finite.json").read_text())
    alone = Sick(1, "loss")
    with pytest.raises(RunFailed):
        go(tmp_path / "alone-1", task=alone, seeds=(1,))
    assert failure["batch"] == alone.seen[7]
    assert checkpoint.steps(tmp_path / "stack/seed-1/checkpoints") == [5]
    assert len(Run(tmp_path / "stack/seed-1").metrics()) == 1
    for seed in (0, 5):
        go(tmp_path / f"alone-{seed}", task=plain(), seeds=(seed,))
        rows = Run(tmp_path / f"stack/seed-{seed}").metrics()
        others = Run(tmp_path / f"alone-{seed}").metrics()
        assert [r["loss"] for r in rows] == pytest.approx([r["loss"] for r in others], rel=1e-5)


def test_a_frozen_seed_keeps_its_weights(tmp_path):
    """Momentum would carry it on; the weights are those before the step that failed."""
    task = Sick(1, "loss")
    stack = Stack([task.make_model(s) for s in (0, 1)])
    batches = Batches(task.data, 4, task.noise_size, (0, 1), CPU)
    state = State(stack, CONFIG, STEPS)
    update = Step(task, CONFIG, state, batches, STEPS)
    rows = []
    for step in range(10):
        batches.prepare(step)
        update()
        weights = stack.parts(stack.vector)["0.weight"]
        rows.append(weights.clone())
    assert state.alive.tolist() == [True, False]
    assert state.steps_done.tolist() == [10, 7]
    assert torch.equal(rows[6][1], rows[9][1])
    assert not torch.equal(rows[5][1], rows[6][1])
    assert not torch.equal(rows[8][0], rows[9][0])
    assert torch.isfinite(stack.vector).all()


def test_the_stack_is_split_when_memory_is_short(tmp_path, monkeypatch):
    go(tmp_path / "whole", task=plain(), seeds=SEEDS)
    monkeypatch.setattr(memory, "bytes_a_seed", lambda stack, forward: 2.0**30)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 3 * 2**30)
    task = go(tmp_path / "split", task=plain(), seeds=SEEDS)
    assert any("3.0 GiB are free: training 2 + 1 seeds" in line for line in task.said)
    for seed in SEEDS:
        assert_same_run(Run(tmp_path / f"split/seed-{seed}"), Run(tmp_path / f"whole/seed-{seed}"))


def test_split_parts_are_even_and_complete():
    parts = memory.split(range(10), needed=1.0, free=4 / memory.USABLE)
    assert sorted(len(part) for part in parts) == [3, 3, 4]
    assert sorted(itertools.chain(*parts)) == list(range(10))
    assert memory.split(range(3), needed=100.0, free=1.0) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "2.00 GiB"),
        (RuntimeError("Storage size calculation overflowed with sizes=[9]"), "not enough memory"),
        (MemoryError(), "not enough memory"),
    ],
)
def test_no_memory_is_one_line(error, failure):
    with (
        pytest.raises(RunFailed, match=f"^here: .*{failure}"),
        memory.memory_errors_in_one_line("here"),
    ):
        raise error


def test_other_errors_are_not_taken_for_a_lack_of_memory():
    with (
        pytest.raises(RuntimeError, match="shapes") as other,
        memory.memory_errors_in_one_line("here"),
    ):
        raise RuntimeError("shapes do not match")
    assert not isinstance(other.value, RunFailed)


def test_memory_estimate_follows_the_batch():
    def needed(batch: int) -> float:
        model = nn.Sequential(nn.Linear(100, 200), nn.ReLU(), nn.Linear(200, 1))
        inputs = torch.randn(batch, 100)
        return memory.bytes_a_seed(Stack([model]), lambda: model(inputs).sum())

    small, large = needed(1_000), needed(11_000)
    kept = 10_000 * (100 + 200) * 4  # the inputs and the hidden layer, of ten thousand more
    assert 1.0 * kept <= large - small <= 4.0 * kept


def test_buffers_and_untrained_parameters_stack():
    """Batch normalisation's running means are each seed's own; a frozen parameter stays."""

    def make(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        model[2].weight.requires_grad_(False)
        return model

    models = [make(s) for s in range(3)]
    alone = copy.deepcopy(models)
    stack = Stack(models)
    x = torch.randn(3, 8, 3)
    losses = stack.each(lambda model, x: model(x).square().mean(), x)
    gradient = stack.gradient(losses)
    parts = stack.parts(gradient)
    assert "2.weight" not in parts
    for s, model in enumerate(alone):
        model(x[s]).square().mean().backward()
        saved = stack.state_dict(s, stack.vector, stack.constants)
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(saved[name], tensor)
        for name, part in parts.items():
            torch.testing.assert_close(part[s], model.get_parameter(name).grad)
        norm = torch.nn.utils.get_total_norm([model.get_parameter(name).grad for name in parts])
        torch.testing.assert_close(stack.norms(gradient)[s], norm)


def test_state_dict_round_trip_and_scalars():
    class Scaled(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(float(seed)))
            self.linear = nn.Linear(2, 3)

    for size in (1, 3):
        models = [Scaled(s) for s in range(size)]
        wanted = [{k: v.clone() for k, v in m.state_dict().items()} for m in models]
        stack = Stack(models)
        for s in range(size):
            saved = stack.state_dict(s, stack.vector, stack.constants)
            for name in wanted[s]:
                assert torch.equal(saved[name], wanted[s][name])
        stack.vector.zero_()
        for s in range(size):
            stack.load_state_dict(s, wanted[s])
        saved = stack.state_dict(size - 1, stack.vector, stack.constants)
        assert all(torch.equal(saved[k], v) for k, v in wanted[-1].items())
