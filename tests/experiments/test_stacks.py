"""Falling towers: the loss and the metric against plain loops, contexts and contacts, commands."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score

from nps.experiments.stacks import PRESETS, QUICK, Config, Stacks, StacksTask
from nps.experiments.stacks import data as making
from nps.experiments.stacks.evaluation import errors, summary
from nps.experiments.stacks.pictures import frame_box, rule_arrow
from nps.experiments.stacks.report import write_report
from nps.experiments.stacks.rule_use import fires, holds, told, uses
from nps.experiments.stacks.task import DISCOUNT, SETTLE, discounts, divergence_weight
from nps.inspect.report import Figure, Table
from nps.models.rpin import Prediction
from nps.rules import Trace
from nps.training.config import from_json, to_json
from nps.training.task import Batch
from nps.worlds import stacks
from nps.worlds.stacks import episodes as found_episodes
from nps.worlds.stacks.making import Settings, make_all
from tests.test_cli import call
from tests.training.tools import assert_resumed_equals_whole

CPU = torch.device("cpu")
SMALL = Settings(train=6, validation=3, test=3, four=3, seed=0)
TINY = {
    "pixels": 32,
    "width": 8,
    "rule_hidden_dim": 4,
    "frames": 3,
    "test_frames": 5,
    "batch_size": 3,
    "epochs": 1,
    "validate_every": 1,
    "episodes": 6,
    "validation_episodes": 3,
    "test_episodes": 3,
    "samples": 12,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]


@pytest.fixture(autouse=True, scope="module")
def data():
    """A small file in place of the cached one, for all tests of this module."""
    patch = pytest.MonkeyPatch()
    made = make_all(SMALL)
    patch.setattr(making, "prepare", lambda settings: None)
    patch.setattr("nps.experiments.stacks.prepare", lambda settings: None)
    sets = {name: found_episodes.Episodes.of(falls) for name, falls in made.items()}
    patch.setattr(stacks, "load", lambda settings, device: sets)
    yield sets
    patch.undo()


def task_of(**changes):
    return StacksTask(Config(**{**TINY, **changes}), CPU)


def batch_of(flips, progress=0.3, phase="explore", view=0.0):
    noise = torch.tensor([[0.2 if flip else 0.8, view] for flip in flips])
    return Batch(torch.tensor([4, 0, 2]), noise, torch.tensor(progress), phase)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_round_trips_and_steps(name):
    config = PRESETS[name].config
    assert from_json(Config, to_json(config)) == config
    task = StacksTask(dataclasses.replace(config, **TINY), CPU)
    loss, parts = task.loss(task.make_model(0), batch_of([True, False, True]))
    loss.backward()
    assert set(parts) == {"boxes", "masks", "divergence"}
    assert loss.isfinite()


def test_the_papers_settings():
    config = PRESETS["stacks"].config
    assert (config.rules, config.rule_dim, config.key_dim) == (2, 64, 32)
    assert PRESETS["stacks-snps"].config.rules == 4
    steps = math.ceil(config.episodes / config.batch_size) * config.epochs
    assert steps == pytest.approx(50_000, rel=0.001)
    assert set(QUICK) <= set(PRESETS)


@pytest.mark.parametrize(("view", "angle"), [(0.2, 0.0), (0.5, 2 * math.pi / 3), (0.99, -2.0944)])
def test_an_episode_is_also_seen_from_other_sides(view, angle, monkeypatch):
    monkeypatch.setattr(torch, "randn", lambda *size, **_: torch.zeros(*size))
    task, plain = task_of(interaction="none", views=3), task_of(interaction="none")
    train = plain.episodes["train"]
    plain.episodes["train"] = train.turned(torch.full((len(train.kind),), angle))
    model = task.make_model(0)
    found, _ = task.loss(model, batch_of([True, False, False], view=view))
    expected, _ = plain.loss(model, batch_of([True, False, False]))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
    other, _ = task_of(interaction="none").loss(model, batch_of([True, False, False]))
    assert torch.isclose(found, other, rtol=1e-4) == (angle == 0.0)


@pytest.mark.parametrize("as_released", [False, True])
def test_the_loss_is_that_of_a_loop(as_released, monkeypatch):
    task = task_of(as_released=as_released, interaction="none")
    model = task.make_model(0)
    batch = batch_of([True, False, True])
    monkeypatch.setattr(torch, "randn", lambda *size, **_: torch.zeros(*size))
    loss, parts = task.loss(model, batch)
    train = task.episodes["train"]
    first, last, edges = [], [], []
    for i, flip in zip((4, 0, 2), (True, False, True), strict=True):
        one = train.at(slice(i, i + 1))
        pictures = [stacks.render(one.shapes(t), one.colour, pixels=32)[0] for t in (0, 3)]
        first.append(pictures[0].flip(1) if flip else pictures[0])
        last.append(pictures[1].flip(1) if flip and not as_released else pictures[1])
        box = stacks.boxes(one.position[0, 0])
        edges.append(
            box[:, [2, 1, 0, 3]] * torch.tensor([-1.0, 1, -1, 1]) + torch.tensor([1.0, 0, 1, 0])
            if flip
            else box
        )
    model.train()
    features = model.backbone(torch.cat([torch.stack(first), torch.stack(last)]))
    latent = model.infer(features[:3], features[3:])
    slots = model.encode(features[:3], torch.stack(edges))
    predicted = model.unroll(slots, latent.mean, 3)
    each = DISCOUNT + 0.3 * (1 - DISCOUNT)
    weights = [each**t / (1 + each + each**2) for t in range(3)]
    of_boxes = of_masks = 0.0
    for t in range(3):
        for b, (i, flip) in enumerate(zip((4, 0, 2), (True, False, True), strict=True)):
            one = train.at(slice(i, i + 1))
            masks = stacks.masks(one.shapes(t + 1))[0]
            for m in range(3):
                column, row = stacks.centres(one.position[0, t + 1, m]).tolist()
                column = 1 - column if flip else column
                true = (column, row, 70 / 224, 70 / 224)
                got = predicted.boxes[b, t, m].tolist()
                off = sum((x - y) ** 2 for x, y in zip(got, true, strict=True)) / 9
                of_boxes += weights[t] * off
                mask = masks[m].flip(1) if flip else masks[m]
                cross = torch.nn.functional.binary_cross_entropy_with_logits(
                    predicted.masks[b, t, m], mask.float()
                )
                of_masks += (1 if as_released else weights[t]) * cross.item() / 9
    assert parts["boxes"].item() == pytest.approx(of_boxes, rel=1e-3)
    assert parts["masks"].item() == pytest.approx(of_masks, rel=1e-3)
    expected = of_boxes + 1e-3 * of_masks + 3e-5 * latent.divergence().item()
    assert loss.item() == pytest.approx(expected, rel=1e-3)


def test_discounts_end_at_equal_weights():
    assert discounts(torch.tensor(1.0), 4).tolist() == pytest.approx([0.25] * 4)
    start = discounts(torch.tensor(0.0), 15)
    assert start.sum().item() == pytest.approx(1.0)
    assert (start[14] / start[0]).item() == pytest.approx(0.01 ** (14 / 15), rel=1e-4)


def test_choices_settle():
    task = task_of(settle_from=0.5)
    assert [task.phase(p) for p in (0.2, 0.5, 0.9)] == ["explore", "settle", "settle"]
    model = task.make_model(0)
    task.loss(model, batch_of([False] * 3, phase=SETTLE))
    assert not model.interaction.training
    assert model.backbone.training
    task.loss(model, batch_of([False] * 3))
    assert model.interaction.training


def test_the_metric_is_that_of_a_loop():
    torch.manual_seed(0)
    predicted, true = torch.rand(2, 4, 3, 2), torch.rand(2, 4, 3, 2)
    found = errors(predicted, true)
    for b in range(2):
        for t in range(4):
            far = [
                (predicted[b, t, m, 0] - true[b, t, m, 0]) ** 2
                + (predicted[b, t, m, 1] - true[b, t, m, 1]) ** 2
                for m in range(3)
            ]
            assert found[b, t].item() == pytest.approx(1000 * sum(far).item() / 3, rel=1e-4)


def test_the_best_draw_is_that_with_the_least_error_over_all_frames():
    near = torch.tensor([[3.0, 1.0, 5.0], [2.0, 2.0, 2.0]])
    far = torch.tensor([[1.0, 9.0, 0.0], [6.0, 4.0, 5.0]])
    found = summary({"near": near, "far": far, "still_near": torch.tensor([7.0, 9.0])})
    assert (found["p1"], found["p2"]) == (2.5, pytest.approx(25 / 6))
    assert (found["best_p1"], found["best_p2"]) == (2.5, 2.5)
    assert found["best10_p1"] == 2.5
    assert found["still_p1"] == 8.0


def test_more_draws_are_never_worse():
    torch.manual_seed(0)
    near, far = torch.rand(5, 40), torch.rand(5, 40)
    found = summary({"near": near, "far": far})
    best10, best = (found[f"{k}_p1"] + found[f"{k}_p2"] for k in ("best10", "best"))
    assert best <= best10 <= found["p1"] + found["p2"]


def test_the_measured_numbers_are_those_of_each_draw():
    task = task_of()
    model = task.make_model(0).eval()
    with torch.no_grad():
        part = next(iter(task.batches("test")))
        found = task.measure(model, part)
        way = task.mean_way
        start = stacks.boxes(part.episodes.position[:, 0])
        slots = model.encode(model.backbone(part.images), start)
        true = stacks.centres(part.episodes.position[:, :6])
        for draw in (0, 7, 11):
            boxes = model.unroll(slots, part.latents[:, draw], 5).boxes[..., :2]
            off = 1000 * (boxes - true[:, 1:]).square().sum(-1).mean(-1)
            torch.testing.assert_close(found["near"][:, draw], off[:, :3].mean(1))
            torch.testing.assert_close(found["far"][:, draw], off[:, 3:].mean(1))
        still = 1000 * (true[:, :1] - true[:, 1:]).square().sum(-1).mean(-1)
        torch.testing.assert_close(found["still_far"], still[:, 3:].mean(1))
        average = 1000 * (true[:, :1] + way - true[:, 1:]).square().sum(-1).mean(-1)
        torch.testing.assert_close(found["average_near"], average[:, :3].mean(1))
    assert found["near"].shape == (3, 12)


def test_contexts_are_compared_with_contacts(data):
    """A shape that moves and touches another one, in a loop over all frames."""
    some = data["test"]
    torch.manual_seed(0)
    context = torch.randint(-1, 3, (3, 6, 2, 3))
    trace = Trace(
        torch.where(context >= 0, 0, -1),
        context,
        torch.zeros(3, 6, 2, 3, 1),
        torch.zeros(3, 6, 2, 3, 3),
    )
    found = holds(trace, some, 6)
    asked, right, chance = np.zeros(3), np.zeros(3), np.zeros(3)
    for b in range(3):
        for t in range(6):
            for m in range(3):
                later, first = int(context[b, t, 1, m]), int(context[b, t, 0, m])
                chosen = later if later >= 0 else first
                moved = (some.position[b, t + 1, m] - some.position[b, t, m]).norm() > 0.01
                touches = some.touched[b, t + 1, m]
                if chosen in (-1, m) or not moved or not touches.any():
                    continue
                asked[b] += 1
                right[b] += bool(touches[chosen])
                chance[b] += touches.sum().item() / 2
    assert asked.sum() > 3
    for name, expected in (("asked", asked), ("right", right), ("chance", chance)):
        np.testing.assert_allclose(found[f"count_{name}"].double().numpy(), expected)
    fired = fires(trace, some)
    expected = (context >= 0).any(2).float().mean(1)
    torch.testing.assert_close(fired["fires_level_2"], expected[:, 2])
    total = sum(fired[f"count_fires_{kind}"].sum() for kind in stacks.KINDS)
    torch.testing.assert_close(total, expected.sum())
    rule, scores = torch.where(context >= 0, context % 2, -1), torch.zeros(*context.shape, 2)
    used = uses(trace._replace(rule=rule, rule_scores=scores), some)
    for b in range(3):
        for m in range(3):
            for name, wanted in (("null", set()), ("0", {0}), ("1", {1})):
                rules = [
                    {c % 2 for c in column if c >= 0} for column in context[b, :, :, m].tolist()
                ]
                count = sum(wanted <= each if wanted else not each for each in rules)
                assert used[f"count_use_{name}_level_{m}"][b] == count
    by_shape = sum(used[f"count_use_null_{kind}"] for kind in stacks.KINDS)
    assert torch.equal(by_shape, sum(used[f"count_use_null_level_{m}"] for m in range(3)))


def test_what_groups_tell_about_rules():
    assert told(torch.tensor([[5.0, 0.0, 0.0], [0.0, 3.0, 9.0]])) == pytest.approx(1.0)
    assert told(torch.tensor([[2.0, 4.0, 6.0], [1.0, 2.0, 3.0]])) == pytest.approx(0.0, abs=1e-9)
    assert told(torch.tensor([[2.0, 4.0, 6.0], [0.0, 0.0, 0.0]])) == 0.0
    counts = torch.tensor([[7, 2, 0], [1, 5, 3]])
    rule, group = (torch.cat([torch.full((int(n),), at[axis]) for at, n in np.ndenumerate(counts)])
                   for axis in (0, 1))  # fmt: skip
    shares = np.bincount(rule) / len(rule)
    entropy = -(shares * np.log(shares)).sum()
    expected = mutual_info_score(rule.numpy(), group.numpy()) / entropy
    assert told(counts.float()) == pytest.approx(expected)


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--interaction=cin"],
        ["--interaction=snps", "--rules=4", "--stages=2"],
        ["--interaction=none", "--as-released"],
        ["--select-by=flattened", "--context-gradient=update", "--no-self-context"],
    ],
    ids=" ".join,
)
def test_each_model_trains_and_is_tested_by_the_command(tmp_path, flags):
    run = str(tmp_path / "run")
    call("train", "stacks", "--out", run, *FLAGS, *flags)
    out, _ = call("eval", run, "--all")
    assert "Frames 1 to 3, mean draw" in out
    tested = json.loads((tmp_path / "run/test.json").read_text())
    assert tested["best_p1"] + tested["best_p2"] <= tested["best10_p1"] + tested["best10_p2"]
    assert tested["four_still_p1"] > 0
    assert ("fires_level_2" in tested) == ("fires_sphere" in tested or "fires_cuboid" in tested)
    assert ("four_fires_level_3" in tested) == (
        not {"--interaction=cin", "--interaction=none"} & {*flags}
    )


def test_the_price_of_the_latent_falls_until_halfway():
    config = dataclasses.replace(PRESETS["stacks"].config, divergence_start=3e-1)
    for progress, expected in ((0.0, 3e-1), (0.25, 3e-3), (0.5, 3e-5), (0.9, 3e-5)):
        assert divergence_weight(config, torch.tensor(progress)).item() == pytest.approx(expected)
    same = dataclasses.replace(config, divergence_start=None)
    assert divergence_weight(same, torch.tensor(0.0)) == 3e-5
    with pytest.raises(ValueError, match="divergence_start: got weights of 0, expected more"):
        dataclasses.replace(config, divergence_weight=0.0)


@pytest.mark.parametrize("kind", ["pnps", "cin"])
def test_inspect_shows_tables_and_falls(tmp_path, kind):
    run = tmp_path / "run"
    call("train", "stacks", "--out", str(run), *FLAGS, f"--interaction={kind}")
    out, _ = call("inspect", str(run))
    assert "nothing moves" in out
    assert ("context is touched" in out) == (kind == "pnps")
    drawn = {path.name for path in (run / "figures").iterdir()}
    assert {"ways-test.png", "ways-four.png", "fall-test.gif", "fall-four.gif"} <= drawn


def test_the_arrow_leads_from_the_context_to_the_shape_that_moves():
    before, now = torch.tensor([[0.2, 0.4], [0.5, 0.5]]), torch.tensor([[0.2, 0.4], [0.5, 0.7]])
    context = torch.tensor([[[[-1, 0], [-1, -1]]]])
    rule = torch.where(context >= 0, 1, -1)
    trace = Trace(rule, context, torch.zeros(1, 1, 2, 2, 2), torch.zeros(1, 1, 2, 2, 2))
    predicted = Prediction(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 28, 28), trace)
    arrow, says = rule_arrow(predicted, 0, before, now)
    assert arrow.begin == pytest.approx((96 * 0.4, 96 * 0.2))
    assert arrow.end == pytest.approx((96 * 0.5, 96 * 0.5))
    assert says == ": rule 1"
    still = trace._replace(rule=torch.full_like(rule, -1))
    assert rule_arrow(predicted._replace(trace=still), 0, before, now) == (
        None,
        ": no rule fires on it",
    )
    own = trace._replace(context=torch.full_like(context, 1), rule=torch.zeros_like(rule))
    assert rule_arrow(predicted._replace(trace=own), 0, before, now) == (None, ": rule 0")
    assert rule_arrow(predicted._replace(trace=None), 0, before, now) == (None, "")


def test_boxes_are_cut_off_at_the_edge_of_the_picture():
    picture = np.zeros((40, 40, 3), np.uint8)
    frame_box(picture, [0.5, 0.05], (9, 8, 7))
    rows, columns = picture.any(-1).nonzero()
    half = 35 / 224
    assert (rows.min(), columns.min(), columns.max()) == (
        0,
        int(40 * (0.5 - half)),
        int(40 * (0.5 + half)),
    )
    assert rows.max() == int(40 * (0.05 + half))


def test_a_report_of_two_models(tmp_path):
    for name, flags in (("stacks", []), ("stacks-rpin", ["--interaction=cin"])):
        run = str(tmp_path / name / "seed-0")
        call("train", "stacks", "--out", run, *FLAGS, *flags)
        call("eval", run)
    out, _ = call("table", str(tmp_path))
    assert "| RPIN | 1.254 | 6.377 |" in out
    assert "| parallel NPS | 1.250 | 5.411 |" in out
    assert "floor: the mean way" in out
    parts = write_report(tmp_path, Stacks()).parts
    of_three, of_four, rules, short = (part for part in parts if isinstance(part, Table))
    assert [row[0] for row in of_four.rows] == ["RPIN", "parallel NPS", "floor: nothing moves"]
    assert len(of_three.rows) == 4
    assert [row[0] for row in rules.rows] == ["parallel NPS"]
    for row, whole, four in zip(short.rows[:2], of_three.rows, of_four.rows, strict=False):
        assert row[:8] == [*(whole[i] for i in (0, 1, 3, 2, 4, 7, 8)), four[4]]
    assert short.rows[1][-1] == rules.rows[0][1]
    assert short.rows[-1][-1] == rules.rows[0][2]
    (learning,) = (part for part in parts if isinstance(part, Figure) and part.name == "learning")
    assert "validation towers" in learning.caption.lower()


def test_stopped_and_resumed_it_ends_the_same(tmp_path):
    """With mirrored pictures, latents, noise in choices and running means: bit for bit."""
    assert_resumed_equals_whole(
        tmp_path, lambda: task_of(epochs=3, settle_from=0.6), stops=(1, 4), last=6
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("interaction", "gnn"),
        ("select_by", "motion"),
        ("pixels", 33),
        ("pixels", 16),
        ("width", 4),
        ("frames", 0),
        ("test_frames", 3),
        ("test_frames", 32),
        ("samples", 0),
        ("kernel_size", None),
        ("episodes", 1321),
        ("mask_weight", -1.0),
        ("settle_from", 2.0),
        ("as_released", 1),
        ("data_seed", -1),
    ],
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        Config(**{**TINY, field: value})
