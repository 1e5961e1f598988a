"""The controls of the world models of blocks, and training that starts from trained models."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

import nps
from nps.experiments.blocks import PRESETS, BlocksTask, Config
from nps.experiments.blocks.presets import CONTROLS
from nps.experiments.blocks.report import CONTROLS as ROWS
from nps.experiments.blocks.report import LABELS, SHORT
from nps.experiments.world_models.report import METRICS
from nps.training import checkpoint
from nps.training.config import to_json
from nps.training.run import Run
from nps.worlds.blocks import action_count
from tests.experiments.runs import session, write_run
from tests.experiments.test_blocks import CPU, TINY, task_of
from tests.test_cli import call
from tests.training.tools import files, go

FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in {**TINY, "epochs": 1}.items()]


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> dict[str, Path]:
    """Two runs of two steps with negatives from the episode, seeds 0 and 1, of either model."""
    folders = {}
    for name in ("blocks-nps-episode-first", "blocks-gnn-episode-first"):
        folders[name] = tmp_path_factory.mktemp("starts") / name
        call("train", name, f"--out={folders[name]}", "--seeds=2", *FLAGS)
    return folders


@pytest.fixture(scope="module")
def first(starts) -> Path:
    return starts["blocks-nps-episode-first"]


@pytest.mark.parametrize("name", CONTROLS)
def test_two_steps_of_every_control(tmp_path, starts, name):
    before = CONTROLS[name].starts_from
    start = [] if before is None else [f"--start-from={starts[before]}"]
    call("train", name, f"--out={tmp_path}", *start, *FLAGS)
    assert [row["step"] for row in Run(tmp_path).metrics()] == [2]


def test_two_steps_with_all_that_the_text_states(tmp_path):
    """Its encoder, selection and directions: the command in docs/notes/blocks.md."""
    flags = ["--selection=linear", "--no-stay", f"--out={tmp_path}", *FLAGS]
    call("train", "blocks-slots-nps", *flags)
    model = nps.load(tmp_path).model
    assert model.transition.features is None
    assert model.actions.dim == 20


def test_every_control_is_a_row_of_the_long_tables(tmp_path):
    """Those in float32 are runs of the main presets in a folder of their own."""
    for name in ROWS:
        preset = name.removesuffix("-float32")
        assert preset in PRESETS
        test = {"transition_parameters": 12, "moves_free": 0.5} | dict.fromkeys(METRICS, 0.25)
        test |= {"identity_h1_10": 0.5, "h1_strict_10": 0.25}
        config = to_json(PRESETS[preset].config)
        folder = tmp_path / name / "seed-0"
        write_run(folder, "blocks", preset, 0, config, test, [session(0, 1, 1.0)], [])
    assert set(ROWS) == {*CONTROLS, "blocks-nps-float32", "blocks-gnn-float32"}
    document = tmp_path / "page.md"
    ends = "\n<!-- end -->\n"
    document.write_text(f"<!-- table: blocks -->{ends}<!-- table: blocks moves -->{ends}")
    call("table", str(tmp_path), "--into", str(document))
    shown = [line.split(" | ")[0] for line in document.read_text().splitlines()]
    for label in ROWS.values():
        assert shown.count(f"| {label}") == 2


def test_a_control_differs_from_the_main_comparison_as_it_says():
    main = {"nps": PRESETS["blocks-nps"].config, "gnn": PRESETS["blocks-gnn"].config}

    def changed(name: str) -> dict[str, object]:
        ours, theirs = (dataclasses.asdict(c) for c in (CONTROLS[name].config, main[name[-3:]]))
        return {field: value for field, value in ours.items() if value != theirs[field]}

    for mode in ("observed", "fixed-unobserved"):
        for model in main:
            assert changed(f"blocks-{mode}-{model}") == {"mode": mode}
    halves = {
        "episode-first": {"negatives": "episode", "epochs": 50},
        "batch-after": {"epochs": 50},
    }
    for model, config in main.items():
        for name, changes in {**halves, "four-directions": {"stay": False}}.items():
            expected = dataclasses.replace(config, **changes)
            assert CONTROLS[f"blocks-{model}-{name}"].config == expected
    config = CONTROLS["blocks-nps-four-directions"].config
    assert action_count(config.objects, config.stay) == 20


def test_nothing_is_called_the_papers_setting():
    """No preset has the text's selection, four directions and encoder at once."""
    for preset in PRESETS.values():
        config = preset.config
        text = config.selection == "linear", not config.stay, config.extractor == "slot-attention"
        assert not all(text)
        assert "paper's setting" not in preset.about
    assert not any("setting" in label for label in (*LABELS.values(), *SHORT.values()))


def test_a_start_is_the_best_model_of_the_same_seed(first):
    task = task_of(extractor="medium", start_from=str(first))
    for seed in (0, 1):
        found = checkpoint.newest(Run(first / f"seed-{seed}").checkpoints, print)
        model = task.make_model(seed).state_dict()
        for name, tensor in found.tensors["best"].items():
            assert torch.equal(model[name], tensor), name


def test_seeds_stacked_and_alone_start_from_their_own(tmp_path, first):
    start = [f"--start-from={first}", *FLAGS]
    call("train", "blocks-nps-batch-after", f"--out={tmp_path / 'stack'}", "--seeds=2", *start)
    call("train", "blocks-nps-batch-after", f"--out={tmp_path / 'alone'}", "--seed=1", *start)
    stacked, alone = nps.load(tmp_path / "stack", seed=1), nps.load(tmp_path / "alone")
    for (name, ours), theirs in zip(
        stacked.model.state_dict().items(), alone.model.state_dict().values(), strict=True
    ):
        error = (ours.double() - theirs.double()).norm()
        assert error <= 1e-3 * theirs.double().norm() + 1e-5, name


def test_resume_is_exact_and_needs_no_start_at_the_end(tmp_path, first):
    start = tmp_path / "start"
    shutil.copytree(first, start)
    config = dataclasses.replace(
        PRESETS["blocks-nps-batch-after"].config, **{**TINY, "epochs": 2}, start_from=str(start)
    )
    for stop in (None, 1, 3, None):
        folder = tmp_path / ("whole" if not (tmp_path / "whole").exists() else "parts")
        task = BlocksTask(config, CPU)
        task.said = []
        go(folder, stop_at=stop, task=task, config=config)
    whole, parts = files(tmp_path / "whole"), files(tmp_path / "parts")
    assert parts["metrics.jsonl"] == whole["metrics.jsonl"]
    for name in ("model", "best", "optimizer"):
        path = f"checkpoints/step-00000004/{name}.safetensors"
        assert parts[path] == whole[path], name
    assert BlocksTask(config.trained(), CPU).config.start_from is None


def test_a_trained_run_loads_without_its_start(tmp_path, first):
    shutil.copytree(first / "seed-0", tmp_path / "start")
    out = tmp_path / "after"
    start = f"--start-from={tmp_path / 'start'}"
    call("train", "blocks-nps-batch-after", f"--out={out}", start, *FLAGS)
    shutil.rmtree(tmp_path / "start")
    assert nps.load(out).model.encode(torch.zeros(1, 50, 50, 3)).shape == (1, 5, 64)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "expected --start-from, a folder of blocks-nps-episode-first runs"),
        (["--start-from=FIRST", "--seed=7"], "seed-7: no such run folder"),
        (["--start-from=FIRST", "--slot-dim=32"], "has slot_dim 64, expected 32"),
        (["--start-from=FIRST", "--no-stay"], "has stay True, expected False"),
    ],
)
def test_a_start_that_cannot_be_is_one_line(tmp_path, first, flags, message):
    given = [flag.replace("FIRST", str(first)) for flag in flags]
    command = ["train", "blocks-nps-batch-after", f"--out={tmp_path / 'out'}", *FLAGS, *given]
    _, err = call(*command, code=2)
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_empty_start_is_refused():
    with pytest.raises(ValueError, match="start_from: got an empty path, expected a folder"):
        Config(start_from=" ")


def test_a_run_from_before_starts_is_complete(tmp_path):
    """Runs that were saved when blocks had no field `start_from`."""
    command = ["train", "blocks-fixed-gnn", f"--out={tmp_path}", *FLAGS]
    call(*command)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    del saved["config"]["start_from"]
    path.write_text(json.dumps(saved))
    _, err = call(*command)
    assert "complete" in err
