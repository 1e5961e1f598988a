"""The loop's promise: train(2n) equals train(n), stop, train(n), bit for bit; and it learns."""

import dataclasses
import itertools
import json
import math

import pytest
import torch

from nps.errors import RunFailed, UserError
from nps.training import checkpoint
from nps.training.batches import Batches
from nps.training.config import TrainConfig
from nps.training.optimiser import learning_rates
from nps.training.run import Run
from nps.training.task import Batch
from tests.training.tools import CONFIG, CPU, STEPS, TinyTask, files, go


@pytest.mark.parametrize("stops", [[7], [10], [1, 2, 12, 19], [5, 5 + 5]])
def test_resume_is_exact(tmp_path, stops):
    """Mid-epoch (7), at an epoch's end (10), and several times."""
    go(tmp_path / "whole")
    for stop in stops:
        go(tmp_path / "parts", stop_at=stop)
    go(tmp_path / "parts")
    whole, parts = files(tmp_path / "whole"), files(tmp_path / "parts")
    last = f"checkpoints/step-{STEPS:08d}"
    assert parts["metrics.jsonl"] == whole["metrics.jsonl"]
    for name in ("model", "best", "optimizer"):
        assert parts[f"{last}/{name}.safetensors"] == whole[f"{last}/{name}.safetensors"], name
    assert parts[f"{last}/state.json"] == whole[f"{last}/state.json"]


def test_resume_sees_the_same_batches(tmp_path):
    whole = go(tmp_path / "whole").seen
    first = go(tmp_path / "parts", stop_at=8).seen
    second = go(tmp_path / "parts").seen
    assert first + second == whole
    assert len(whole) == STEPS


def test_epochs_are_permutations_without_the_incomplete_batch(tmp_path):
    seen = go(tmp_path / "run").seen
    epochs = [list(itertools.chain(*seen[i : i + 5])) for i in range(0, STEPS, 5)]
    for epoch in epochs:
        assert len(set(epoch)) == 20
    assert epochs[0] != epochs[1]


def test_a_crash_between_saves_is_repaired(tmp_path):
    """Log lines behind the last checkpoint are cut off and written again."""
    go(tmp_path / "whole")
    go(tmp_path / "parts", stop_at=12)
    with (tmp_path / "parts" / "metrics.jsonl").open("a") as log:
        log.write('{"epoch": 3, "step": 15, "loss": 9.9}\n{"epoch": 4, "st')
    go(tmp_path / "parts")
    whole, parts = files(tmp_path / "whole"), files(tmp_path / "parts")
    assert parts["metrics.jsonl"] == whole["metrics.jsonl"]


def test_complete_run_is_left_alone(tmp_path):
    go(tmp_path / "run")
    before = files(tmp_path / "run")
    assert go(tmp_path / "run").seen == []
    assert files(tmp_path / "run") == before


def test_log_has_means_and_validations(tmp_path):
    task = go(tmp_path / "run")
    rows = Run(tmp_path / "run").metrics()
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert [row["step"] for row in rows] == [5, 10, 15, 20]
    assert rows[0]["progress"] == pytest.approx((0 + 1 + 2 + 3 + 4) / 5 / STEPS)
    model = task.models[-1].eval()
    assert rows[-1]["validation"] == task.evaluate(model, "validation")
    with torch.no_grad():
        error = (model(task.inputs) - task.inputs.sum(-1, keepdim=True)).square().mean()
    assert rows[-1]["validation"]["score"] == pytest.approx(error.item())


def test_best_model_is_the_one_with_the_best_validation(tmp_path):
    class Rising(TinyTask):
        """Its second validation is the best."""

        scores = iter([3.0, 1.0, 2.0, 4.0])

        def batches(self, split):
            return [None]

        def measure(self, model, batch):
            self.weights = getattr(self, "weights", [])
            self.weights.append(model[0].weight.detach().clone())
            return {"error": torch.full((1,), next(self.scores))}

    task = go(tmp_path / "run", task=Rising())
    saved = checkpoint.newest(tmp_path / "run" / "checkpoints", print)
    assert saved.state["best_score"] == 1.0
    assert saved.state["best_step"] == 10
    assert torch.equal(saved.tensors["best"]["0.weight"], task.weights[1])
    assert not torch.equal(saved.tensors["model"]["0.weight"], task.weights[1])


def test_progress_is_the_share_of_steps_done(tmp_path):
    seen = []

    class Watching(TinyTask):
        def loss(self, model, batch):
            seen.append(batch.progress.item())
            return super().loss(model, batch)

    go(tmp_path / "run", task=Watching())
    assert seen == pytest.approx([step / STEPS for step in range(STEPS)])


@pytest.mark.parametrize("restart", [None, 0.5])
def test_learning_rate_follows_the_cosine(restart):
    period = STEPS if restart is None else STEPS // 2
    expected = [
        1e-3 + (1e-2 - 1e-3) * (1 + math.cos(math.pi * (i % period) / period)) / 2
        for i in range(STEPS)
    ]
    config = dataclasses.replace(CONFIG, restart_at=restart)
    assert learning_rates(config, STEPS).tolist() == pytest.approx(expected)
    constant = dataclasses.replace(CONFIG, final_learning_rate=None)
    assert learning_rates(constant, 3).tolist() == [1e-2] * 3
    warm = dataclasses.replace(config, warmup_steps=4)
    ramp = [0.25, 0.5, 0.75] + [1.0] * (STEPS - 3)
    assert learning_rates(warm, STEPS).tolist() == pytest.approx(
        [rate * factor for rate, factor in zip(expected, ramp, strict=True)]
    )


@pytest.mark.parametrize("clip", [None, 0.5])
def test_equals_a_plain_loop_in_torch(tmp_path, clip):
    """Loss, clipping, schedule and Adam as anyone would write them, on the same batches."""
    config = dataclasses.replace(CONFIG, clip_norm=clip)
    task = go(tmp_path / "run", task=TinyTask(dropout=0.0), config=config)
    model = TinyTask(dropout=0.0).make_model(0)
    optimiser = torch.optim.Adam(model.parameters())
    batches = Batches(task.data, 4, 3, [0], CPU)
    losses = []
    for step in range(STEPS):
        epoch, position = divmod(step, 5)
        index = batches.order(0, epoch)[position]
        noise = batches.noise(0, step // batches.block)[step % batches.block]
        batch = Batch(index, noise, torch.tensor(step / STEPS), "all")
        for group in optimiser.param_groups:
            group["lr"] = float(learning_rates(config, STEPS)[step])
        loss, _ = task.loss(model, batch)
        optimiser.zero_grad()
        loss.backward()
        if clip is not None:
            assert torch.nn.utils.clip_grad_norm_(model.parameters(), clip) > clip
        optimiser.step()
        losses.append(loss.item())
    logged = [row["loss"] for row in Run(tmp_path / "run").metrics()]
    means = [sum(losses[i : i + 5]) / 5 for i in range(0, STEPS, 5)]
    assert logged == pytest.approx(means, rel=1e-5)
    saved = checkpoint.newest(tmp_path / "run/checkpoints", print).tensors
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(saved["model"][name], tensor)
    for number, state in optimiser.state_dict()["state"].items():
        for key, value in state.items():
            torch.testing.assert_close(saved["optimizer"][f"{number}.{key}"], value)


def test_not_finite_stops_and_names_the_batch(tmp_path):
    go(tmp_path / "run", stop_at=5)
    task = TinyTask()
    task.spoil_at = 3
    with pytest.raises(RunFailed) as error:
        go(tmp_path / "run", task=task)
    message = str(error.value)
    assert "step 8" in message
    assert "loss is nan" in message
    assert "step-00000005" in message
    assert "\n" not in message
    failure = json.loads((tmp_path / "run" / "not-finite.json").read_text())
    assert failure["batch"] == task.seen[-1]
    assert failure["step"] == 8
    assert checkpoint.steps(tmp_path / "run" / "checkpoints") == [5]


def test_not_finite_gradient_is_caught_before_the_update(tmp_path):
    class Steep(TinyTask):
        def loss(self, model, batch):
            loss, extras = super().loss(model, batch)
            # sqrt at zero: a finite value with an infinite gradient
            return loss + (model[0].weight * 0).sum().abs().sqrt(), extras

    task = Steep()
    before = [p.detach().clone() for p in task.make_model(0).parameters()]
    with pytest.raises(RunFailed, match="gradient is not finite"):
        go(tmp_path / "run", task=task)
    for old, new in zip(before, task.models[-1].parameters(), strict=True):
        assert torch.equal(old, new)


def test_batch_larger_than_the_data_is_refused(tmp_path):
    with pytest.raises(UserError, match="batch_size: got 100"):
        go(tmp_path / "run", config=TrainConfig(batch_size=100))


def test_it_learns(tmp_path):
    go(tmp_path / "run")
    rows = Run(tmp_path / "run").metrics()
    scores = [row["validation"]["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.9 * scores[0]
