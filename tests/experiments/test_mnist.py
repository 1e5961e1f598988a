"""The MNIST transformation experiment: its pairs, its schedule, and rules added to trained models.

Everything here runs on scikit-learn's small digits.
"""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

import nps
from nps.errors import UserError
from nps.experiments import EXPERIMENTS, load_task
from nps.experiments.mnist import PRESETS
from nps.experiments.mnist import task as mnist_task
from nps.experiments.mnist.config import Config
from nps.experiments.mnist.task import MnistTask, Pairs, cross_entropy, split
from nps.inspect.grids import BORDER
from nps.models.digits import DigitTransformation
from nps.models.digits_authors import AuthorsNPS
from nps.training import checkpoint
from nps.training.config import from_json, to_json
from nps.training.run import Run
from nps.training.task import Batch
from nps.worlds.transformations import OPERATIONS, paste, transform
from tests.experiments.drawing import RARELY, assert_draws
from tests.test_cli import call
from tests.training.tools import files, go

pytest.importorskip("sklearn")

CPU = torch.device("cpu")
TINY = {
    "world": "digits",
    "slot_dim": 12,
    "hidden_dim": 8,
    "train_examples": 40,
    "validation_examples": 10,
    "test_examples": 10,
    "batch_size": 20,
    "epochs": 1,
    "validate_every": 1,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]


def task_of(**changes: object) -> MnistTask:
    return MnistTask(Config(**{**TINY, **changes}), CPU)


def batch_of(task: MnistTask, size: int, seed: int) -> Batch:
    noise = torch.rand(size, task.noise_size, generator=torch.Generator().manual_seed(seed))
    return Batch(torch.arange(size), noise, torch.tensor(0.0), task.phase(0.0))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Two finished runs of two steps each, in folders seed-0 and seed-3."""
    out = tmp_path_factory.mktemp("trained")
    for seed in (0, 3):
        call("train", "mnist-balanced", f"--out={out}/seed-{seed}", f"--seed={seed}", *FLAGS)
    return out


# -- pairs ------------------------------------------------------------------------------------


def test_training_pairs_are_operations_on_chains():
    task = task_of()
    index = torch.arange(40)
    noise = torch.rand(40, 5, generator=torch.Generator().manual_seed(0))
    before, after, operation = task.training_pairs(index, noise)
    chain, earlier = (noise[:, :4] * 4).floor().long(), (noise[:, 4] * 4).floor().long()
    assert set(earlier.tolist()) == {0, 1, 2, 3}
    for e in range(40):
        image = paste(task.digits["train"][e : e + 1])
        for i in range(earlier[e]):
            image = transform(image, chain[e, i : i + 1], task.matrices)
        torch.testing.assert_close(before[e], image[0])
        torch.testing.assert_close(after[e], transform(image, chain[e, 3:], task.matrices)[0])
    assert torch.equal(operation, chain[:, 3])


def test_whole_chains_are_operations_one_by_one():
    """Four pairs of each digit, each the next operation on what the one before made."""
    task = task_of(whole_chains=True)
    noise = torch.rand(40, 4, generator=torch.Generator().manual_seed(0))
    before, after, operation = task.training_pairs(torch.arange(40), noise)
    assert before.shape == after.shape == (160, 64, 64)
    for e in range(40):
        image = paste(task.digits["train"][e : e + 1])
        for i in range(4):
            wanted = int(noise[e, i] * 4)
            assert operation[4 * e + i] == wanted
            torch.testing.assert_close(before[4 * e + i], image[0])
            image = transform(image, torch.tensor([wanted]), task.matrices)
            torch.testing.assert_close(after[4 * e + i], image[0])
    assert set(operation.tolist()) == {0, 1, 2, 3}


def test_every_pair_of_a_chain_has_noise_of_its_own():
    """The loss of a batch of chains is the mean over their pairs, each with its share of noise."""
    task = task_of(whole_chains=True)
    model, batch = task.make_model(0), batch_of(task, 3, 0)
    pairs = task.training_pairs(batch.index, batch.noise[:, :4])
    shares = batch.noise[:, 4:].reshape(12, 1, -1)
    each = [
        cross_entropy(model(one.before, one.operation, noise=share), one)
        for one, share in (
            (Pairs(*(x[i : i + 1] for x in pairs)), shares[i : i + 1]) for i in range(12)
        )
    ]
    torch.testing.assert_close(task.loss(model, batch)[0], torch.stack(each).mean())


def test_the_extremes_of_the_noise_are_operations_too():
    task = task_of(flip=True, depth=2)
    almost = torch.full((3, 3), 1.0 - 2.0**-24)
    assert task.training_pairs(torch.arange(3), almost).operation.tolist() == [4, 4, 4]
    before, _, operation = task.training_pairs(torch.arange(3), torch.zeros(3, 3))
    assert operation.tolist() == [0, 0, 0]
    assert torch.equal(before, paste(task.digits["train"][:3]))


def test_validation_and_test_are_all_pairs_of_fixed_chains():
    task, again = task_of(), task_of()
    digits, chain = task.digits["test"], task.chains["test"]
    assert torch.equal(chain, again.chains["test"])
    assert not torch.equal(chain, task_of(data_seed=1).chains["test"])
    assert not torch.equal(chain, task.chains["validation"])
    before, after, operation = task.chain_pairs(digits, chain)
    assert before.shape == after.shape == (40, 64, 64)
    pairs = [(d, i) for d in range(10) for i in range(4)]
    for e, (d, i) in enumerate(pairs):
        assert operation[e] == chain[d, i]
        if i == 0:
            assert torch.equal(before[e], paste(digits[d : d + 1])[0])
        else:
            assert torch.equal(before[e], after[e - 1])
        torch.testing.assert_close(
            after[e], transform(before[e : e + 1], operation[e : e + 1], task.matrices)[0]
        )


def test_no_digit_is_in_two_sets():
    digits = split(Config(world="digits"))
    assert [len(digits[name]) for name in ("train", "validation", "test")] == [1375, 125, 297]
    assert len(split(Config(world="digits", train_examples=7))["train"]) == 7
    together = torch.cat([digits["train"], digits["validation"]])
    assert torch.equal(together, nps.worlds.mnist.load("digits").train.images)


def test_measuring_in_parts_is_measuring_at_once(monkeypatch):
    task = task_of()
    model = task.make_model(0).eval()

    def measured() -> list[dict[str, torch.Tensor]]:
        with torch.no_grad():
            return [task.measure(model, batch) for batch in task.batches("validation")]

    whole = measured()
    assert len(whole) == 1
    monkeypatch.setattr(mnist_task, "DIGITS_AT_ONCE", 3)
    parts = measured()
    assert len(parts) == 4
    for name, values in whole[0].items():
        assert values.shape == (40,)
        torch.testing.assert_close(torch.cat([part[name] for part in parts]), values)


def test_floors_and_judgement_against_plain_sums():
    task = task_of()
    model = task.make_model(0).eval()
    before, after, operation = task.chain_pairs(task.digits["test"], task.chains["test"])
    with torch.no_grad():
        one_by_one = zip(before.split(1), operation.split(1), strict=True)
        drawn = torch.cat([model(*pair) for pair in one_by_one])
    error = (drawn.sigmoid() - after).square()
    tested = task.test(model)
    assert tested["mse"] == pytest.approx(error.mean().item(), rel=1e-4)
    for o, name in enumerate(OPERATIONS):
        mine = error[operation == o].mean().item()
        assert tested["mse_by_operation"][name] == pytest.approx(mine, rel=1e-4)
    assert tested["floors"]["black"] == pytest.approx(after.square().mean().item(), rel=1e-4)
    assert tested["floors"]["copy"] == pytest.approx((before - after).square().mean().item())
    assert sum(map(sum, tested["table"])) == 40
    assert 0.25 <= tested["segregation"] <= 1.0


# -- the loop's promises ----------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_round_trips_and_steps(name):
    config = dataclasses.replace(PRESETS[name].config, **TINY)
    assert from_json(Config, to_json(config)) == config
    task = MnistTask(config, CPU)
    model = task.make_model(0)
    loss, _ = task.loss(model, batch_of(task, 20, 0))
    loss.backward()
    for part, parameter in model.named_parameters():
        assert parameter.grad is not None or not parameter.requires_grad, part
    assert set(task.test(model.eval())) >= {"mse", "floors"}


def test_a_step_is_a_function_of_its_arguments():
    task = task_of()
    model = task.make_model(0)
    first = task.loss(model, batch_of(task, 20, 1))[0]
    task.loss(model, batch_of(task, 20, 2))
    torch.rand(7)  # the global generator must not matter
    assert torch.equal(task.loss(model, batch_of(task, 20, 1))[0], first)


def test_the_bonus_is_for_even_use_and_falls_to_zero():
    plain, task = task_of(), task_of(balance=0.2, explore_until=0.5)
    model = task.make_model(0)

    def bonus(progress: float) -> float:
        batch = dataclasses.replace(batch_of(task, 20, 1), progress=torch.tensor(progress))
        loss, logged = task.loss(model, batch)
        assert logged["error"] == plain.loss(model, batch)[0]
        return (logged["error"] - loss).item()

    assert 0.0 < bonus(0.0) <= 0.2 * math.log(4)
    assert bonus(0.25) == pytest.approx(0.5 * bonus(0.0), rel=1e-4)
    assert bonus(0.5) == bonus(0.9) == 0.0


def test_the_free_energy_lies_between_the_best_and_the_expected_loss():
    def loss_at(temperature: float) -> float:
        task = task_of(objective="free-energy", energy_temperature=temperature)
        return task.loss(model, batch_of(task, 20, 1))[0].item()

    task = task_of()
    model, batch = task.make_model(0), batch_of(task, 20, 1)
    before, after, operation = task.training_pairs(batch.index, batch.noise[:, :5])
    log_prior, logits = model.every_result(before, operation)
    target = after[:, None, None].expand_as(logits)
    likely = target * logits.sigmoid().log() + (1 - target) * (1 - logits.sigmoid()).log()
    losses = -likely.mean((-2, -1))
    assert loss_at(1e-6) == pytest.approx(losses.amin((1, 2)).mean().item(), abs=1e-4)
    expected = (log_prior.exp() * losses).sum((1, 2)).mean().item()
    assert loss_at(1e4) == pytest.approx(expected, abs=5e-3)
    assert loss_at(1e-6) < loss_at(1e-2) < expected


@pytest.mark.parametrize("name", PRESETS)
def test_a_stack_of_seeds_equals_single_runs(tmp_path, trained, name):
    config = dataclasses.replace(PRESETS[name].config, **TINY, learning_rate=1e-3)
    if config.flip:
        config = dataclasses.replace(config, start_from=str(trained))
    task = MnistTask(config, CPU)
    go(tmp_path / "stack", task=with_reports(task), seeds=(0, 3), config=config)
    for s in (0, 3):
        go(tmp_path / f"alone-{s}", task=with_reports(task), seeds=(s,), config=config)
        stacked, alone = Run(tmp_path / f"stack/seed-{s}"), Run(tmp_path / f"alone-{s}")
        ours, theirs = (checkpoint.newest(r.checkpoints, print) for r in (stacked, alone))
        for group in ("model", "best"):
            for key, tensor in theirs.tensors[group].items():
                # One by one they may differ: Adam's first steps divide a gradient by its own size,
                # be it rounding alone.
                error = (ours.tensors[group][key] - tensor).double().norm()
                assert error <= 1e-3 * tensor.double().norm(), f"{group} {key}"
        for row, other in zip(stacked.metrics(), alone.metrics(), strict=True):
            assert row["loss"] == pytest.approx(other["loss"], rel=1e-4)
            assert row["validation"]["mse"] == pytest.approx(other["validation"]["mse"], rel=1e-4)


@pytest.mark.parametrize("fifth", [False, True])
def test_resume_is_exact(tmp_path, trained, fifth):
    config = dataclasses.replace(PRESETS["mnist-balanced"].config, **{**TINY, "epochs": 2})
    if fifth:
        start = {"flip": True, "start_from": str(trained), "dropout": 0.0, "balance": 0.0}
        config = dataclasses.replace(config, **start)
    for stop in (None, 1, 3, None):
        folder = tmp_path / ("whole" if not (tmp_path / "whole").exists() else "parts")
        go(folder, stop_at=stop, task=with_reports(MnistTask(config, CPU)), config=config)
    whole, parts = files(tmp_path / "whole"), files(tmp_path / "parts")
    assert parts["metrics.jsonl"] == whole["metrics.jsonl"]
    for name in ("model", "best", "optimizer"):
        path = f"checkpoints/step-00000004/{name}.safetensors"
        assert parts[path] == whole[path], name


def with_reports(task: MnistTask) -> MnistTask:
    """The task, with the list to which `go` appends reports."""
    task.said = []
    return task


# -- commands, and models that begin with others ----------------------------------------------


def test_train_and_eval_on_the_command_line(trained):
    out, _ = call("eval", str(trained / "seed-0"))
    assert "Rule segregation" in out
    assert "Error (MSE)" in out
    assert "an all-black picture" in out
    run = Run(trained / "seed-0")
    assert [row["step"] for row in run.metrics()] == [2]
    assert isinstance(nps.load(run.folder).model, DigitTransformation)


def test_two_steps_of_the_authors_program_on_the_command_line(tmp_path):
    """Two seeds as a stack, tested, and in one table with the paper's settings."""
    flags = [f"--out={tmp_path / 'mnist-authors'}", "--seeds=2", *FLAGS]
    call("train", "mnist-authors", *flags)
    call("train", "mnist", f"--out={tmp_path / 'mnist' / 'seed-0'}", *FLAGS)
    folders = [tmp_path / name for name in ("mnist-authors/seed-0", "mnist-authors/seed-1")]
    for folder in (*folders, tmp_path / "mnist/seed-0"):
        out, _ = call("eval", str(folder))
        assert "Rule segregation" in out
        assert [row["step"] for row in Run(folder).metrics()] == [2]
    assert Run(folders[0]).read()["config"]["whole_chains"]
    assert isinstance(nps.load(folders[0]).model.layer, AuthorsNPS)
    page, _ = call("table", str(tmp_path))
    rows = [line.split(" |")[0] for line in page.splitlines()[2:4]]
    assert rows == ["| NPS (paper's settings)", "| NPS, the authors' program"]
    assert nps.load(folders[0]).trace(n=3).rule.shape == (3, 1, 2)
    shown, _ = call("inspect", str(folders[0]))
    assert "rotate_right" in shown


def test_a_run_from_before_whole_chains_is_complete(tmp_path, trained):
    """A field that came later has in an old run the value that does what it did."""
    shutil.copytree(trained / "seed-0", tmp_path / "old")
    path = tmp_path / "old/config.json"
    saved = json.loads(path.read_text())
    del saved["config"]["whole_chains"]
    path.write_text(json.dumps(saved))
    _, err = call("train", "mnist-balanced", f"--out={tmp_path / 'old'}", *FLAGS)
    assert "complete" in err


def test_a_fifth_rule_leaves_the_first_four_as_they_were(tmp_path, trained):
    """The old operations' pictures bit for bit, and no need of the start to load the run."""
    start, out = tmp_path / "start", tmp_path / "fifth"
    shutil.copytree(trained, start)
    args = ["--learning-rate=0.1", *FLAGS, "--seed=3", f"--start-from={start}"]
    call("train", "mnist-fifth", "--out", str(out), *args)
    shutil.rmtree(start)
    task, model = load_task(out)
    old = nps.load(trained, seed=3).model
    assert len(model.layer.rules) == 5
    assert model.layer.rules.frozen == [0, 1, 2, 3]
    before, _, operation = task.chain_pairs(task.digits["test"], task.chains["test"])
    known = operation < 4
    with torch.no_grad():
        drawn, trace = model(before, operation, return_trace=True)
        was, was_fired = old(before, operation.clamp(max=3), return_trace=True)
        for i in range(4):
            slot = old.encode(before)
            assert torch.equal(model.act(slot, i), old.act(slot, i))
    assert torch.equal(model.encode(before), slot)
    assert torch.equal(model.decode(slot), old.decode(slot))
    same = known & (trace.rule == was_fired.rule).all(-1).all(-1)
    assert same.sum() > 0.5 * known.sum()  # two steps have not taught the new rule to keep out
    assert torch.equal(drawn[same], was[same])
    for name, tensor in old.state_dict().items():
        if "extra" not in name:
            assert torch.equal(model.state_dict()[name][: len(tensor)], tensor), name


def test_a_start_may_be_one_run(tmp_path, trained):
    folder = str(trained / "seed-0")
    out = str(tmp_path / "fifth")
    call("train", "mnist-fifth", "--out", out, "--seed=7", f"--start-from={folder}", *FLAGS)
    old = nps.load(folder).model
    assert torch.equal(nps.load(out).model.operations.weight, old.operations.weight)


@pytest.mark.parametrize(
    ("spoil", "flags", "message"),
    [
        (None, [], "seed-1: no such run folder"),
        ("config", ["--seed=0"], "has no config.json"),
        ("log", ["--seed=0"], "is not trained to the end"),
        (None, ["--seed=0", "--hidden-dim=9"], "has hidden_dim 8, expected 9"),
        ("flag", ["--seed=0"], "expected --start-from, a folder of mnist-balanced runs"),
    ],
)
def test_a_start_that_cannot_be_is_one_line(tmp_path, trained, spoil, flags, message):
    start, out = tmp_path / "start", tmp_path / "out"
    shutil.copytree(trained, start)
    if spoil == "config":
        (start / "seed-0/config.json").unlink()
    elif spoil == "log":
        (start / "seed-0/metrics.jsonl").write_text("")
    where = [] if spoil == "flag" else [f"--start-from={start}"]
    args = ["--out", str(out), *where, *FLAGS, "--seed=1", *flags]
    _, err = call("train", "mnist-fifth", *args, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert not out.exists()


def test_run_trains_the_fifth_rule_after_the_others(tmp_path, monkeypatch):
    """`nps run` with tiny models; children are real processes."""
    quick = {"mnist-fifth": TINY, "mnist-balanced": TINY}
    monkeypatch.setattr(EXPERIMENTS["mnist"], "quick", quick)
    args = ["run", "mnist", "--out", str(tmp_path)]
    printed, errors = call(*args)
    assert "on a CPU this is the quick version" in errors
    assert "An all-black picture" in printed
    assert "translate up" in printed
    saved = Run(tmp_path / "mnist-fifth/seed-0").read()["config"]
    assert saved["start_from"] == str(tmp_path / "mnist-balanced")
    before = (tmp_path / "mnist-fifth/seed-0/provenance.json").read_bytes()
    call(*args)
    assert (tmp_path / "mnist-fifth/seed-0/provenance.json").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rules": 0}, "rules: got 0, expected at least 1"),
        ({"depth": 0}, "depth: got 0, expected at least 1"),
        ({"train_examples": 0}, "train_examples: got 0, expected at least 1"),
        ({"shift": -0.1}, r"shift: got -0.1, expected a number in \[0, 1\]"),
        ({"rotation": float("nan")}, "rotation: got nan, expected a number"),
        ({"world": "cifar"}, "world: got 'cifar', expected one of mnist, digits"),
        ({"model": "gnn"}, "model: got 'gnn', expected one of nps, authors, mlp"),
        ({"start_from": "x"}, "start_from requires flip=True"),
        ({"balance": 0.1, "model": "mlp"}, "balance requires model nps, got mlp"),
        ({"explore_until": 0.0}, "explore_until: got 0, expected a number in"),
        ({"objective": "free-energy", "model": "mlp"}, "objective requires model nps, got mlp"),
        ({"flip": True, "model": "mlp"}, "flip requires model nps, got mlp"),
        ({"dropout": 0.1, "model": "authors"}, "dropout requires model nps, got authors"),
        ({"self_context": False, "model": "authors"}, "self_context requires model nps, got auth"),
        ({"image_selects": False, "model": "authors"}, "image_selects requires model nps, got"),
    ],
)
def test_configs_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)


def test_a_validation_set_that_leaves_nothing_to_train_with():
    with pytest.raises(UserError, match="got 1500, expected fewer than the 1500 training digits"):
        task_of(validation_examples=1500)


# -- pictures while training ------------------------------------------------------------------


def test_the_picture_while_training_shows_digits(tmp_path, monkeypatch):
    assert_draws(tmp_path, task_of(**RARELY), "digits", monkeypatch)


@pytest.mark.parametrize("flip", [False, True])
def test_the_picture_has_target_above_output_of_every_operation(flip):
    """By the pixels of each cell, one digit and operation at a time."""
    task = task_of(flip=flip)
    model = task.make_model(0).eval()
    operations = len(task.operations)
    with torch.no_grad():
        picture = torch.from_numpy(task.draw(model)["digits"])
    size = 64 + 2 * BORDER
    assert picture.shape == (7 * size, (1 + operations) * size, 3)
    cells = picture[..., 0].unfold(0, size, size).unfold(1, size, size)
    cells = cells[..., BORDER:-BORDER, BORDER:-BORDER] / 255
    for digit in range(3):
        image = paste(task.digits["validation"][digit : digit + 1])
        torch.testing.assert_close(cells[1 + 2 * digit, 0], image[0], atol=0.002, rtol=0)
        assert (cells[2 + 2 * digit, 0] == 1).all()
        for o in range(operations):
            operation = torch.tensor([o])
            target = transform(image, operation, task.matrices)[0]
            output = model(image, operation).sigmoid()[0].detach()
            above, below = cells[1 + 2 * digit : 3 + 2 * digit, 1 + o]
            torch.testing.assert_close(above, target, atol=0.003, rtol=0)
            torch.testing.assert_close(below, output, atol=0.003, rtol=0)
    top = cells[0].flatten(1)  # the letter F: no two operations look alike
    assert (top[:, None] != top).any(-1).sum() == (1 + operations) * operations
