"""The floors of bouncing balls: against loops, with scikit-learn, and the committed file."""

import itertools
import math

import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from nps.experiments.balls import Config, collisions, floors
from nps.experiments.balls.evaluation import summary
from nps.experiments.balls.floors import nearest_ball, segments, still
from nps.experiments.results import read_results
from nps.reading import read_json
from nps.worlds.balls import make_scenes
from tests.experiments.test_balls import Oracle, task_of
from tests.test_results_folder import RESULTS


def test_floors_are_those_of_the_prototype():
    """Measured before, with another generator and 300 frames (foreground ARI, ARI)."""
    task = task_of(size=64, test_scenes=40)
    floors = {}
    for split in ("test", "transfer"):
        scenes = task.scenes(split)
        labels = task.draw_frames(scenes).labels
        for name, values in segments(scenes, labels, scenes.present.shape[1] + 1).items():
            floors[split, name] = values.mean().item()
    expected = {
        ("test", "grid"): (0.714, 0.021),
        ("test", "colour"): (0.616, 0.987),
        ("test", "copy"): (0.587, 0.653),
        ("transfer", "grid"): (0.664, 0.039),
        ("transfer", "colour"): (0.474, 0.963),
        ("transfer", "copy"): (0.573, 0.593),
    }
    for (split, name), (foreground, full) in expected.items():
        assert floors[split, f"{name}_fg_ari"] == pytest.approx(foreground, abs=0.08)
        assert floors[split, f"{name}_ari"] == pytest.approx(full, abs=0.04)


def test_the_floor_of_a_rollout_stands_still():
    """Against a loop over scenes and frames, with scikit-learn's ARI."""
    task = task_of(size=32, test_scenes=3, seen_frames=4, rollout_frames=3)
    scenes = task.scenes("test")
    images, labels = task.draw_frames(scenes)
    found = still(scenes, labels, images, 4)
    for b in range(3):
        last, scores, errors, away = 3, [], [], []
        for t in range(5, 8):  # frame 4 is predicted from frame 3; later ones without input
            balls = labels[b, t] > 0
            scores.append(adjusted_rand_score(labels[b, t][balls], labels[b, last][balls]))
            difference = images[b, t].float() - images[b, last].float()
            errors.append((difference / 255).square().mean().item())
            away += [math.dist(*scenes.position[b, [t, last], i].tolist()) for i in range(4)]
        for name, values in {"fg_ari": scores, "mse": errors, "position": away}.items():
            expected = sum(values) / len(values)
            assert found[f"copy_rollout_{name}"][b].item() == pytest.approx(expected, rel=1e-4)


def test_the_grid_of_a_rollout_is_scored_as_by_scikit_learn():
    task = task_of(size=32, test_scenes=2, seen_frames=4, rollout_frames=3)
    labels = task.draw_frames(task.scenes("test")).labels[:, 5:]
    found = floors.grid_rollout(labels, 5)["grid_rollout_fg_ari"]
    cell = torch.arange(32) * 3 // 32
    cells = (3 * cell[:, None] + cell).numpy()
    for b in range(2):
        scores = [adjusted_rand_score(x[x > 0], cells[x > 0]) for x in labels[b].numpy()]
        assert found[b].item() == pytest.approx(sum(scores) / 3, abs=1e-6)


SEEN = 8


def balls_of(scenes, b):
    return range(int(scenes.present[b].sum()))


def nearest_by_loop(scenes, b, t, i):
    """Of frame t, read from the one before: the nearest other ball, and how far its surface is."""

    def gap(j):
        apart = math.dist(scenes.position[b, t - 1, i].tolist(), scenes.position[b, t - 1, j])
        return apart - scenes.radius[b, i].item() - scenes.radius[b, j].item()

    return min((gap(j), j) for j in balls_of(scenes, b) if j != i)


@pytest.mark.parametrize("balls", [(4, 4), (6, 8), (1, 2)])
def test_the_nearest_ball_is_that_of_a_loop(balls):
    scenes = make_scenes(6, SEEN + 1, seed=3, balls=balls)
    told, strength, collided = nearest_ball(scenes, SEEN)
    expected = torch.zeros_like(told)
    for b, t in itertools.product(range(6), range(2, SEEN + 1)):
        for i in balls_of(scenes, b):
            if len(balls_of(scenes, b)) > 1:
                gap, j = nearest_by_loop(scenes, b, t, i)
                expected[b, t - 2, i, j] = True
                assert strength[b, t - 2, i].item() == pytest.approx(
                    1 / (1 + max(0, gap)), rel=1e-4
                )
    assert torch.equal(told, expected)
    assert torch.equal(collided, scenes.collided[:, 2 : SEEN + 1])


def test_the_rates_of_the_nearest_ball_and_of_a_random_one_are_those_of_a_loop():
    """Of the random one what is expected, from the number of other balls."""
    scenes, near = make_scenes(30, SEEN + 1, seed=5, balls=(6, 8)), 0.8
    found = summary(floors.bumps(scenes, SEEN, near))
    asked, right, by_chance, pairs, told, told_chance = [], [], [], 0, 0, 0.0
    said, true, ordered, all_said, all_true = 0, 0, 0, 0, 0.0
    for b, t in itertools.product(range(30), range(2, SEEN + 1)):
        number, hit = len(balls_of(scenes, b)), scenes.collided[b, t]
        named = {i: nearest_by_loop(scenes, b, t, i) for i in balls_of(scenes, b)}
        for i, (gap, j) in named.items():
            hits, loud = int(hit[i].sum()), 1 / (1 + max(0, gap)) > near
            ordered += hits
            all_said, all_true = all_said + 1, all_true + hits / (number - 1)
            said, true = said + loud, true + (loud and hit[i, j].item())
            if hits:
                asked.append(i)
                right.append(hit[i, j].item())
                by_chance.append(hits / (number - 1))
        for i, j in itertools.combinations(named, 2):
            if hit[i, j]:
                pairs += 1
                told += named[i][1] == j or named[j][1] == i
                told_chance += 1 - (1 - 1 / (number - 1)) ** 2
    expected = {
        "nearest_partner": sum(right) / len(asked),
        "random_partner": sum(by_chance) / len(asked),
        "nearest_pair_recall": told / pairs,
        "random_pair_recall": told_chance / pairs,
        "nearest_who_recall": true / ordered,
        "nearest_who_precision": true / said,
        "nearest_who_f1": 2 * true / (said + ordered),
        "random_who_recall": all_true / ordered,
        "random_who_precision": all_true / all_said,
        "random_who_f1": 2 * all_true / (all_said + ordered),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["nearest_partner"] > 2 * found["random_partner"]


def test_chance_is_what_random_contexts_get():
    """Statements of some slots alone, several of them with two contexts."""
    draw = torch.Generator().manual_seed(0)
    present = torch.tensor([[True] * 5, [True] * 4 + [False]]).repeat(200, 1)
    collided = torch.rand(400, 8, 5, 5, generator=draw) < 0.1
    collided = (collided | collided.mT) & ~torch.eye(5, dtype=torch.bool)
    collided &= (present.unsqueeze(-1) & present.unsqueeze(-2))[:, None]
    number = torch.tensor([0, 1, 2])[torch.randint(0, 3, (400, 8, 5), generator=draw)]
    scores = torch.rand(400, 8, 5, 5, generator=draw) - 2.0 * torch.eye(5)
    scores = scores.masked_fill(~present[:, None, None], -1.0)
    rank = scores.argsort(-1, descending=True).argsort(-1)
    told = (rank < number.unsqueeze(-1)) & present[:, None, :, None]
    counted = collisions.count_pairs(told, collided, present)
    found = collisions.rates(counted | collisions.count_loud(told, collided, present))
    for name in ("partner", "pair_recall", "pair_precision", "who_recall", "who_f1"):
        assert found[name] == pytest.approx(found[f"{name}_chance"], abs=0.03), name


def test_every_test_has_the_floors_of_who_bumped_whom():
    """The threshold is chosen on validation scenes; a model that tells nothing has them, too."""
    task = task_of(size=16, test_scenes=40, validation_scenes=40, seen_frames=8)
    found = task.test(Oracle(task))
    assert task.closeness == floors.closeness(task.scenes("validation"), 8)
    for prefix in ("", "transfer_"):
        assert found[f"{prefix}nearest_partner"] > 0.6
        assert found[f"{prefix}nearest_who_f1"] > found[f"{prefix}random_who_f1"]
        assert f"{prefix}partner" not in found


def test_the_committed_floors_are_those_of_the_published_scenes():
    """Where published runs have the same floors, from another machine, they agree."""
    saved = read_json(RESULTS / "balls/floors.json", dict[str, float])
    runs = read_results(RESULTS / "balls")
    for run in runs:
        assert (run.config["data_seed"], run.config["test_scenes"]) == (
            Config().data_seed,
            Config().test_scenes,
        )
    shared = saved.keys() & runs[0].test.keys()
    assert len(shared) > 20
    for name in shared:
        assert saved[name] == pytest.approx(runs[0].test[name], abs=1e-3), name
    assert saved["nearest_partner"] > saved["random_partner"]
