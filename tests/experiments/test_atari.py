"""World models of Atari games, on files of invented episodes; no emulator is needed."""

import dataclasses
import json
import os

import numpy as np
import pytest
import torch

import nps
from nps.errors import UserError
from nps.experiments import EXPERIMENTS, _task, load_task
from nps.experiments.atari import PRESETS, AtariTask, Config, drawing, pairs
from nps.experiments.atari import data as making
from nps.experiments.atari import report as reports
from nps.experiments.atari.games import read_games
from nps.experiments.blocks import PRESETS as BLOCKS
from nps.experiments.results import read_run
from nps.experiments.world_models.config import WorldModelConfig
from nps.experiments.world_models.model import make_encoder
from nps.perception.extractors import Norm
from nps.training import checkpoint
from nps.training.config import from_json, to_json
from nps.training.loop import Settings as LoopSettings
from nps.training.loop import train
from nps.training.run import Run
from nps.training.task import Batch
from nps.worlds import atari, atari_file, atari_play
from nps.worlds.atari_games import GAMES, Settings, world
from nps.worlds.atari_play import Played
from tests.experiments.drawing import RARELY, assert_draws
from tests.experiments.runs import session
from tests.experiments.stacks import assert_stack_equals_single
from tests.experiments.test_loaded import assert_world_model
from tests.test_cli import call

CPU = torch.device("cpu")
TINY = {
    "train_episodes": 6,
    "validation_episodes": 2,
    "test_episodes": 5,
    "data_seed": 7,
    "batch_size": 20,
    "hidden_dim": 16,
    "width": 4,
    "extractor": "small",
    "validate_every": 1,
}
FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]


def invented(game: str, settings: Settings) -> dict[str, Played]:
    """A bar of one of four shades in front of a picture, so that some observations are equal."""
    draw, actions = np.random.default_rng(0), len(GAMES[game].actions)
    behind = draw.integers(256, size=(3, 50, 50), dtype=np.uint8)

    def some(count: int) -> Played:
        frames = np.tile(behind, (count, 12, 1, 1, 1))
        shade = draw.integers(4, size=(count, 12, 1, 1, 1), dtype=np.uint8) * 60
        frames[..., 10:30, 20:30] = shade
        return Played(frames, draw.integers(actions, size=(count, 10), dtype=np.uint8))

    return {"train": some(settings.train), "test": some(settings.test)}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """Small files of two games in the cache."""
    monkeypatch.setenv("NPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NPS_DATA", raising=False)
    monkeypatch.setattr(atari_play, "version", lambda: "0.0")
    making._prepare.cache_clear()
    folder, settings = tmp_path / "cache/atari", Settings(6, 5, 7)
    folder.mkdir(parents=True)
    for game in ("pong", "freeway"):
        packed = atari_file.pack(game, settings, invented(game, settings))
        (folder / f"{game}.npz").write_bytes(packed)
    return folder


def tiny(preset: str, **changes: object) -> Config:
    """A preset in small, with its own kind of encoder and its own choice of the best model."""
    config = PRESETS[preset].config
    small = {**TINY, **changes}
    if config.extractor == "slot-attention":
        del small["extractor"]
    if config.validation_episodes == 0:
        del small["validation_episodes"]
    return dataclasses.replace(config, **small)


def task_of(**changes: object) -> AtariTask:
    return AtariTask(Config(**{**TINY, **changes}), CPU)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_round_trips_and_steps(name):
    config = tiny(name)
    assert from_json(Config, to_json(config)) == config
    task = AtariTask(config, CPU)
    model = task.make_model(0)
    noise = torch.rand(8, task.noise_size)
    loss, _ = task.loss(model, Batch(torch.arange(8) * 3, noise, torch.tensor(0.0), "all"))
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    judged = task.evaluate(model.eval(), "validation")
    assert set(judged) == {
        "score", "loss", "h1_1", "identity_h1_1", "h1_10", "identity_h1_10",
    }  # fmt: skip


@pytest.mark.parametrize("negatives", ["batch", "time-aligned"])
def test_validation_encodes_each_image_once_and_measures_the_same(negatives, monkeypatch):
    task = task_of(negatives=negatives)
    model = task.make_model(0).eval()
    encoded, encode = [], type(model).encode

    def counted(self, images):
        encoded.append(len(images))
        return encode(self, images)

    monkeypatch.setattr(type(model), "encode", counted)
    with torch.no_grad():
        data = task.sets["validation"]
        whole = task.measure(model, data)
        assert sum(encoded[1:]) == len(data.lengths) * 11  # the first are those it settles on
        task.judged = 0  # as if few were asked for
        parts = task.measure(model, data)
    assert set(whole) == set(parts)
    for name, values in whole.items():
        torch.testing.assert_close(values, parts[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("separate", "negatives", "calls"),
    [
        (False, "batch", [16]),
        (False, "time-aligned", [24]),
        (True, "batch", [8, 8]),
        (True, "time-aligned", [8, 8, 8]),
    ],
)
def test_states_are_encoded_in_one_call_or_apart(separate, negatives, calls, monkeypatch):
    """Apart, each is a batch for the normalisation, whose running statistics move at each call."""
    task = task_of(negatives=negatives, separate_encoding=separate)
    model = task.make_model(0)
    encoded, encode = [], type(model).encode

    def noted(self, images):
        encoded.append(images)
        return encode(self, images)

    monkeypatch.setattr(type(model), "encode", noted)
    now, noise = torch.arange(8) * 3, torch.rand(8, task.noise_size)
    task.loss(model, Batch(now, noise, torch.tensor(0.0), "all"))
    assert [len(images) for images in encoded] == calls
    data, episode, time = task.sets["train"], now // 10, now % 10
    first, second = torch.cat(encoded)[:16].split(8)
    assert torch.equal(first, data.images(episode, time))
    assert torch.equal(second, data.images(episode, time + 1))
    norm = model.encoder.extractor[1]
    assert int(norm.num_batches_tracked) == len(calls)


def test_presets_are_c_swm_s_with_the_paper_s_rules():
    nps = PRESETS["atari-nps"].config
    assert (nps.rules, nps.stages, nps.rule_dim, nps.slots, nps.slot_dim) == (1, 1, 32, 3, 4)
    assert (nps.epochs, nps.batch_size, nps.learning_rate) == (200, 1024, 5e-4)


def test_the_paper_s_own_setup_is_that_of_blocks():
    """Five slots of 64 by slot attention and 100 epochs, with the embeddings that Atari has."""
    ours, blocks = PRESETS["atari-slots-nps"].config, BLOCKS["blocks-slots-nps"].config
    shared = {field.name for field in dataclasses.fields(WorldModelConfig)}
    differs = {name for name in shared if getattr(ours, name) != getattr(blocks, name)}
    assert differs == {"rule_dim", "statistics"}  # without batch normalisation it has no effect
    assert (ours.rule_dim, ours.slots, ours.slot_dim, ours.width) == (32, 5, 64, 64)
    encoder = make_encoder(ours, (50, 50, 6))
    assert encoder(torch.zeros(2, 50, 50, 6)).shape == (2, 5, 64)
    assert not any(isinstance(module, Norm) for module in encoder.modules())
    for slots in (3, 5):
        wide = PRESETS[f"atari-{slots}x64-nps"].config
        c_swm = dataclasses.replace(PRESETS["atari-nps"].config, slots=slots, slot_dim=64)
        assert wide == c_swm
        assert PRESETS[f"atari-{slots}x64-nps-5"].config == dataclasses.replace(wide, rules=5)


@pytest.mark.parametrize("setting", pairs.PAIRS)
def test_both_models_of_a_pair_differ_in_the_transition_alone(setting):
    ours, gnn = (PRESETS[name].config for name in pairs.PAIRS[setting])
    rules = {"rules": gnn.rules, "transition": gnn.transition}
    assert dataclasses.replace(ours, **rules) == gnn
    assert gnn.transition == "gnn"


def test_images_are_those_of_the_world():
    """As `observe` puts them together, with the channels last and as bytes."""
    task = task_of()
    played = atari.load("pong", Settings(6, 5, 7))
    episode, time = torch.tensor([0, 3, 1]), torch.tensor([0, 10, 4])
    seen = task.sets["train"].images(episode, time)
    expected = atari.observe(played.train.frames, episode, time)
    assert torch.equal(seen.movedim(-1, 1) / 255.0, expected)
    assert task.image == (50, 50, 6)
    assert task.examples == 40
    held_out = task.sets["validation"].frames
    assert torch.equal(held_out.movedim(-1, 2), played.train.frames[4:])
    assert torch.equal(task.sets["test"].frames.movedim(-1, 2), played.test.frames)


def test_truth_is_the_equality_of_observations():
    data = task_of().sets["test"]
    episode, time = torch.arange(5).repeat_interleave(11), torch.arange(11).repeat(5)
    images = data.images(episode, time).flatten(1)
    same = (images[:, None] == images).all(-1)
    truth = data.truth().flatten(0, 1)
    assert torch.equal((truth[:, None] == truth).all(-1), same)
    assert same.sum() > 55


def test_copying_the_input_by_a_plain_loop():
    task = task_of()
    data, tested = task.sets["test"], task.copied
    for step in (1, 5, 10):
        first, true = (
            data.images(torch.arange(5), torch.full((5,), t)).flatten(1).double() for t in (0, step)
        )
        hits, strict, inverse = 0, 0, 0.0
        for i in range(5):
            away = [float((true[i] - first[j]).square().sum()) for j in range(5)]
            nearer = sum(d < away[i] for d in away)
            hits += nearer == 0
            strict += nearer == 0 and sum(d == away[i] for d in away) == 1
            inverse += 1 / (1 + nearer)
        assert tested[f"copy_h1_{step}"] == pytest.approx(hits / 5)
        assert tested[f"copy_h1_strict_{step}"] == pytest.approx(strict / 5)
        assert tested[f"copy_mrr_{step}"] == pytest.approx(inverse / 5)
        assert tested[f"copy_h1_distinct_{step}"] >= tested[f"copy_h1_{step}"]


STACKED = (
    "atari-nps",
    "atari-gnn-aligned",
    "atari-5x64-nps-5",
    "atari-slots-nps",
    "atari-cswm-nps",
)


@pytest.mark.parametrize("preset", STACKED)
def test_a_stack_of_seeds_equals_single_runs(tmp_path, preset):
    task = AtariTask(tiny(preset, epochs=2), CPU)
    assert_stack_equals_single(tmp_path, task, "loss")


OTHERS = [name for name in PRESETS if any(mark in name for mark in ("64", "slots", "cswm"))]


@pytest.mark.parametrize("preset", OTHERS)
def test_a_preset_trains_two_steps_from_the_command_line(tmp_path, preset):
    """And is tested."""
    config = tiny(preset)
    given = {
        **TINY,
        "extractor": config.extractor,
        "validation_episodes": config.validation_episodes,
    }
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    call("train", preset, f"--out={tmp_path / 'run'}", "--epochs=1", *flags)
    (row,) = Run(tmp_path / "run").metrics()
    assert row["step"] == 2 + (config.validation_episodes == 0)
    chosen = row["loss"] if config.validation_episodes == 0 else row["validation"]["loss"]
    assert row["validation"]["score"] == chosen
    shown = call("eval", str(tmp_path / "run"))[0]
    assert "H@1 after 10 steps" in shown


def test_the_kept_model_has_the_statistics_of_its_own_weights(tmp_path):
    """Of a stack, too: validation settles what is saved."""
    task = task_of(epochs=2, learning_rate=0.05)
    runs = {s: Run(tmp_path / f"seed-{s}") for s in (0, 1)}
    for run in runs.values():
        run.folder.mkdir()
    train(task, task.config, runs, CPU, LoopSettings(), lambda text: None)
    seen = task.sets["train"].images(*task._settling)
    for run in runs.values():
        saved = checkpoint.newest(run.checkpoints, print).tensors
        for group in ("best", "model"):
            model = task.make_model(0)
            model.load_state_dict(saved[group])
            maps = model.encoder.extractor[0](seen / 255.0)
            mean = model.encoder.extractor[1].running_mean
            torch.testing.assert_close(mean, maps.mean((0, 1, 2)), rtol=1e-3, atol=1e-4)


def test_run_takes_a_game_and_the_table_takes_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick = {"atari-nps": {**TINY, "epochs": 1}}
    monkeypatch.setattr(EXPERIMENTS["atari"], "quick", quick)
    out, err = call("run", "atari", "--game=freeway", "--quick", "--seeds=2")
    assert "into runs/atari-quick/freeway" in err
    assert "nps run atari --game freeway --seeds 10 --device cuda" in out
    for name in ("atari-nps", "atari-gnn"):
        folder = f"runs/atari-quick/pong/{name}/seed-0"
        call("train", name, f"--out={folder}", "--epochs=1", *FLAGS)
        call("eval", folder)
    saved = json.loads(
        (tmp_path / "runs/atari-quick/freeway/atari-nps/seed-1/config.json").read_text()
    )
    assert saved["config"]["game"] == "freeway"
    one = call("table", "runs/atari-quick/freeway")[0]
    assert "| Freeway: NPS |" in one
    assert "Pong" not in one
    both = call("table", "runs/atari-quick")[0]
    assert "| Pong: paper's NPS | 44.1 ± 8.3 |" in both
    assert both.count("copy the input") == 4
    assert both.count("nothing moves") == 3
    assert "| Mean of 2: NPS |" in both
    assert "| Mean of 2: GNN |" not in both
    shown = call("inspect", "runs/atari-quick/freeway/atari-nps/seed-0")[0]
    assert "DOWN" in shown
    assert "Copy the input: H@1" in shown


def write_tested(folder, game, preset, seed, hits, played=None):
    """A tested run; `played`: what it recorded of the game, if anything."""
    folder = folder / preset / f"seed-{seed}"
    folder.mkdir(parents=True)
    config = {"schema": 1, "experiment": "atari", "preset": preset, "seed": seed}
    (folder / "config.json").write_text(
        json.dumps({**config, "config": {"game": game, "epochs": 1}})
    )
    test = {f"{metric}": hits for metric in reports.METRICS} | {"copy_h1_1": 0.25}
    test |= {"copy_h1_strict_1": 0.125, "transition_parameters": 10}
    (folder / "test.json").write_text(json.dumps(test))
    if played is not None:
        sessions = [session(0, 1, 1.0) | {"data": played}]
        (folder / "provenance.json").write_text(json.dumps(sessions))


def test_mean_and_standard_deviation_over_seeds(tmp_path):
    for seed, hits in enumerate((0.2, 0.5)):
        write_tested(tmp_path, "qbert", "atari-nps", seed, hits)
    assert read_run(tmp_path / "atari-nps/seed-1").seed == 1
    rows = reports.summary_table(read_games(tmp_path)).rows
    assert rows[0][:2] == ["Q*bert: NPS", "35.0 ± 21.2"]
    assert rows[1][1] == "–"
    assert rows[2][:2] == ["Q*bert: copy the input", "25.0"]
    assert rows[3][1] == "12.5"


def test_the_figure_has_the_games_and_the_mean_of_what_all_of_them_have(tmp_path, monkeypatch):
    for game, both in {"pong": (0.2, 0.5), "qbert": (0.1, 0.4)}.items():
        for seed, hits in enumerate(both):
            write_tested(tmp_path / game, game, "atari-nps", seed, hits)
    write_tested(tmp_path / "pong", "pong", "atari-gnn", 0, 0.9)
    drawn = []
    monkeypatch.setattr(drawing.figures, "available", lambda: True)
    monkeypatch.setattr(drawing.figures, "means_over", lambda panels, *_: drawn.append(panels))
    drawing.ranking_figure(read_games(tmp_path))
    (panels,) = drawn
    assert list(panels) == ["Pong", "Q*bert", "Mean of 2"]
    assert panels["Pong"]["NPS"][5].tolist() == pytest.approx([20, 50])
    assert set(panels["Mean of 2"]) == {"NPS", "copy the input"}
    assert panels["Mean of 2"]["NPS"][10].tolist() == pytest.approx([30])
    assert set(panels["Q*bert"]["copy the input"]) == {1}
    fewer = {"NPS": {1: np.array([10.0])}, "GNN": {1: np.array([1.0])}}
    assert drawing.mean_panel([panels["Pong"], fewer])["NPS"] == {1: pytest.approx([22.5])}


def test_a_figure_shows_negatives_of_one_kind_and_the_paper_beside_its_own(tmp_path):
    for preset in ("atari-nps", "atari-nps-aligned", "atari-parallel-aligned"):
        write_tested(tmp_path / "pong", "pong", preset, 0, 0.5)
    games = read_games(tmp_path)
    shuffled = drawing.ranking_panels(games, drawing.FIGURES["ranking"])["Pong"]
    assert list(shuffled) == ["NPS", "the paper's NPS", "the paper's GNN", "copy the input"]
    assert {k: v.tolist() for k, v in shuffled["the paper's NPS"].items()} == {
        1: [44.1],
        5: [22.2],
        10: [15.6],
    }
    aligned = drawing.ranking_panels(games, drawing.FIGURES["ranking-aligned"])["Pong"]
    assert list(aligned) == ["NPS", "parallel NPS", "copy the input"]
    one = {"pong": {"atari-gnn": games["pong"]["atari-nps"]}}
    assert drawing.ranking_panels(one, drawing.FIGURES["ranking-aligned"]) == {}


NOW, BEFORE = (f"frameskip {n}, warm-up 50, rows 30 to 200" for n in (3, 4))


def test_runs_of_another_version_of_a_game_are_left_out(tmp_path):
    """Those that recorded none are of the first version: Space Invaders had other frames."""
    for seed, played in enumerate((None, BEFORE, NOW)):
        write_tested(tmp_path / "x", "space_invaders", "atari-gnn", seed, 0.5, played)
    for game in ("space_invaders", "pong"):
        write_tested(tmp_path / game, game, "atari-nps", 0, 0.5)
    games, left_out = reports.read(tmp_path)
    assert {game: list(presets) for game, presets in games.items()} == {
        "pong": ["atari-nps"],
        "space_invaders": ["atari-gnn"],
    }
    assert [run.seed for run in games["space_invaders"]["atari-gnn"]] == [2]
    why = f"3 runs of Space Invaders left out: of another version of it ({BEFORE}; now {NOW})."
    assert left_out == {"space_invaders": why}
    shown = reports.write_report(tmp_path, EXPERIMENTS["atari"])
    assert any(getattr(part, "text", None) == why for part in shown.parts)
    _, err = call("table", str(tmp_path / "space_invaders"), code=2)
    assert "1 run of Space Invaders left out" in err
    assert err.count("\n") == 1


def test_an_older_run_of_space_invaders_is_neither_continued_nor_tested_as_of_today(files):
    settings = Settings(6, 5, 7)
    packed = atari_file.pack("space_invaders", settings, invented("space_invaders", settings))
    (files / "space_invaders.npz").write_bytes(packed)
    runs = {game: files.parent / game for game in ("space_invaders", "pong")}
    for game, folder in runs.items():
        flags = [f"--out={folder}", f"--game={game}", "--epochs=1", *FLAGS]
        call("train", "atari-gnn", *flags)
        path = folder / "provenance.json"
        (recorded,) = json.loads(path.read_text())
        assert recorded.pop("data") == (NOW if game == "space_invaders" else world(GAMES[game]))
        path.write_text(json.dumps([recorded]))
    flags = [f"--out={runs['space_invaders']}", "--game=space_invaders", "--epochs=1", *FLAGS]
    assert "its data have changed" in call("train", "atari-gnn", *flags, code=2)[1]
    assert "the data have changed since" in call("eval", str(runs["space_invaders"]))[1]
    assert not (runs["space_invaders"] / "test.json").exists()
    call("eval", str(runs["pong"]))
    assert (runs["pong"] / "test.json").exists()
    saved = json.loads((runs["pong"] / "config.json").read_text())
    del saved["config"]["separate_encoding"]  # a field that older runs lack
    (runs["pong"] / "config.json").write_text(json.dumps(saved))
    out, err = call("train", "atari-gnn", f"--out={runs['pong']}", "--epochs=1", *FLAGS)
    assert "complete" in out + err


def test_pairs_are_judged_by_two_standard_errors(tmp_path):
    """Against numpy, in one game and as the mean of two."""
    hits = {
        "pong": {"atari-nps": (0.30, 0.34, 0.38), "atari-gnn": (0.20, 0.24)},
        "qbert": {"atari-nps": (0.10, 0.12), "atari-gnn": (0.16, 0.22, 0.12)},
    }
    for game, presets in hits.items():
        for preset, values in presets.items():
            for seed, value in enumerate(values):
                write_tested(tmp_path / game, game, preset, seed, value)
    games = read_games(tmp_path)
    errors = {
        game: sum(np.var(values, ddof=1) / len(values) for values in presets.values())
        for game, presets in hits.items()
    }
    both = pairs.compare(games, pairs.PAPER_PAIR, "h1_5")
    assert both.nps == pytest.approx(100 * (0.34 + 0.11) / 2)
    assert both.gnn == pytest.approx(100 * (0.22 + 0.5 / 3) / 2)
    assert both.error == pytest.approx(100 * sum(errors.values()) ** 0.5 / 2)
    alone = {game: pairs.compare({game: games[game]}, pairs.PAPER_PAIR, "h1_5") for game in games}
    assert alone["pong"].error == pytest.approx(100 * errors["pong"] ** 0.5)
    assert [each.verdict for each in alone.values()] == ["ahead", "cannot be told"]
    (table,) = pairs.judged_table(games)
    assert [row[:2] for row in table.rows] == [
        ["Pong: 3 slots of 4", "34.0, 22.0: ahead"],
        ["Q*bert: 3 slots of 4", "11.0, 16.7: cannot be told"],
        ["Mean of 2: 3 slots of 4", "22.5, 19.3: cannot be told"],
    ]
    assert [row[4] for row in table.rows] == ["–"] * 3
    assert pairs.Difference(0.1, 0.2, 0.04).verdict == "behind"
    assert pairs.Difference(0.1, 0.9, float("inf")).verdict == "cannot be told"


def test_a_run_of_another_experiment_is_named(tmp_path):
    write_tested(tmp_path / "pong", "pong", "atari-nps", 0, 0.5)
    folder = tmp_path / "quick/blocks-nps/seed-0"
    folder.mkdir(parents=True)
    config = {"schema": 1, "experiment": "blocks", "preset": "blocks-nps", "seed": 0, "config": {}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "test.json").write_text("{}")
    with pytest.raises(UserError, match="quick/blocks-nps/seed-0: a run of blocks, but"):
        read_games(tmp_path)


def test_the_paper_s_numbers_are_the_facts():
    mean = {
        game: {
            model: [float(x.split(" ")[0]) for x in row.split(", ")] for model, row in of.items()
        }
        for game, of in reports.PAPER.items()
    }
    assert mean["pong"]["NPS"] == [44.1, 22.2, 15.6, 60.6, 38.7, 30.2]
    assert mean["space_invaders"]["GNN"] == [68.8, 21.7, 14.7, 79.9, 39.6, 31.0]


def test_a_game_is_played_first_where_it_can_be(tmp_path, monkeypatch, files, capsys):
    played = []

    def play(game, settings, workers, advance):
        played.append(game)
        return invented(game, settings)

    monkeypatch.setattr(making, "play_all", play)
    monkeypatch.setattr(making, "Emulator", lambda game: None)
    monkeypatch.setattr(making, "find_spec", lambda name: object())
    config = Config(**TINY, game="qbert")
    making.prepare(config)
    making.prepare(config)
    assert played == ["qbert"]
    assert "playing 11 episodes of qbert" in capsys.readouterr().err
    assert AtariTask(config, CPU).actions.count == 6
    monkeypatch.setattr(making, "find_spec", lambda name: None)
    _, err = call("run", "atari", "--game=breakout", f"--out={tmp_path / 'out'}", code=2)
    assert "make it with `nps data atari --game breakout`" in err
    assert err.splitlines()[-1].startswith("nps: error: Atari: no breakout.npz")
    assert not (tmp_path / "out").exists()


def test_mistakes_are_one_line(tmp_path):
    _, err = call("run", "atari", "--game=pang", code=2)
    assert "--game: got 'pang', expected one of pong, " in err
    assert err.count("\n") == 1
    _, err = call("run", "blocks", "--game=pong", code=2)
    assert "--game" in err
    flags = [f"--out={tmp_path / 'x'}", "--game=breakout", "--action=factored"]
    _, err = call("train", "atari-gnn", *flags, code=2)
    assert "slots: got 3, expected a divisor of breakout's 4 actions (--slots)" in err
    assert "factored (--action)" in err
    assert err.count("\n") == 1
    assert Config(game="breakout", action="factored", slots=2).slots == 2
    _, err = call("train", "atari-gnn", f"--out={tmp_path / 'x'}", "--game=qbert", code=2)
    assert "nps data atari --game qbert" in err
    assert not (tmp_path / "x").exists()
    assert "--game" in call("run", "atari", "--help")[0]
    with pytest.raises(ValueError, match="train_episodes: got 101, expected at least 2 more"):
        Config(train_episodes=101)
    with pytest.raises(ValueError, match="validation_episodes: got 1, expected 0, or at least 2"):
        Config(validation_episodes=1)
    with pytest.raises(ValueError, match="game: got 'tetris'"):
        Config(game="tetris")


def test_eval_needs_the_file(tmp_path, files):
    folder = str(tmp_path / "run")
    call("train", "atari-nps", f"--out={folder}", "--epochs=1", *FLAGS)
    assert "copy_h1 " in call("eval", folder, "--all")[0]
    _, model = load_task(folder)
    assert not model.training
    os.rename(files / "pong.npz", tmp_path / "pong.npz")
    _task.cache_clear()
    assert "nps data atari" in call("eval", folder, code=2)[1]
    assert "h1 " in call("eval", folder, f"--data={tmp_path}", "--all")[0]
    del os.environ["NPS_DATA"]


def test_trace_and_rollout_in_python(tmp_path, files):
    """Also with the file of the game in a folder that is given, which is forgotten afterwards."""
    (tmp_path / "mine").mkdir()
    os.rename(files / "pong.npz", tmp_path / "mine/pong.npz")
    how = {**TINY, "epochs": 1, "progress": False}
    with pytest.raises(UserError, match="nps data atari"):
        nps.train("atari-nps", out=tmp_path / "run", **how)
    nps.train("atari-nps", out=tmp_path / "run", data=tmp_path / "mine", **how)
    assert "NPS_DATA" not in os.environ
    _task.cache_clear()
    assert_world_model(nps.load(tmp_path / "run", data=tmp_path / "mine"))
    assert "NPS_DATA" not in os.environ


def test_the_picture_while_training_shows_the_newest_frame(tmp_path, monkeypatch):
    task = task_of(**RARELY)
    with torch.no_grad():
        picture = task.draw(task.make_model(0).eval())["rollouts"]
    (given,) = task.sets["validation"].images(torch.tensor([0]), torch.tensor([0]))
    assert (picture[2:52, 2:52] == given[..., :3].numpy()).all()
    assert_draws(tmp_path, task, "rollouts", monkeypatch)
