"""The engine on CUDA: captured equals eager, resume is exact, seeds are independent, no host reads.

python -m pytest -m gpu
"""

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from nps.capture import WARM_UP, Captured
from nps.errors import RunFailed
from nps.experiments.arithmetic import PRESETS, ArithmeticTask
from nps.training import checkpoint
from nps.training.run import Run
from tests.on_gpu import CUDA, assert_reads_nothing_on_the_host, go
from tests.training.video import SOURCES, VideoTask

pytestmark = pytest.mark.gpu

SMALL = {
    "train_examples": 1280,
    "validation_examples": 100,
    "test_examples": 100,
    "batch_size": 64,
    "epochs": 4,
    "validate_every": 1,
}
ALL = ("arithmetic", "arithmetic-baseline", "arithmetic-sharp", "arithmetic-sharp-any")


def task_of(preset: str = "arithmetic", **changes: object) -> ArithmeticTask:
    return ArithmeticTask(dataclasses.replace(PRESETS[preset].config, **SMALL, **changes), CUDA)


def assert_identical(one: Run, two: Run) -> None:
    """Bit for bit: weights, moments, averages and log."""
    ours, theirs = (checkpoint.newest(run.checkpoints, print) for run in (one, two))
    assert ours.tensors.keys() == theirs.tensors.keys()
    for group, tensors in theirs.tensors.items():
        for name, tensor in tensors.items():
            assert torch.equal(ours.tensors[group][name], tensor), (group, name)
    assert one.metrics_path.read_bytes() == two.metrics_path.read_bytes()


def assert_close(one: Run, two: Run, **tolerance: float) -> None:
    ours, theirs = (checkpoint.newest(run.checkpoints, print) for run in (one, two))
    for group in ("model", "best", "optimizer"):
        for name, tensor in theirs.tensors[group].items():
            torch.testing.assert_close(ours.tensors[group][name], tensor, **tolerance)
    for row, other in zip(one.metrics(), two.metrics(), strict=True):
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-3)


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("preset", ALL)
def test_captured_equals_eager(tmp_path, preset, seeds):
    """Bit for bit, through every phase (each is captured anew): capture is no part of a run."""
    task = task_of(preset)
    captured = go(tmp_path / "captured", task, seeds)
    eager = go(tmp_path / "eager", task, seeds, capture=False)
    for seed in seeds:
        assert_identical(captured[seed], eager[seed])
        assert captured[seed].provenance()[0]["captured"] is True
        assert eager[seed].provenance()[0]["captured"] is False


@pytest.mark.parametrize("preset", ALL)
def test_a_seed_of_a_stack_equals_its_single_run(tmp_path, preset):
    task = task_of(preset)
    stack = go(tmp_path / "stack", task, (0, 3))
    for seed in (0, 3):
        alone = go(tmp_path / "alone", task, (seed,))
        assert_close(stack[seed], alone[seed], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stop", [1, 30, 40])
def test_captured_resume_is_exact(tmp_path, stop):
    """Bit for bit, in the warm-up, mid-epoch and at an epoch's end."""
    task = task_of("arithmetic-sharp-any")
    whole = go(tmp_path / "whole", task)
    go(tmp_path / "parts", task, stop_at=stop)
    parts = go(tmp_path / "parts", task)
    assert_identical(parts[0], whole[0])


@pytest.mark.parametrize("preset", ALL)
def test_a_step_reads_nothing_on_the_host(preset):
    assert_reads_nothing_on_the_host(task_of(preset))


def test_dropout_inside_a_capture_is_new_each_time_and_resumes(tmp_path):
    """torch's own generator is seeded from (seed, step), which a captured step follows."""

    class Dropping(ArithmeticTask):
        def loss(self, model, batch):
            loss, extras = super().loss(model, batch)
            mask = torch.nn.functional.dropout(torch.ones(64, device=CUDA), 0.5)
            return loss, {**extras, "mask": (mask * torch.arange(64, device=CUDA)).mean()}

    task = Dropping(task_of().config, CUDA)
    whole = go(tmp_path / "whole", task)
    go(tmp_path / "parts", task, stop_at=33)
    parts = go(tmp_path / "parts", task)
    eager = go(tmp_path / "eager", task, capture=False)
    masks = [row["mask"] for row in whole[0].metrics()]
    assert len(set(masks)) == len(masks)
    assert [row["mask"] for row in parts[0].metrics()] == masks
    assert [row["mask"] for row in eager[0].metrics()] == masks


@pytest.mark.parametrize("source", SOURCES)
def test_video_captured_equals_eager_and_resumes_exactly(tmp_path, source):
    """`nn.GRUCell`, convolutions, dropout, AdamW, the moving average, from every source."""
    captured = go(tmp_path / "captured", VideoTask(source, "cuda"))
    eager = go(tmp_path / "eager", VideoTask(source, "cuda"), capture=False)
    go(tmp_path / "parts", VideoTask(source, "cuda"), stop_at=8)
    parts = go(tmp_path / "parts", VideoTask(source, "cuda"))
    assert_identical(captured[0], eager[0])
    assert_identical(parts[0], captured[0])


def test_video_is_the_same_from_resident_and_streamed_clips(tmp_path):
    """Pinned memory that is used again too early would show."""
    runs = {name: go(tmp_path / name, VideoTask(name, "cuda"))[0] for name in SOURCES[1:]}
    assert_identical(runs["resident"], runs["streamed"])


def test_a_sick_seed_is_frozen_and_the_others_go_on(tmp_path):
    class Sick(ArithmeticTask):
        def make_model(self, seed):
            model = super().make_model(seed)
            model.register_buffer("sick", torch.tensor(float(seed == 1), device=CUDA))
            return model

        def loss(self, model, batch):
            loss, extras = super().loss(model, batch)
            return loss / (1 - model.sick * (batch.progress >= 0.4)), extras

    task = task_of()
    with pytest.raises(RunFailed, match=r"1 of 3 seeds failed: step 33: the loss is inf"):
        go(tmp_path / "stack", Sick(task.config, CUDA), (0, 1, 2))
    healthy = go(tmp_path / "healthy", task, (0, 2))
    for seed in (0, 2):
        assert_close(Run(tmp_path / f"stack/seed-{seed}"), healthy[seed], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_fast_precisions_train_and_are_recorded(tmp_path, precision):
    task = task_of("arithmetic-sharp", hidden_dim=64)
    exact, fast = go(tmp_path / "exact", task), go(tmp_path / "fast", task, precision=precision)
    assert exact[0].provenance()[0]["precision"] == "float32"
    assert fast[0].provenance()[0]["precision"] == precision
    losses = [[row["mse"] for row in runs[0].metrics()] for runs in (exact, fast)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.2)


def test_captured_calls_all_do_the_work():
    count = torch.zeros(1, device=CUDA)

    def work() -> None:
        count.add_(1)

    captured = Captured(work)
    for _ in range(WARM_UP + 5):
        captured()
    assert count.item() == WARM_UP + 5


def test_torchrun_with_nccl(tmp_path):
    """One process, one device: the collective is inside the captured step."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    train_ = ["-m", "nps", "train", "arithmetic", "--device=cuda", *flags]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    for launcher, name in ((torchrun, "nccl"), ([], "alone")):
        command = [sys.executable, *launcher, *train_, "--out", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
    assert_close(Run(tmp_path / "nccl"), Run(tmp_path / "alone"), rtol=1e-4, atol=1e-5)
