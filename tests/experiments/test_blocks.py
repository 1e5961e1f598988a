"""World models of blocks: the task, its loss by a plain loop, its tests with models that know."""

import contextlib
import dataclasses
import io
import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nps import cli
from nps.errors import UserError
from nps.experiments import EXPERIMENTS, evaluate, load_task
from nps.experiments.blocks import PRESETS, BlocksTask, Config, pushes
from nps.experiments.blocks import task as tasks
from nps.experiments.blocks.inspect import inspect_blocks, ranking
from nps.experiments.blocks.report import validation_losses
from nps.experiments.results import read_results
from nps.experiments.world_models.task import WITH_CONTEXT, WITHOUT_CONTEXT
from nps.inspect import figures
from nps.inspect.report import Table
from nps.models.contrastive import DRAWS
from nps.rules.config import MAX_HANDICAP
from nps.training import checkpoint
from nps.training.config import from_json, to_json
from nps.training.task import Batch
from nps.worlds.blocks import MODES, State, render, step
from tests.experiments.drawing import RARELY, assert_draws
from tests.experiments.stacks import assert_stack_equals_single

CPU = torch.device("cpu")
TINY = {
    "train_episodes": 8,
    "train_steps": 4,
    "validation_episodes": 6,
    "test_episodes": 12,
    "hidden_dim": 16,
    "width": 4,
    "batch_size": 16,
    "validate_every": 1,
}


def task_of(**changes: object) -> BlocksTask:
    return BlocksTask(Config(**{**TINY, "extractor": "small", **changes}), CPU)


def batch_of(task: BlocksTask, size: int, seed: int = 0) -> Batch:
    noise = torch.rand(size, task.noise_size, generator=torch.Generator().manual_seed(seed))
    return Batch(torch.arange(size) * 2 % task.examples, noise, torch.tensor(0.0), "all")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_round_trips_and_steps(name):
    config = dataclasses.replace(PRESETS[name].config, **TINY)
    assert from_json(Config, to_json(config)) == config
    task = BlocksTask(config, CPU)
    model = task.make_model(0)
    loss, scalars = task.loss(model, batch_of(task, 8))
    assert scalars["positive"] + scalars["negative"] == loss
    loss.backward()
    never_wins = config.null_handicap >= MAX_HANDICAP  # then nobody bids
    bidding = ("slot_key", "null_rule", "applicability") if never_wins else ()
    for part, parameter in model.named_parameters():
        bids = any(name in part for name in bidding)
        assert (parameter.grad is None) == bids, part
    judged = task.evaluate(model.eval(), "validation")
    assert judged["score"] == judged["loss"] > 0
    assert set(judged) >= {"h1_1", "identity_h1_1", "h1_10", "identity_h1_10"}


@pytest.mark.parametrize("negatives", ["batch", "episode", "time-aligned"])
def test_the_loss_is_that_of_a_plain_loop(negatives):
    """One transition after the other, with another state picked by hand as its negative."""
    task = task_of(negatives=negatives, transition="gnn", slot_dim=3, hinge=2.0)
    model, batch, data = task.make_model(0).eval(), batch_of(task, 10), task.sets["train"]
    with torch.no_grad():  # spread the slots so that the hinge matters for some and not for all
        model.encoder.encoder[-1].weight *= 3
        loss, scalars = task.loss(model, batch)

    def slots_at(episode: int, time: int) -> Tensor:
        return model.encode(render(data.state(episode, time)).unsqueeze(0))[0].detach()

    def distance(one: Tensor, other: Tensor) -> float:
        return 2.0 * ((one - other) ** 2).sum().item() / 5

    moments = [divmod(i, 4) for i in batch.index.tolist()]
    shuffled = [moments[i] for i in batch.noise[:, 0].argsort().tolist()]
    positive = negative = 0.0
    for b, (episode, time) in enumerate(moments):
        draw = batch.noise[b, 1].item()
        other = shuffled[b]
        if negatives == "episode" and b < 5:
            other = (episode, (time + 1 + int(draw * 4)) % 5)
        if negatives == "time-aligned":
            other = ((episode + 1 + int(draw * 7)) % 8, time)
        now = slots_at(episode, time)
        after = model.predict(now.unsqueeze(0), data.action[episode, time].unsqueeze(0))[0]
        positive += distance(after.detach(), slots_at(episode, time + 1)) / 10
        negative += max(0.0, 2.0 - distance(now, slots_at(*other))) / 10
    assert scalars["positive"].item() == pytest.approx(positive, rel=1e-4)
    assert scalars["negative"].item() == pytest.approx(negative, rel=1e-4)
    assert loss.item() == pytest.approx(positive + negative, rel=1e-4)
    assert 0 < negative < 2


def encoded(model, batch, data):
    """States before and after the transitions of a batch, as training encodes them; the actions."""
    moments = [divmod(i, 4) for i in batch.index.tolist()]
    images = [render(data.state(e, t + later)) for later in (0, 1) for e, t in moments]
    model.encoder.train()  # the statistics of one batch, as in training
    state, after = model.encode(torch.stack(images)).detach().chunk(2)
    return state, after, torch.stack([data.action[moment] for moment in moments])


@pytest.mark.parametrize("unit", ["loss", "regret"])
@pytest.mark.parametrize("transition", ["snps", "pnps"])
def test_the_free_energy_is_that_of_a_plain_loop(transition, unit):
    """All updates of one transition after the other, with the energies of whole states."""
    settings = {"objective": "free-energy", "energy_unit": unit, "energy_temperature": 0.3}
    task = task_of(transition=transition, rules=2, slot_dim=3, self_context=False, **settings)
    model, batch = task.make_model(0), batch_of(task, 6)
    loss, scalars = task.loss(model.train(), batch)
    state, after, action = encoded(model, batch, task.sets["train"])
    log_prior, updated = (x.detach() for x in model.every_update(state, action))
    alone = transition == "pnps"
    choices = [[slot] for slot in range(5)] if alone else [list(range(5))]
    found, regrets = [], []
    for b in range(6):
        for slots in choices:
            options = []
            for p in slots:
                for r, c in itertools.product(range(log_prior.shape[2]), range(5)):
                    if log_prior[b, p, r, c] < -1e20:
                        continue
                    new = state[b].clone()
                    new[p] = updated[b, p, r, c]
                    away = (new - after[b]).square().sum(-1) / 5 / (2 * 0.5**2)
                    energy = away[p] if alone else away.sum()
                    options.append((log_prior[b, p, r, c].exp().item(), energy.item()))
            best = min(energy for _, energy in options)
            regrets.append(sum(share * energy for share, energy in options) - best)
            found.append(options)
    t = 0.3 * (sum(regrets) / len(regrets) if unit == "regret" else 1.0)
    each = [-t * math.log(sum(w * math.exp(-e / t) for w, e in options)) for options in found]
    assert scalars["positive"].item() == pytest.approx(sum(each) / 6, rel=1e-3)
    assert loss == scalars["positive"] + scalars["negative"]


def test_the_worth_of_updates_is_learned_from_energies():
    """An update is worth it if it lowers the energy of its slot by more than the price."""
    task = task_of(transition="anps", rules=2, slot_dim=3, firing_price=0.0)
    model, batch = task.make_model(0), batch_of(task, 6)
    loss, scalars = task.loss(model.train(), batch)
    state, after, action = encoded(model, batch, task.sets["train"])
    new, worth = (x.detach() for x in model.propose(state, action, batch.noise[:, 2:]))
    found, helps = 0.0, 0
    for b, m in itertools.product(range(6), range(5)):
        fired, kept = ((x[b, m] - after[b, m]).square().sum() * 2 / 5 for x in (new, state))
        p = torch.sigmoid(worth[b, m])
        found -= (p if kept - fired > 0 else 1 - p).log().item() / 30
        helps += int(kept - fired > 0)
    assert scalars["worth"].item() == pytest.approx(found, rel=1e-4)
    assert loss.item() == pytest.approx(sum(x.item() for x in scalars.values()), rel=1e-5)
    assert 0 < helps < 30


@pytest.mark.parametrize(
    "changes",
    [
        {"transition": "snps", "negatives": "episode"},
        {"transition": "gnn", "action": "factored", "negatives": "time-aligned"},
        {
            "transition": "pnps",
            "rules": 2,
            "action": "numbered",
            "selection": "linear",
            "self_context": False,
            "context_gradient": "update",
            "context_dropout": 0.35,
            "null_handicap": 3.0,
        },
        {"transition": "snps", "rules": 2, "objective": "free-energy", "energy_unit": "regret"},
        {
            "transition": "pnps",
            "rules": 2,
            "self_context": False,
            "objective": "free-energy",
            "energy_temperature": 0.1,
        },
        {"transition": "anps", "rules": 2, "self_context": False, "context_dropout": 0.35},
    ],
)
def test_a_stack_of_seeds_equals_single_runs(tmp_path, changes):
    task = task_of(epochs=2, learning_rate=1e-3, slot_dim=4, mode="fixed-palette", **changes)
    for run in assert_stack_equals_single(tmp_path, task, "loss").values():
        model = checkpoint.newest(run.checkpoints, print).tensors["model"]
        assert model["encoder.extractor.1.num_batches_tracked"] == 4


class Knows(nn.Module):
    """A model that is shown positions and weights instead of images, and knows the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.transition = nn.Identity()

    def encode(self, shown: Tensor) -> Tensor:
        return shown.float()

    def predict(self, slots: Tensor, action: Tensor) -> Tensor:
        constant = torch.zeros(*slots.shape[:-1], 3, dtype=torch.uint8)
        whole = slots.to(torch.int8)
        state = State(whole[..., :2], whole[..., 2], constant[..., 0], constant)
        after, _ = step(state, action)
        return torch.cat([after.positions, whole[..., 2:]], -1).float()

    def rollout(self, slots: Tensor, actions: Tensor) -> Tensor:
        steps = []
        for action in actions.unbind(1):
            slots = self.predict(slots, action)
            steps.append(slots)
        return torch.stack(steps, 1)


def numbers(state: State) -> Tensor:
    return torch.cat([state.positions, state.weights.unsqueeze(-1)], -1)


def test_a_model_that_knows_the_rules_is_always_right(monkeypatch):
    for module in (tasks, pushes):
        monkeypatch.setattr(module, "render", numbers)
    tested = task_of(mode="fixed-palette", test_episodes=200).test(Knows())
    for steps in (1, 5, 10):
        assert tested[f"h1_{steps}"] == tested[f"h1_distinct_strict_{steps}"] == 1.0
        assert tested[f"h1_episode_strict_{steps}"] == 1.0
    assert tested["identity_h1_10"] < 0.9
    assert [tested[f"moves_{kind}"] for kind in ("free", "push", "no_op")] == [1.0, 1.0, 1.0]
    assert "moves_invalid" not in tested
    assert tested["push_moved"] == 1.0
    assert "push_context" not in tested  # there are no rules


def test_the_slot_that_shows_a_block(monkeypatch):
    """Whoever sees positions has a slot for each block; without rules, no push is shown."""
    for module in (tasks, pushes):
        monkeypatch.setattr(module, "render", numbers)
    monkeypatch.setattr(figures, "available", lambda: False)
    shown = inspect_blocks(task_of(mode="fixed-palette", test_episodes=100), Knows())
    assert [block.rows[0][0] for block in shown] == ["block 0", "right", "H@1"]
    assert all(row[1 + b] != "0" for b, row in enumerate(shown[0].rows))
    assert sum(cell != "0" for row in shown[0].rows for cell in row[1:]) == 5


def test_the_identity_is_its_own_floor():
    task = task_of(transition="identity", slot_dim=4, test_episodes=60)
    tested = task.test(task.make_model(0).eval())
    for steps in (1, 5, 10):
        assert tested[f"h1_{steps}"] == tested[f"identity_h1_{steps}"]
    assert (tested["moves_free"], tested["moves_push"], tested["moves_no_op"]) == (0.0, 0.0, 1.0)
    assert tested["transition_parameters"] == 0


def test_sets_differ_and_seeds_share_them():
    task, other = task_of(), task_of(data_seed=1)
    assert not torch.equal(
        task.sets["train"].positions[:6, 0], task.sets["validation"].positions[:, 0]
    )
    assert not torch.equal(task.sets["train"].positions, other.sets["train"].positions)
    assert task.noise_size > DRAWS
    weights = [task.make_model(seed).encoder.encoder[0].weight for seed in (0, 1, 0)]
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2])


def test_truth_tells_states_apart_and_equal_ones_not():
    data = task_of().sets["test"]
    state = tasks.truth(data)
    assert state.shape == (12, 11, 5 * (2 + 1 + 3))
    images = render(data.state(torch.arange(12).repeat_interleave(11), torch.arange(11).repeat(12)))
    same_image = (images.flatten(1)[:, None] == images.flatten(1)).all(-1)
    flat = state.flatten(0, 1)
    assert torch.equal((flat[:, None] == flat).all(-1), same_image)


def test_two_steps_through_the_command_line(tmp_path, monkeypatch):
    def call(*args: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            cli.main(args)
        return out.getvalue()

    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    for preset in (
        "shapes-gnn",
        "blocks-fixed-nps",
        "blocks-fixed-nps-2",
        "blocks-fixed-slots-nps",
        "blocks-best",
    ):
        folder = tmp_path / preset / "seed-0"
        call("train", preset, f"--out={folder}", "--epochs=1", *flags)
        call("eval", str(folder))
        assert json.loads((folder / "metrics.jsonl").read_text())["step"] == 2
        _, model = load_task(folder)
        assert not model.training
        tested = json.loads((folder / "test.json").read_text())
        assert ("push_context" in tested) == (preset != "shapes-gnn")
        shown = call("inspect", str(folder))
        assert "slot 4" in shown
        assert "Nothing moves: H@1 " in shown
        files = {path.stem for path in (folder / "figures").iterdir()}
        inspected = {"rollouts"} | ({"pushes"} if preset != "shapes-gnn" else set())
        assert files == inspected | {"rollouts-epoch-0001"}  # drawn by the training
    call("eval", str(folder), "--on=unobserved")
    other = json.loads((folder / "test-on-unobserved.json").read_text())
    assert other["on"] == "unobserved"
    assert other["mrr_10"] != tested["mrr_10"]
    assert json.loads((folder / "test.json").read_text()) == tested
    with pytest.raises(UserError, match="--on: mode: got 'nowhere', expected one of observed, "):
        evaluate(folder, on="nowhere")
    call("inspect", str(folder), f"--out={tmp_path / 'look.png'}")
    assert (tmp_path / "look-pushes.png").exists()
    assert (tmp_path / "look-rollouts.png").exists()
    page = call("table", str(tmp_path))
    assert "| 2D shapes: C-SWM" in page
    assert "| Fixed palette: NPS" in page
    drawn = []
    monkeypatch.setattr(figures, "percent_points", lambda panels, *_: drawn.append(panels) or b"")
    report = EXPERIMENTS["blocks"].report(Path(tmp_path))
    _, moves, *_ = (part for part in report.parts if isinstance(part, Table))
    assert moves.rows[0][2] == "–"  # nothing pushes in C-SWM's shapes
    (rows,) = (b.rows for b in report.parts if isinstance(b, Table) and b.columns[0] == "Stages")
    assert [row[0] for row in rows] == ["Fixed palette, 1 stage", "Fixed palette, 2 stages"]
    left, right = drawn[0].values()
    assert list(left) == ["2D shapes: GNN", "fixed palette: NPS", "fixed palette: parallel NPS"]
    of_best = "fixed palette: parallel NPS"
    assert left[of_best] == ([100 * tested["moves_free"]], [100 * tested["h1_10"]])
    assert right[of_best][1] == [100 * tested["h1_episode_strict_10"]]
    assert [len(right["fixed palette: NPS"][axis]) for axis in (0, 1)] == [3, 3]


def test_a_run_with_the_old_name_of_a_field_loads_and_is_complete(tmp_path, capsys):
    """`context_from` was `alone_until`."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    command = ["train", "blocks-best", f"--out={tmp_path}", "--epochs=1", *flags]
    cli.main(command)
    before = load_task(tmp_path)[1].state_dict()
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    saved["config"]["alone_until"] = saved["config"].pop("context_from")
    path.write_text(json.dumps(saved))
    task, model = load_task(tmp_path)
    assert task.config.context_from == PRESETS["blocks-best"].config.context_from > 0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    capsys.readouterr()
    cli.main(command)
    assert "complete" in capsys.readouterr().err


def test_losses_over_training_are_those_of_epochs_that_all_seeds_have(tmp_path):
    for seed, epochs in enumerate(((5, 10), (5,))):
        folder = tmp_path / "blocks-nps" / f"seed-{seed}"
        folder.mkdir(parents=True)
        saved = {"schema": 1, "experiment": "blocks", "preset": "x", "seed": seed, "config": {}}
        (folder / "config.json").write_text(json.dumps(saved))
        (folder / "test.json").write_text("{}")
        rows = [{"epoch": e, "validation": {"loss": seed + e / 10}} for e in epochs]
        lines = [json.dumps(row) for row in [{"epoch": 1, "loss": 9.0}, *rows]]
        (folder / "metrics.jsonl").write_text("\n".join(lines))
    losses = validation_losses(read_results(tmp_path))
    assert {epoch: list(each) for epoch, each in losses.items()} == {5: [0.5, 1.5]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "heavy"}, "mode: got 'heavy', expected one of observed"),
        ({"objects": 9}, "objects: got 9, expected 2 to 6"),
        ({"transition": "attention", "hidden_dim": 6}, "hidden_dim: got 6, expected a multiple"),
        ({"test_episodes": 1}, "test_episodes: got 1, expected at least 2"),
        (
            {"extractor": "huge"},
            "extractor: got 'huge', expected one of small, medium, large, slot",
        ),
        ({"negatives": "none"}, "negatives: got 'none', expected one of batch"),
        ({"temperature": 0.0}, "temperature: got 0, expected"),
        ({"context_dropout": 1.0}, "context_dropout: got 1, expected"),
        ({"context_gradient": "rule"}, "context_gradient: got 'rule', expected one of slot"),
        ({"context_from": 1.0}, "context_from: got 1, expected"),
        ({"maps": "dark"}, "maps: got 'dark', expected one of sigmoid, contrast"),
        ({"maps": "contrast", "extractor": "slot-attention"}, "maps: got 'contrast', which slot"),
        ({"null_handicap": -1.0}, "null_handicap: got -1, expected"),
        ({"objective": "free-energy", "stages": 2}, "stages: got 2, expected 1 with objective"),
        ({"objective": "free-energy", "transition": "gnn"}, "transition: got 'gnn', expected snps"),
        ({"transition": "anps", "stages": 2}, "stages: got 2, expected 1 with transition=anps"),
        ({"firing_price": float("inf")}, "firing_price: got inf, expected"),
        ({"most": 0}, "most: got 0, expected at least 1"),
        ({"energy_unit": "bits"}, "energy_unit: got 'bits', expected one of loss, regret"),
    ],
)
def test_impossible_configs(changes, message):
    with pytest.raises(ValueError, match=message):
        Config(**changes)


def test_contexts_and_contrast_come_after_the_first_phase():
    """Until then, the loss of a slot does not depend on what selection and other slots say."""
    task = task_of(transition="pnps", maps="contrast", context_from=0.25, self_context=False)
    phases = [task.phase(progress) for progress in (0.0, 0.24, 0.25, 1.0)]
    assert phases == [WITHOUT_CONTEXT, WITHOUT_CONTEXT, WITH_CONTEXT, WITH_CONTEXT]
    model, batch = task.make_model(0), batch_of(task, 4)
    losses = {}
    for phase in (WITHOUT_CONTEXT, WITH_CONTEXT):
        losses[phase] = task.loss(model, dataclasses.replace(batch, phase=phase))[0]
        (gradient,) = torch.autograd.grad(
            losses[phase], model.transition.layer.bind.query.out.weight, allow_unused=True
        )
        assert (gradient is None or not gradient.any()) == (phase == WITHOUT_CONTEXT)
        assert model.encoder.without_contrast == (phase == WITHOUT_CONTEXT)
    assert losses[WITHOUT_CONTEXT] != losses[WITH_CONTEXT]


def test_every_mode_can_be_trained_on():
    for mode in MODES:
        task = task_of(mode=mode, slot_dim=2)
        assert torch.isfinite(task.loss(task.make_model(0), batch_of(task, 4))[0])


def test_inspect_says_among_how_many_it_ranks(monkeypatch):
    task = task_of()
    model = task.make_model(0).eval()
    tested = task.test(model)
    every = ranking(task, model)
    assert every.caption.startswith("Test set, in per cent")
    assert every.rows[0] == ["H@1", *(f"{100 * tested[f'h1_{s}']:.1f}" for s in task.horizons)]
    monkeypatch.setattr("nps.experiments.blocks.inspect.RANKED", 4)
    assert ranking(task, model).caption.startswith("First 4 of 12 test episodes")


@pytest.mark.parametrize("statistics", ["running", "settled"])
def test_the_picture_while_training_shows_rollouts(tmp_path, monkeypatch, statistics):
    task = task_of(statistics=statistics, **RARELY)
    assert_draws(tmp_path, task, "rollouts", monkeypatch)
