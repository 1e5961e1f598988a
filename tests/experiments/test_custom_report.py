"""The report on one's own episodes: what it counts, against a plain loop, and what it concludes
of models that are perfect, that copy their input, and that guess."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from nps.experiments.custom import with_test_set
from nps.experiments.custom.config import Config
from nps.experiments.custom.data import TEST_STEPS, held_out, split
from nps.experiments.custom.inspect import shares_table
from nps.experiments.custom.shares import OVER_SEEDS, has_shares, shares
from nps.experiments.custom.steps import observations, predict_steps, summary
from nps.experiments.custom.verdict import compare, verdict
from nps.worlds.custom import load_episodes
from tests.experiments.test_custom import CPU, FLAGS, LENGTHS, arrays_of, task_of
from tests.test_cli import call

SIDE = 20
MANY = {"held_out": 1 / 3}


def ring(place):
    """A place of the ring of columns as one slot of two numbers; neighbours are near."""
    angle = 2 * math.pi * place.double() / SIDE
    return torch.stack([angle.cos(), angle.sin()], -1).unsqueeze(-2).float()


class Seer(nn.Module):
    """Sees the bright column of `arrays_of` and predicts as it is told to.

    Args:
        kind: "perfect", "copy" or "guess".
        error: standard deviation of noise on the predictions.
    """

    def __init__(self, kind, error=0.0):
        super().__init__()
        self.kind, self.error = kind, error

    def encode(self, images):
        return ring((images.float().mean(-1) == 255).all(1).float().argmax(-1))

    def rollout(self, slots, actions):
        random = torch.Generator().manual_seed(0)
        place = torch.atan2(slots[:, 0, 1], slots[:, 0, 0]) * SIDE / (2 * math.pi)
        steps = (actions - 1).cumsum(1)
        places = {
            "perfect": place[:, None] + steps,
            "copy": place[:, None].expand(steps.shape),
            "guess": SIDE * torch.rand(steps.shape, generator=random),
        }[self.kind]
        exact = ring(places)
        return exact + self.error * torch.randn(exact.shape, generator=random)


@pytest.fixture(scope="module")
def ring_task(tmp_path_factory):
    """Forty roll-outs and more, in which the twenty states occur again and again."""
    path = tmp_path_factory.mktemp("ring") / "my.npz"
    np.savez(path, **arrays_of((31,) * 45))
    return task_of(path, **MANY)


def concluded(task, model):
    metrics = summary(predict_steps(model, task.rollouts))
    return metrics, verdict([metrics], dataclasses.asdict(task.config))


def test_a_perfect_model_is_perfect_where_states_repeat(ring_task):
    """C-SWM's H@1 calls it wrong, because others predict the same state a little nearer."""
    model = Seer("perfect", error=0.01)
    metrics, text = concluded(ring_task, model)
    assert [metrics[f"predicted_{h}"] for h in (1, 5, 10, "all")] == [1, 1, 1, 1]
    assert metrics["distinct_observations"] == SIDE
    assert metrics["chance"] == 1 / SIDE
    assert 0.2 < metrics["copied_1"] < 0.5
    assert metrics["predicted_rollouts_10"] >= 40
    assert text == "Better than copying the input after 1, 5 and 10 steps."
    ranked = ring_task.ranking(model)
    assert ranked["h1_1"] < 0.8


def test_a_model_that_copies_is_told_so(ring_task):
    metrics, text = concluded(ring_task, Seer("copy"))
    for h in (1, 5, 10, "all"):
        assert metrics[f"predicted_{h}"] == metrics[f"copied_{h}"]
        assert metrics[f"gain_low_{h}"] <= 0 <= metrics[f"gain_high_{h}"]
    assert text.startswith("No better than copying the input")
    assert "after 1, 5 or 10 steps. One frame may not hold the state: try --frames 2." in text
    two = verdict([metrics], {"frames": 2})
    assert "--frames" not in two
    assert "--epochs" in two


def test_a_model_that_guesses_is_at_chance_level(ring_task):
    metrics, text = concluded(ring_task, Seer("guess"))
    assert metrics["predicted_all"] == pytest.approx(1 / SIDE, abs=0.04)
    assert text.startswith(
        "Worse than copying the input, and no better than chance, after 1, 5 or 10 steps."
    )


def test_an_encoder_that_sees_nothing_is_at_chance_level(ring_task):
    model = Seer("copy")
    model.encode = lambda images: torch.zeros(len(images), 1, 2)
    model.rollout = lambda slots, actions: torch.zeros(*actions.shape, 1, 2)
    metrics, text = concluded(ring_task, model)
    assert metrics["predicted_all"] == pytest.approx(1 / SIDE)
    assert "no better than chance, after 1, 5 or 10 steps" in text


@pytest.mark.parametrize("continuous", [False, True])
def test_steps_are_counted_as_in_a_plain_loop(tmp_path, continuous):
    arrays = arrays_of(continuous=continuous)
    np.savez(tmp_path / "my.npz", **arrays)
    task = task_of(tmp_path / "my.npz", held_out=0.25, test_steps=7)
    model = task.make_model(3).eval()
    found = summary(predict_steps(model, task.rollouts))

    data, rollouts = load_episodes(tmp_path / "my.npz"), []
    for episode in held_out(len(LENGTHS), 0.25, task.config.data_seed)["test"].tolist():
        frames = (data.episode == episode).nonzero().flatten().tolist()
        rollouts += [frames[first : first + 8] for first in range(0, len(frames) - 1, 7)]
    images = torch.as_tensor(arrays["obs"])
    distinct = {images[n].numpy().tobytes(): images[n] for some in rollouts for n in some}
    with torch.no_grad():
        encoded = {key: model.encode(image[None])[0] for key, image in distinct.items()}
        hits, copies = {}, {}
        for some in rollouts:
            slots = encoded[images[some[0]].numpy().tobytes()][None]
            for step, frame in enumerate(some[1:], 1):
                slots = model.predict(slots, data.action[some[step - 1]][None])
                apart = {k: float((slots[0] - e).square().sum()) for k, e in encoded.items()}
                true = images[frame].numpy().tobytes()
                hits.setdefault(step, []).append(min(apart, key=apart.get) == true)
                copies.setdefault(step, []).append(true == images[some[0]].numpy().tobytes())
    assert {name for name in found if name.startswith("predicted_rollouts")} == {
        "predicted_rollouts_1", "predicted_rollouts_5", "predicted_rollouts_7",
        "predicted_rollouts_all",
    }  # fmt: skip
    for step in (1, 5, 7):
        assert found[f"predicted_{step}"] == pytest.approx(np.mean(hits[step]))
        assert found[f"copied_{step}"] == pytest.approx(np.mean(copies[step]))
        assert found[f"predicted_rollouts_{step}"] == len(hits[step])
    assert found["predicted_all"] == pytest.approx(np.concatenate([*hits.values()]).mean())
    assert found["distinct_observations"] == len(distinct)
    assert found["predicted_steps"] == sum(map(len, hits.values()))


def test_every_step_of_the_test_episodes_is_in_one_roll_out(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of())
    data = load_episodes(tmp_path / "my.npz")
    config = Config(episodes=str(tmp_path / "my.npz"), held_out=0.25, test_steps=10)
    sets = split(data, config, CPU)
    used = [
        n
        for start, length in zip(*(sets[TEST_STEPS].start, sets[TEST_STEPS].lengths), strict=True)
        for n in range(int(start), int(start + length) - 1)
    ]
    assert len(used) == len(set(used))
    episodes = {int(data.episode[n]) for n in used}
    inside = data.windows()[:, 0]
    assert sorted(used) == [n for n in inside.tolist() if int(data.episode[n]) in episodes]
    assert not episodes & {int(data.episode[n]) for n in sets["train"].start}
    assert int(sets[TEST_STEPS].lengths.max()) == 11
    assert int(sets[TEST_STEPS].lengths.min()) < 11


def test_two_roll_outs_conclude_nothing(tmp_path):
    """Short episodes, and two that reach ten steps: H@1 would be 100 among two."""
    np.savez(tmp_path / "short.npz", **arrays_of([3] * 60))
    task = task_of(tmp_path / "short.npz", **MANY)
    np.savez(tmp_path / "two.npz", **arrays_of((11, 11)))
    metrics, text = concluded(with_test_set(task, str(tmp_path / "two.npz")), Seer("perfect"))
    assert metrics["predicted_10"] == 1.0
    assert metrics["predicted_low_10"] < 0.3
    assert "After 1, 5 and 10 steps the test has only 2 roll-outs: whether the model" in text
    assert "cannot be concluded from fewer than 30" in text
    assert "Better than" not in text


def test_few_roll_outs_do_not_rank_models(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of((31,) * 12))
    task = task_of(tmp_path / "my.npz", **MANY)
    _, text = concluded(task, Seer("perfect"))
    assert text.startswith("After 1, 5 and 10 steps it is better than copying the input on the 12")
    assert "cannot show by how much, or which of two models is better" in text
    assert "--held-out" in text


def test_no_number_of_steps_that_no_episode_has(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of((8,) * 120))
    task = task_of(tmp_path / "my.npz", **MANY)
    metrics, text = concluded(task, Seer("perfect"))
    assert [row.steps for row in shares([metrics])] == ["1", "5", "7", "all"]
    assert text == (
        "Better than copying the input after 1, 5 and 7 steps. "
        "No held-out episode has more than 7 steps: left out 10."
    )


def test_a_world_in_which_nothing_happens(tmp_path):
    arrays = arrays_of((11,) * 9)
    black = np.zeros_like(arrays["obs"])
    held = torch.cat([*held_out(9, Config.held_out, Config.data_seed).values()]).tolist()
    black[11 * min({*range(9)} - {*held})] = 255  # data that are black everywhere are refused
    np.savez(tmp_path / "my.npz", **{**arrays, "obs": black})
    task = task_of(tmp_path / "my.npz")
    metrics, text = concluded(task, task.make_model(0).eval())
    assert metrics["chance"] == metrics["copied_all"] == 1.0
    assert text == "All held-out observations are equal: there is nothing to predict."
    still = [np.full((11, 20, 20, 3), 20 * e, np.uint8) for e in range(9)]
    np.savez(tmp_path / "still.npz", **{**arrays, "obs": np.concatenate(still)})
    task = task_of(tmp_path / "still.npz", **MANY)
    _, text = concluded(task, task.make_model(0).eval())
    assert text == "Nothing changes within a held-out roll-out: there is nothing to predict."


def test_equal_images_have_one_number(ring_task):
    seen = observations(ring_task.rollouts)
    data = ring_task.rollouts
    episode, time = seen.inside.nonzero(as_tuple=True)
    images = data.images(episode, time).flatten(1)
    first = data.images(*seen.first).flatten(1)
    assert torch.equal(first[seen.number[seen.inside]], images)
    assert len(first.unique(dim=0)) == seen.distinct == SIDE


def metrics_of(predicted, copied=0.1, half=0.05, rollouts=50, chance=0.01):
    """Test metrics with intervals of a given half-width, of 1 and 5 steps and of all."""
    metrics = {"chance": chance, "distinct_observations": 100, "predicted_steps": 500}
    for step, share in zip((1, 5, "all"), (*predicted, float(np.mean(predicted))), strict=True):
        gain = share - copied
        metrics |= {
            f"predicted_{step}": share,
            f"predicted_low_{step}": max(0.0, share - half),
            f"predicted_high_{step}": min(1.0, share + half),
            f"copied_{step}": copied,
            f"gain_low_{step}": gain - half,
            f"gain_high_{step}": gain + half,
            f"predicted_rollouts_{step}": rollouts,
        }
    return metrics


SHORT = {"test_steps": 5}
VERDICTS = {
    "better": ((0.9, 0.8), "Better than copying the input after 1 and 5 steps."),
    "partly": (
        (0.9, 0.12),
        "Better than copying the input after 1 step; no better than copying the input after 5 "
        "steps. One frame may not hold the state: try --frames 2. Or the training was too short "
        "(--epochs).",
    ),
    "worse": (
        (0.04, 0.03),
        "Worse than copying the input, and no better than chance, after 1 or 5 steps.",
    ),
    "hardly": (
        (0.9, 0.3),
        "Better than copying the input after 1 and 5 steps, but only 30 % of the predictions are "
        "right after 5 steps.",
    ),
}


@pytest.mark.parametrize(("predicted", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts(predicted, expected):
    assert verdict([metrics_of(predicted)], SHORT).startswith(expected)


def test_seeds_that_disagree_conclude_less():
    """One of two seeds is good: their mean is above copying, and its interval is not."""
    good, bad = metrics_of((0.9, 0.8)), metrics_of((0.1, 0.1))
    assert verdict([good] * 3, SHORT).startswith("Better than copying the input after 1 and 5")
    row, *_ = shares([good, bad])
    assert row.predicted == pytest.approx(50)
    assert (row.low, row.high) == pytest.approx((45, 55))
    assert row.over_seeds == (0.0, 100.0)  # 12.7 standard errors, within what is possible
    assert verdict([good, bad], SHORT).startswith(
        "Better than copying the input on average after 1 and 5 steps, but the seeds differ too "
        "much to conclude it."
    )
    assert verdict([bad] * 3, SHORT).startswith("No better than copying the input after 1 or 5")
    same = shares([metrics_of((0.5, 0.5)), metrics_of((0.6, 0.5)), metrics_of((0.7, 0.5))])[
        0
    ].over_seeds
    assert same == pytest.approx((60 - 4.30 * 10 / 3**0.5, 60 + 4.30 * 10 / 3**0.5))


def test_equal_seeds_have_no_interval():
    """Not one without width: two equal seeds do not show that a third is equal too."""
    one, other = metrics_of((0.3, 0.5)), metrics_of((0.3, 0.7))
    first, second, _ = shares([one, other])
    assert first.over_seeds is None
    assert second.over_seeds is not None
    table = shares_table({"NPS": [first, second]}, one)
    assert table.columns[-1] == "95 % over seeds"
    assert [row[-1] for row in table.rows] == ["–", "0 to 100"]
    rounded = shares([metrics_of((0.1 + 0.2, 0.5)), metrics_of((0.3, 0.5))])[0]
    assert rounded.over_seeds is None
    assert OVER_SEEDS not in shares_table({"NPS": [first]}, one).columns


def test_a_difference_between_models():
    good, bad = shares([metrics_of((0.9, 0.8))]), shares([metrics_of((0.5, 0.4))])
    assert compare({"NPS": good, "GNN": bad}) == "NPS predicts more steps than GNN."
    near = shares([metrics_of((0.9, 0.75))])
    assert compare({"NPS": good, "GNN": near}) == (
        "No difference between NPS and GNN can be concluded (intervals overlap)."
    )
    few = shares([metrics_of((0.9, 0.8), rollouts=12)])
    assert "(fewer than 30 roll-outs)" in compare({"NPS": few, "GNN": bad})


def test_metrics_of_older_versions_have_no_shares():
    assert not has_shares({"h1_1": 0.5, "rollouts": 3})
    assert has_shares(metrics_of((0.5, 0.5)))
    for damage in ("x", None, True, [1]):
        assert not has_shares({**metrics_of((0.5, 0.5)), "gain_low_5": damage})
    assert not has_shares({**metrics_of((0.5, 0.5)), "predicted_7": 0.5})


def test_runs_of_older_versions_are_still_reported(tmp_path):
    np.savez(tmp_path / "my.npz", **arrays_of())
    folder = tmp_path / "runs/world-model/seed-0"
    flags = [f"--data={tmp_path / 'my.npz'}", f"--out={folder}", "--epochs=1", *FLAGS]
    call("train", "world-model", *flags)
    call("eval", str(folder))
    test = json.loads((folder / "test.json").read_text())
    old = {key: test[key] for key in test if "predicted" not in key and key != "rollouts"}
    (folder / "test.json").write_text(json.dumps(old))
    call("table", str(tmp_path / "runs"), "--report")
    page = (tmp_path / "runs/report.html").read_text()
    assert "NPS: tested by an older version, or test.json is damaged" in page
    assert "NPS: nothing moves" in page
