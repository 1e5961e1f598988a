"""The coordinate arithmetic experiment: its task, its schedule, its report, and that it learns."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from nps.errors import UserError
from nps.experiments import EXPERIMENTS, find_preset, load_task
from nps.experiments.arithmetic import PRESETS, ArithmeticTask, Config
from nps.experiments.arithmetic.report import PAPER_TABLES
from nps.experiments.arithmetic.task import make_layer, what_fired
from nps.experiments.balance import use_entropy
from nps.rules import Trace
from nps.training.config import from_json, to_json
from nps.training.loop import Settings, train
from nps.training.run import Run
from nps.training.task import Batch
from nps.worlds.arithmetic import OPERATIONS
from tests.experiments.drawing import RARELY, assert_draws
from tests.experiments.stacks import assert_stack_equals_single

CPU = torch.device("cpu")
TINY = {"train_examples": 256, "validation_examples": 64, "test_examples": 64}


def task_of(**changes: object) -> ArithmeticTask:
    return ArithmeticTask(Config(**{**TINY, **changes}), CPU)


def batch_of(task: ArithmeticTask, size: int, seed: int, progress: float) -> Batch:
    noise = torch.rand(size, task.noise_size, generator=torch.Generator().manual_seed(seed))
    return Batch(torch.arange(size), noise, torch.tensor(progress), task.phase(progress))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_round_trips_and_steps(name):
    config = dataclasses.replace(PRESETS[name].config, **TINY)
    assert from_json(Config, to_json(config)) == config
    task = ArithmeticTask(config, CPU)
    model = task.make_model(0)
    loss, _ = task.loss(model, batch_of(task, 8, 0, 0.0))
    loss.backward()
    for name, parameter in model.named_parameters():
        # the routing baseline's rules have no condition
        assert (parameter.grad is not None) or name == "layer.rules.embedding"
    assert set(task.test(model.eval())) >= {"mse", "segregation", "nmi", "table", "rules"}


@pytest.mark.parametrize("name", PRESETS)
def test_a_stack_of_seeds_equals_single_runs(tmp_path, name):
    """Through every phase of every preset; 1e-4 is what eight steps of rounding amount to."""
    small = {**TINY, "batch_size": 64, "epochs": 2, "validate_every": 1}
    config = dataclasses.replace(PRESETS[name].config, **small)
    task = ArithmeticTask(config, CPU)
    everything = ("model", "best", "optimizer")
    assert_stack_equals_single(tmp_path, task, "mse", groups=everything, rtol=1e-4, atol=1e-5)


def test_a_step_is_a_function_of_its_arguments():
    task = task_of(dropout_until=0.5)
    one, two = task.make_model(0), task.make_model(0)
    torch.rand(7)  # the global generator must not matter
    first = task.loss(one, batch_of(task, 32, 1, 0.3))[0]
    task.loss(two, batch_of(task, 32, 2, 0.9))
    second = task.loss(two, batch_of(task, 32, 1, 0.3))[0]
    assert torch.equal(first, second)


def test_seeds_differ_in_weights_and_sets_in_examples():
    task = task_of()
    assert not torch.equal(task.sets["train"].before[:64], task.sets["test"].before)
    assert not torch.equal(task.sets["validation"].before, task.sets["test"].before)
    weights = [task.make_model(seed).layer.rules.weight_in for seed in (0, 1, 0)]
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_schedules_follow_progress():
    task = task_of(dropout=0.4, dropout_until=0.5, settle_from=0.75)
    model = task.make_model(0)
    seen = []
    for progress in (0.0, 0.25, 0.5, 0.9, 0.1):
        task.loss(model, batch_of(task, 4, 0, progress))
        seen.append((round(float(model.layer.dropout), 6), model.training))
    assert seen == [(0.4, True), (0.2, True), (0.0, True), (0.0, False), (0.32, True)]


def test_the_free_energy_equals_a_loop_over_slots_rules_and_contexts():
    temperature = 0.02
    task = task_of(objective="free-energy", energy_temperature=temperature, context_query="mlp")
    model, layer = task.make_model(0), task.make_model(0).layer
    batch = batch_of(task, 6, 0, 0.5)
    data = task.sets["train"]
    energies = []
    for e in batch.index.tolist():
        before, after = data.before[e], data.after[e]
        seen = torch.cat([before, after], -1)
        scores = layer.select(seen, layer.rules.embedding)
        pairs = torch.softmax(scores.flatten(), -1).view(2, 4)
        contexts = torch.softmax(layer.bind(seen, seen), -1)
        total = torch.zeros(())
        for p, r, c in itertools.product(range(2), range(4), range(2)):
            rule, context = torch.eye(4)[r : r + 1], torch.eye(2)[c : c + 1]
            predicted = layer.apply_rule(before, torch.eye(2)[p], rule, context)
            error = (predicted - after).square().mean()
            total += pairs[p, r] * contexts[p, c] * torch.exp(-error / temperature)
        energies.append(-temperature * total.log())
    loss, parts = task.loss(model, batch)
    torch.testing.assert_close(loss, torch.stack(energies).mean())
    assert parts == {}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"objective": "best"}, "objective"),
        ({"objective": "free-energy", "model": "routing"}, "objective"),
        ({"energy_temperature": 0.0}, "energy_temperature"),
    ],
    ids=str,
)
def test_wrong_settings_of_the_objective(change, name):
    with pytest.raises(ValueError, match=f"^{name}: .*$"):
        Config(**change)


def test_parameter_counts():
    """The appendix: four times more parameters in the baseline than in NPS; here 3.3 times."""
    nps = sum(p.numel() for p in make_layer(Config()).parameters())
    routing = make_layer(Config(model="routing"))
    baseline = sum(p.numel() for p in routing.parameters() if p.requires_grad)
    assert nps == 4 * (12 + (4 * 16 + 16) + (16 * 2 + 2)) + 12 * 32 + 3 * 4 * 32
    assert baseline == 4 * (4 * 16 + 16 + 16 * 2 + 2) + (8 + 1) * 32 + 3 * 33 * 32 + 33 * 8
    assert baseline / nps == pytest.approx(3.28, abs=0.01)


def test_what_fired_reads_a_trace():
    trace = Trace(
        rule=torch.tensor([[[-1, 2]], [[3, -1]]]),
        context=torch.tensor([[[-1, 0]], [[0, -1]]]),
        rule_scores=torch.zeros(2, 1, 2, 4),
        context_scores=torch.zeros(2, 1, 2, 2),
    )
    primary, rule, context = what_fired(trace)
    assert primary.tolist() == [1, 0]
    assert rule.tolist() == [2, 3]
    assert context.tolist() == [0, 0]


def test_use_entropy_is_highest_for_even_use():
    def of(rule_scores: torch.Tensor) -> float:
        empty = torch.zeros(0)
        return use_entropy(Trace(empty, empty, rule_scores, empty)).item()

    even = torch.full((4, 1, 2, 4), -50.0)
    even[torch.arange(4), 0, 0, torch.arange(4)] = 50.0
    assert of(even) == pytest.approx(np.log(4), abs=1e-4)
    one_sided = torch.full((4, 1, 2, 4), -50.0)
    one_sided[:, 0, 1, 2] = 50.0
    assert of(one_sided) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize(("preset", "epochs"), [("arithmetic-sharp", 25), ("arithmetic-energy", 8)])
def test_it_discovers_the_operations(tmp_path, preset, epochs):
    """A short training of our presets: far above chance (0.25), and the rules can be read."""
    config = dataclasses.replace(PRESETS[preset].config, epochs=epochs)
    run = Run(tmp_path / "run")
    identity = {"experiment": "arithmetic", "preset": "x", "seed": 0, "config": to_json(config)}
    with run.writing():
        run.claim(identity)
        train(ArithmeticTask(config, CPU), config, {0: run}, CPU, Settings(), lambda text: None)
    task, model = load_task(run.folder)
    tested = task.test(model)
    assert tested["segregation"] > 0.9
    assert tested["mse"] < 0.01
    assert sum(rule["uses"] for rule in tested["rules"]) == 2000
    with pytest.raises(UserError, match="expected best or last"):
        load_task(run.folder, which="first")


def test_paper_tables_are_the_paper_s():
    assert len(OPERATIONS) == 4
    assert sum(map(sum, PAPER_TABLES["arithmetic-5-rules"])) == 2000
    assert sum(map(sum, PAPER_TABLES["arithmetic-6-rules"])) == 2000


def test_presets_are_found_by_name():
    experiment, preset = find_preset("arithmetic-sharp")
    assert experiment is EXPERIMENTS["arithmetic"]
    assert preset.config.reading == "other"


def test_the_picture_while_training_shows_the_usage_table(tmp_path, monkeypatch):
    task = task_of(batch_size=64, **RARELY)
    assert_draws(tmp_path, task, "usage", monkeypatch)
