"""Bouncing balls: the task, its metrics with models that know the truth, collisions, commands."""

import dataclasses
import json
import math

import pytest
import torch

from nps.experiments.balls import (
    PRESETS,
    QUICK,
    BallsTask,
    Config,
    collisions,
    measures,
)
from nps.experiments.balls.evaluation import predict, state
from nps.experiments.balls.task import ALONE, EXPLORE, SETTLE
from nps.interactions import Attention
from nps.models.scoff import Prediction
from nps.rules import SequentialNPS, Trace
from nps.training.batches import Batches
from nps.training.config import from_json, to_json
from nps.training.task import Batch
from nps.worlds.balls import PALETTE, make_scenes, render
from tests.test_cli import call
from tests.training.tools import assert_resumed_equals_whole

CPU = torch.device("cpu")
TINY = {
    "size": 16,
    "width": 4,
    "slot_dim": 8,
    "hidden_dim": 8,
    "rule_hidden_dim": 8,
    "frames": 3,
    "scene_frames": 8,
    "train_scenes": 8,
    "batch_size": 4,
    "epochs": 2,
    "validate_every": 1,
    "validation_scenes": 3,
    "test_scenes": 3,
    "seen_frames": 4,
    "rollout_frames": 3,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]


def task_of(**changes):
    return BallsTask(Config(**{**TINY, **changes}), CPU)


def batch_of(task, size=4, phase=EXPLORE, frames=3, progress=0.0):
    noise = torch.rand(size, task.noise_size, generator=torch.Generator().manual_seed(0))
    index = torch.arange(size) * 5 % task.examples
    return Batch(index, noise, torch.tensor(progress), f"{phase} {frames}")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_round_trips_and_steps(name):
    config = dataclasses.replace(PRESETS[name].config, **TINY)
    assert from_json(Config, to_json(config)) == config
    task = BallsTask(config, CPU)
    loss, _ = task.loss(task.make_model(0), batch_of(task))
    loss.backward()
    assert math.isfinite(loss.item())


def test_the_paper_and_the_short_version():
    paper = PRESETS["balls"].config
    assert (paper.rules, paper.rule_dim, paper.key_dim, paper.rule_hidden_dim) == (10, 32, 32, 128)
    for name, changes in QUICK.items():
        assert dataclasses.replace(PRESETS[name].config, **changes).size == 32


class Watcher(torch.nn.Module):
    """Takes the place of a model: keeps what it is shown, and predicts grey."""

    interaction = None

    def forward(self, frames, **_):
        self.seen = frames
        b, t, h, w, _ = frames.shape
        return Prediction(torch.full((b, t, 3, h, w), 0.5), *[None] * 6)


@pytest.mark.parametrize("curtain", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_a_step_draws_its_clips_from_the_states(curtain, count):
    """Clip by clip, against the renderer; the colours are those of the noise."""
    task = task_of(curtain=curtain, first_frames=2, background=False, disagreement=0.0)
    batch, model = batch_of(task, frames=count), Watcher()
    loss, _ = task.loss(model, batch)
    scenes, errors = task.scenes("train"), []
    for i, index in enumerate(batch.index.tolist()):
        scene, clip = index % 8, index // 8
        at = slice(4 * clip, 4 * clip + count + 1)
        images, labels = render(
            scenes.position[scene : scene + 1, at],
            scenes.radius[scene : scene + 1],
            scenes.present[scene : scene + 1],
            torch.tensor([[math.floor(4 * u) for u in batch.noise[i].tolist()]]),
            size=16,
            curtain=scenes.curtain[scene : scene + 1] if curtain else None,
        )
        assert torch.equal(model.seen[i], images[0, :count])
        errors.append((images[0, 1:] / 255 - 0.5).square().mean())
        assert labels.max() <= 4
    assert loss.item() == pytest.approx(3 * torch.stack(errors).mean().item(), rel=1e-5)


def test_slots_pay_for_their_area_and_for_disagreement():
    task = task_of(area=0.1, disagreement=0.7)
    model = task.make_model(0)
    for progress, weight in ((0.0, 0.0), (0.2, 0.0), (0.325, 0.5), (0.8, 1.0)):
        torch.manual_seed(0)
        batch = batch_of(task, progress=progress)
        loss, parts = task.loss(model, batch)
        torch.manual_seed(0)
        masks = model(task.training_clips(batch, 4)[:, :3]).masks
        roots = [math.sqrt(m.mean().item() + 1e-3) for m in masks[:, :, :5].flatten(0, 2)]
        assert parts["area"].item() == pytest.approx(sum(roots) / 12, rel=1e-4)
        expected = 3 * parts["mse"] + 0.1 * weight * parts["area"] + 0.7 * parts["disagreement"]
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    task = task_of(background=False, disagreement=0.0)
    assert set(task.loss(task.make_model(0), batch_of(task))[1]) == {"mse"}


def test_firing_costs_more_as_training_goes_on():
    flags = {"interaction": "pnps", "gate": True, "firing_price": 0.5}
    task = task_of(area=0.0, disagreement=0.0, presence=False, frames=4, scene_frames=5, **flags)
    model = task.make_model(0)
    for progress, weight in ((0.2, 0.0), (0.5, 0.5), (0.9, 1.0)):
        loss, parts = task.loss(model, batch_of(task, frames=4, progress=progress))
        expected = 3 * parts["mse"] + 0.5 * weight * parts["fires"]
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        assert 0 < parts["fires"] < 1
    loss.backward()
    assert model.interaction.null_score.grad < 0  # dearer rules raise the null rule's score


def test_phases_follow_the_schedule():
    schedule = {"interact_from": 0.2, "settle_from": 0.6, "first_frames": 2, "all_frames_from": 0.5}
    task = task_of(presence=False, **schedule)
    names = [task.phase(p) for p in (0.0, 0.1, 0.3, 0.5, 0.7)]
    assert names == ["alone 2", "alone 2", "explore 2", "explore 3", "settle 3"]
    model = task.make_model(0)
    with torch.no_grad():  # rules that do something
        model.interaction.rules.weight_out.normal_()
    losses = {}
    for phase in (ALONE, EXPLORE, SETTLE):
        torch.manual_seed(1)
        losses[phase] = task.loss(model, batch_of(task, phase=phase))[0].item()
        assert model.alone == (phase == ALONE)
        assert model.training == (phase != SETTLE)
    assert len(set(losses.values())) == 3
    assert task_of().phase(0.99) == "explore 3"


class Oracle(torch.nn.Module):
    """Knows the truth, and draws each ball by the slot of its number."""

    interaction = None
    blank = 0
    """Predictions that show nothing, before all others."""

    def __init__(self, task, wrong=0, splits=("validation", "test", "transfer")):
        super().__init__()
        self.task, self.wrong, self.splits = task, wrong, splits

    def forward(self, frames, *, steps, slots, noise, return_trace):
        b, slots = noise.shape[:2]
        for name in self.splits:
            images, labels = self.task.draw_frames(self.task.scenes(name).at(slice(b)))
            if torch.equal(images[:, 0], frames[:, 0]):
                break
        images, labels = images[:, 1 : 1 + steps], labels[:, 1 : 1 + steps].long()
        component = torch.where(labels > 0, labels - 1, slots)  # the background comes last
        if self.wrong:  # from this frame on, two slots have changed places
            late = component[:, self.wrong :]
            late = torch.where(late == 0, 1, torch.where(late == 1, 0, late))
            component = torch.cat([component[:, : self.wrong], late], 1)
        component[:, : self.blank] = slots
        images[:, : self.blank] = 0
        masks = torch.nn.functional.one_hot(component, slots + 1).permute(0, 1, 4, 2, 3)
        empty = torch.zeros(b, steps, slots, 8)
        return Prediction(
            images.permute(0, 1, 4, 2, 3) / 255, masks.float(), empty, empty, empty, None, None
        )


def test_who_knows_the_truth_gets_full_marks():
    task = task_of(size=32)
    found = task.test(Oracle(task))
    for prefix in ("", "transfer_"):
        for metric in ("fg_ari", "ari", "fg_miou", "video_fg_ari", "video_ari", "video_fg_miou"):
            assert found[prefix + metric] == pytest.approx(1.0), metric
        for metric in ("mse", "rollout_mse"):
            assert found[prefix + metric] == pytest.approx(0.0, abs=1e-12)
        for metric in ("position", "rollout_position"):
            assert found[prefix + metric] < 0.1  # pixels are 0.3 wide
        assert found[f"{prefix}rollout_fg_ari"] == pytest.approx(1.0)
        assert 0.3 < found[f"{prefix}copy_position"] < 0.7
        assert found[f"{prefix}copy_mse"] > 0.01


def test_a_prediction_from_one_frame_does_not_count():
    task = task_of(size=32)
    found = {}
    for late in (1, 2):
        oracle = Oracle(task)
        oracle.blank = late
        found[late] = task.test(oracle)
    assert found[1]["mse"] == pytest.approx(0.0, abs=1e-12)
    assert found[1]["fg_ari"] == found[1]["video_fg_ari"] == pytest.approx(1.0)
    assert found[2]["mse"] > 0.01
    assert found[2]["fg_ari"] < 0.9


def test_who_confuses_two_balls_loses_in_the_video_alone():
    task = task_of(size=32)
    found = task.test(Oracle(task, wrong=2))
    assert found["fg_ari"] == found["fg_miou"] == pytest.approx(1.0)
    assert found["video_fg_ari"] < 0.8
    assert found["video_fg_miou"] < 0.8
    assert found["position"] > 0.5


def test_colour_segments_are_what_the_image_shows():
    scenes = make_scenes(3, 2, seed=0)
    images, labels = render(scenes.position, scenes.radius, scenes.present, scenes.colour, size=32)
    segments = measures.colour_segments(labels, scenes.colour)
    inks = torch.tensor([(0, 0, 0), *PALETTE], dtype=torch.uint8)
    assert torch.equal(inks[segments], images)


def test_centres_by_hand():
    segments = torch.full((1, 1, 4, 4), 2)  # slot 2; pixels are 2.5 wide
    segments[0, 0, 0, 1:3] = 0  # the first row, columns 1 and 2
    found = measures.centres(segments, 3)[0, 0]
    assert found[0].tolist() == [5.0, 1.25]
    assert found[1].tolist() == [5.0, 5.0]  # has no pixels
    position = torch.tensor([[[[5.0, 2.25], [0.0, 5.0]]]])
    far = measures.distances(found[None, None], position, torch.tensor([[0, -1]]))
    assert far.tolist() == [[[1.0, 5.0]]]


def test_frames_near_collisions():
    collided = torch.zeros(1, 5, 3, 3, dtype=torch.bool)
    collided[0, 2, 0, 1] = collided[0, 2, 1, 0] = True
    near = measures.near_collisions(collided)
    assert near[0].any(-1).tolist() == [False, False, True, True, False]
    assert near[0, 2].tolist() == [True, True, False]


def trace_of(rule, context):
    """One scene, one frame, K stages of M slots."""
    rule, context = (torch.tensor(x)[None, None] for x in (rule, context))
    return Trace(rule, context, torch.zeros(1), torch.zeros(1))


def test_who_bumped_whom_by_hand():
    """Four slots; balls 0, 1, 2 are shown by slots 2, 0, 3. Balls 0 and 1 collide."""
    slot_of_ball, present = torch.tensor([[2, 0, 3]]), torch.ones(1, 3, dtype=torch.bool)
    collided = torch.zeros(1, 1, 3, 3, dtype=torch.bool)
    collided[0, 0, 0, 1] = collided[0, 0, 1, 0] = True
    # Stage 0: rule 4 on slot 2 (ball 0), context slot 0 (ball 1): true.
    # Stage 1: rule 1 on slot 3 (ball 2), context slot 2 (ball 0): false.
    # Stage 2: rule 1 on slot 1 (no ball), context slot 0.
    trace = trace_of(
        [[-1, -1, 4, -1], [-1, -1, -1, 1], [-1, 1, -1, -1]],
        [[-1, -1, 0, -1], [-1, -1, -1, 2], [-1, 0, -1, -1]],
    )
    told = collisions.of_balls(collisions.chosen_contexts(trace), slot_of_ball)
    assert told[0, 0].nonzero().tolist() == [[0, 1], [2, 0]]
    counted = collisions.count_pairs(told, collided, present)
    counted |= collisions.count_firing(trace, 5, slot_of_ball, collided, present)
    assert collisions.collision_rule(counted) == 4
    assert "collision_rule" not in collisions.rates(counted)
    found = collisions.rates(counted, 4)
    assert found["pair_precision"] == 0.5
    assert found["pair_precision_chance"] == pytest.approx(0.25)  # 1 of 2 others, and none of 2
    assert found["pair_recall"] == 1.0
    assert found["partner"] == 1.0
    assert found["partner_chance"] == 0.5
    assert found["firing_collision"] == 0.5  # ball 0, not ball 1
    assert found["firing_elsewhere"] == 1.0  # ball 2
    assert (found["collision_rule"], found["collision_rule_collision"]) == (4, 0.5)
    assert found["collision_rule_elsewhere"] == 0.0


def test_the_threshold_is_that_of_the_best_f1():
    """Against a loop over all thresholds."""
    torch.manual_seed(0)
    for trial in range(20):
        strength, true = torch.rand(30), torch.rand(30) < 0.3
        collided = int(true.sum()) + 4
        if trial % 2:
            strength = (10 * strength).round()  # with ties
        scores = []
        for limit in [*strength.tolist(), 0.0]:  # no change tells nothing
            loud = strength > limit
            right = (loud & true).sum().item()
            precision, recall = right / max(1, loud.sum().item()), right / collided
            scores.append(2 * precision * recall / max(1e-9, precision + recall))
        loud = strength > collisions.best_threshold(strength, true, collided)
        right = (loud & true).sum().item()
        assert 2 * right / (loud.sum().item() + collided) == pytest.approx(max(scores))
    assert collisions.best_threshold(strength[:0], true[:0], 3) is None
    assert collisions.best_threshold(strength, true, 0) is None
    assert collisions.best_threshold(torch.zeros(30), true, 5) is None  # nothing changes


def test_several_statements_of_a_ball_count_for_their_share():
    """Contexts at random, three in each frame: no better than chance."""
    torch.manual_seed(0)
    told = torch.zeros(50, 40, 4, 4, dtype=torch.bool)
    for _ in range(3):
        told |= torch.nn.functional.one_hot(torch.randint(0, 4, (50, 40, 4)), 4).bool()
    collided = torch.zeros(50, 40, 4, 4, dtype=torch.bool)
    collided[:, ::4, 0, 1] = collided[:, ::4, 1, 0] = True
    counted = collisions.count_pairs(told, collided, torch.ones(50, 4, dtype=torch.bool))
    found = collisions.rates(counted)
    assert found["partner_chance"] == pytest.approx(1 / 3)
    assert found["partner"] == pytest.approx(1 / 3, abs=0.04)


class Teller(Oracle):
    """Also knows who bumps whom, and says so some frames late; its rule 3 fires at collisions."""

    interaction = torch.nn.Identity()
    late = 0

    def forward(self, frames, *, steps, slots, noise, return_trace):
        predicted = super().forward(
            frames, steps=steps, slots=slots, noise=noise, return_trace=return_trace
        )
        b, slots = noise.shape[:2]
        for name in self.splits:
            scenes = self.task.scenes(name).at(slice(b))
            if torch.equal(self.task.draw_frames(scenes).images[:, 0], frames[:, 0]):
                break
        self.asked.append(name)
        hit = scenes.collided.roll(self.late, 1)[:, 1 : 1 + steps]
        rule, context = (torch.full((b, steps, 1, slots), -1) for _ in range(2))
        balls = hit.shape[-1]
        rule[:, :, 0, :balls] = torch.where(hit.any(-1), 3, 1)
        nobody = (torch.arange(balls) + 1) % balls
        context[:, :, 0, :balls] = torch.where(hit.any(-1), hit.int().argmax(-1), nobody)
        self.strength = torch.nn.functional.pad(hit.any(-1) + 0.1, (0, slots - balls))
        scores = torch.zeros(b, steps, 1)
        return predicted._replace(trace=Trace(rule, context, scores, scores))

    def change(self, predicted):
        return self.strength


@pytest.mark.parametrize("late", [0, 1, -1])
def test_who_says_it_in_the_right_frame_gets_full_marks(late):
    task = task_of(size=32, test_scenes=40, validation_scenes=40, seen_frames=8)
    model = Teller(task)
    model.late, model.asked = late, []
    reading = task.choose_reading(model)
    assert model.asked == ["validation"]  # a threshold is not chosen on test scenes
    assert reading.rule == 3
    found = task.test(model)
    names = ("partner", "pair_recall", "who_precision", "who_recall", "who_f1")
    names += ("collision_rule_collision",)
    for name in names:
        if late == 0:
            assert found[name] > 0.93, name  # two at once: a slot names one
        elif name not in ("partner", "pair_recall"):
            assert found[name] < 0.7, name
    assert (found["collision_rule_elsewhere"] < 0.01) == (late == 0)


def test_a_ball_that_no_slot_shows_has_none():
    table = torch.tensor([[[[50, 0, 0], [0, 9, 3], [0, 0, 12]]]])  # the last is the background
    assert measures.slots_of_balls(table, 2).tolist() == [[1, -1]]


def test_balls_behind_a_curtain_are_not_looked_for():
    task = task_of(size=32, curtain=True, test_scenes=20)
    found = task.test(Oracle(task))
    assert found["position"] < 0.3  # not 0.36, with those that no pixel shows
    assert found["mse"] == pytest.approx(0.0, abs=1e-12)


def test_loud_statements_are_counted_apart():
    present = torch.ones(1, 3, dtype=torch.bool)
    collided = torch.zeros(1, 2, 3, 3, dtype=torch.bool)
    collided[0, 1, 0, 1] = collided[0, 1, 1, 0] = True
    told = torch.zeros(1, 2, 3, 3, dtype=torch.bool)
    told[0, :, 0, 1] = told[0, :, 1, 2] = told[0, :, 2, 2] = True  # ball 2 of itself
    strength = torch.tensor([[[0.1, 0.9, 0.0], [0.8, 0.2, 0.9]]])
    statements = collisions.Statements(told, strength, collided)
    flat, true, hits = statements.flat()
    assert sorted(flat.tolist()) == pytest.approx([0.1, 0.2, 0.8, 0.9])
    assert flat[true].tolist() == pytest.approx([0.8])
    assert hits.item() == 2
    loud = told & (strength > 0.5).unsqueeze(-1)
    found = collisions.rates(collisions.count_loud(loud, collided, present))
    assert found["who_precision"] == 0.5  # ball 0 in the second frame, not ball 1 in the first
    assert found["who_recall"] == 0.5
    assert found["who_f1"] == 0.5
    assert found["who_precision_chance"] == pytest.approx(0.25)


def test_a_ball_that_is_its_own_context_tells_nothing():
    slot_of_ball, present = torch.tensor([[1, 0]]), torch.ones(1, 2, dtype=torch.bool)
    collided = torch.tensor([[[[False, True], [True, False]]]])
    trace = trace_of([[3, -1]], [[0, -1]])
    told = collisions.of_balls(collisions.chosen_contexts(trace), slot_of_ball)
    found = collisions.rates(collisions.count_pairs(told, collided, present))
    assert "pair_precision" not in found
    assert found["pair_recall"] == 0.0


def test_the_trace_of_a_layer_is_read_as_by_a_loop():
    torch.manual_seed(0)
    layer = SequentialNPS(6, 4, stages=2).eval()
    slots = torch.randn(3, 5, 4, 6)
    _, trace = layer(slots, return_trace=True)
    chosen = collisions.chosen_contexts(trace)
    expected = torch.zeros(3, 5, 4, 4, dtype=torch.bool)
    for b, t, k, m in (trace.rule >= 0).nonzero().tolist():
        expected[b, t, m, trace.context[b, t, k, m]] = True
    assert torch.equal(chosen, expected)


def test_attention_points_at_the_other_slot_that_it_reads_most():
    torch.manual_seed(0)
    layer = Attention(8).eval()
    slots = torch.randn(2, 3, 4, 8)
    pointed = collisions.attended(layer.weights(slots))
    for b in range(2):
        for t in range(3):
            x = slots[b, t]
            weight, bias = layer.attention.in_proj_weight, layer.attention.in_proj_bias
            q, k = ((x @ weight[i : i + 8].T + bias[i : i + 8]).view(4, 4, 2) for i in (0, 8))
            shares = torch.einsum("ihd,jhd->hij", q, k).div(2**0.5).softmax(-1).mean(0)
            shares.fill_diagonal_(-1)
            assert pointed[b, t].nonzero()[:, 1].tolist() == shares.argmax(-1).tolist()


def test_attention_is_read_from_what_it_sees():
    """Scaled slots, of which only those that are present interact; not from the slots alone."""
    task = task_of(interaction="attention", slots=5, size=32, test_scenes=6)
    model = task.make_model(0).eval()
    torch.nn.init.normal_(model.interaction.attention.in_proj_weight)
    part = next(task.parts("test", 5, rollout=False))
    predicted = predict(task.config, model, part, task.draw_frames(part.scenes).images)
    hidden = torch.arange(5) == 2
    predicted = predicted._replace(present=~hidden.expand(predicted.before.shape[:3]))
    slot_of_ball = torch.arange(4).expand(6, 4)
    told = state(task.config, model, predicted, part.scenes, slot_of_ball).told
    assert not told[:, :, 2].any()
    assert not told[..., 2].any()
    slots = predicted.before[:, 1:4].clone()
    slots[..., :4] /= task.config.radius
    weights = layer_weights(model.interaction, slots[:, :, [0, 1, 3, 4]])
    best = weights.masked_fill(torch.eye(4, dtype=torch.bool), 0.0).argmax(-1)
    for ball, row in {0: 0, 1: 1, 3: 2}.items():
        for other, column in {0: 0, 1: 1, 3: 2}.items():
            assert torch.equal(told[:, :, ball, other], best[:, :, row] == column)


def layer_weights(layer, slots):
    flat = slots.flatten(0, 1)
    return layer.attention(flat, flat, flat)[1].view(*slots.shape[:3], -1)


def test_stopped_and_resumed_it_ends_the_same(tmp_path):
    """A recurrent task with noise in starts and choices, from states: bit for bit."""
    changes = {"interact_from": 0.3, "settle_from": 0.8, "first_frames": 2}
    assert_resumed_equals_whole(tmp_path, lambda: task_of(**changes), stops=(3, 6), last=8)


def test_the_order_of_clips_covers_all_scenes():
    task = task_of()
    assert task.examples == 16
    batches = Batches(task.data, 4, task.noise_size, [0], CPU)
    assert sorted(batches.order(0, 0).flatten().tolist()) == list(range(16))
    batches.close()


@pytest.mark.parametrize(
    "flags",
    [
        *([f"--interaction={kind}"] for kind in ("attention", "snps", "pnps", "gnn", "none")),
        ["--model=scoff", "--interaction=attention"],
        ["--gate", "--context-gradient=update", "--no-self-context"],
        ["--no-background", "--feature-stride=2", "--curtain"],
        ["--no-places", "--no-zero-start"],
        ["--select-by=motion", "--stages=2"],
        ["--interaction=pnps", "--gate", "--firing-price=0.1"],
    ],
    ids=" ".join,
)
def test_each_model_trains_and_is_tested_by_the_command(tmp_path, flags):
    run = str(tmp_path / "run")
    call("train", "balls", "--out", run, *FLAGS, "--epochs=1", "--train-scenes=4", *flags)
    out, _ = call("eval", run, "--all")
    assert "Foreground ARI, 6 to 8 balls" in out
    assert "transfer_fg_ari" in out
    tested = json.loads((tmp_path / "run/test.json").read_text())
    assert tested["copy_mse"] > 0
    assert ("who_threshold" in tested) <= ("pair_recall" in tested)
    assert list((tmp_path / "run/figures").glob("prediction-*.png"))


@pytest.mark.parametrize("kind", ["snps", "attention", "none"])
def test_inspect_shows_tables_and_pictures(tmp_path, kind):
    run = str(tmp_path / "run")
    call("train", "balls", "--out", run, *FLAGS, "--epochs=1", f"--interaction={kind}")
    out, _ = call("inspect", run)
    assert "previous frame" in out
    drawn = {path.name for path in (tmp_path / "run/figures").iterdir()}
    assert {f"rollout-{name}" for name in ("test.png", "test.gif", "transfer.gif")} <= drawn
    assert ("firing-test.png" in drawn) == (kind == "snps")
    assert ("rule 9" in out) == (kind == "snps")
    call("inspect", run, "--out", str(tmp_path / "x.png"))
    assert (tmp_path / "x-rollout-test.gif").read_bytes().startswith(b"GIF8")
    assert (tmp_path / "x-rollout-test.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", 48),
        ("frames", 0),
        ("scene_frames", 3),
        ("interaction", "gru"),
        ("model", "op3"),
        ("extent", 0.0),
        ("slot_dim", 4),
        ("places", 1),
        ("feature_stride", 3),
        ("first_frames", 0),
        ("all_frames_from", 1.0),
        ("disagreement", -0.1),
        ("area", -1.0),
        ("settle_from", 2.0),
        ("interact_from", 1.0),
        ("curtain", 1),
        ("gate", 1),
        ("firing_price", 0.1),
        ("rules", 0),
    ],
)
def test_bad_settings_are_named(field, value):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        task_of(**{field: value})


@pytest.mark.parametrize("without", [{"places": False}, {"model": "scoff"}])
def test_slots_without_a_place_have_no_motion(without):
    with pytest.raises(ValueError, match=r"^select_by: got motion, expected slot"):
        task_of(select_by="motion", **without)


def test_settings_that_do_not_go_together_are_named():
    with pytest.raises(ValueError, match=r"^select_by: got motion with gnn"):
        task_of(select_by="motion", interaction="gnn")
    with pytest.raises(ValueError, match=r"^interact_from: got 0.5, expected 0 without zero_start"):
        task_of(interact_from=0.5, zero_start=False)
