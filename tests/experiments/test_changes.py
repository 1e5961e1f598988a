"""What a report says of where its numbers come from: commands, and what differs from presets."""

from nps.experiments import EXPERIMENTS, changes
from nps.experiments.results import read_run
from nps.training.config import to_json
from tests.experiments.runs import session, write_run

BLOCKS, ATARI = EXPERIMENTS["blocks"], EXPERIMENTS["atari"]


def result_of(folder, preset, experiment=BLOCKS, **config):
    usual = to_json(experiment.presets[preset].config)
    run = {"config": {**usual, **config}, "sessions": [session(0, 100, 12.0)], "test": {}}
    return read_run(write_run(folder / "seed-0", experiment.name, preset, **run))


def commands(experiment, *runs):
    _, lines = changes.provenance([[run] for run in runs], experiment)
    return [line.partition(":")[0] for line in lines.lines[: len(runs)]]


def test_commands_give_the_runs_that_were_tested(tmp_path):
    own_episodes = EXPERIMENTS["world-model"]
    as_it_is = result_of(tmp_path / "blocks-nps", "blocks-nps")
    changed = result_of(tmp_path / "mine", "blocks-nps", epochs=3, stay=False)
    game = result_of(tmp_path / "game", "atari-nps", ATARI, epochs=3)
    own = result_of(tmp_path / "own", "world-model", own_episodes, episodes="my file.h5")
    assert commands(BLOCKS, as_it_is, changed) == [
        "nps train blocks-nps --precision=tf32",
        "nps train blocks-nps --epochs=3 --no-stay --precision=tf32",
    ]
    assert commands(ATARI, game) == ["nps train atari-nps --game=pong --epochs=3 --precision=tf32"]
    assert commands(own_episodes, own) == [
        "nps train world-model '--data=my file.h5' --precision=tf32"
    ]


def test_provenance_names_seeds_times_and_machines(tmp_path):
    runs = [result_of(tmp_path / str(s), "blocks-nps") for s in range(2)]
    _, lines = changes.provenance([runs], BLOCKS)
    assert lines.lines[0].endswith(": 2 seeds (0 to 0), 100 epochs, 12 s a run")
    assert lines.lines[1:] == ["device: cpu", "torch: 2", "commit: c"]


def test_a_variant_named_after_a_preset_with_its_settings_is_that_preset(tmp_path):
    as_aligned = {"transition": "gnn", "negatives": "time-aligned"}
    named = result_of(tmp_path / "atari-gnn-aligned", "atari-nps", ATARI, **as_aligned)
    other = result_of(tmp_path / "x/atari-gnn-aligned", "atari-nps", ATARI, transition="gnn")
    command = changes.command([named], ATARI)
    assert command == "nps train atari-gnn-aligned --game=pong --precision=tf32"
    assert changes.notice([[named]], ATARI) == []
    assert "atari-nps --game=pong --transition=gnn" in changes.command([other], ATARI)


def test_a_preset_that_no_longer_exists_keeps_its_name(tmp_path):
    run = write_run(tmp_path / "a/seed-0", "mnist", "mnist-old", config={"epochs": 2}, test={})
    assert changes.command([read_run(run)], EXPERIMENTS["mnist"]) == "nps train mnist-old"


def test_reports_begin_with_what_was_changed(tmp_path):
    quick = BLOCKS.quick["shapes-gnn"]
    one, two = (
        [result_of(tmp_path / preset, preset, **quick)] for preset in ("shapes-gnn", "blocks-gnn")
    )
    whole = [result_of(tmp_path / "whole", "blocks-gnn")]
    longer = [result_of(tmp_path / "longer", "blocks-gnn", epochs=101)]
    other_game = [result_of(tmp_path / "game", "atari-nps", ATARI, game="qbert")]
    assert changes.notice([whole], BLOCKS) == changes.notice([other_game], ATARI) == []
    (short,) = changes.notice([one, two], BLOCKS)
    assert short.text.startswith("This is the quick version: epochs 20 instead of 100, batch_size ")
    assert "batch_size 256 instead of 1024 or 512, " in short.text
    assert "(in " not in short.text
    (some,) = changes.notice([whole, longer], BLOCKS)
    start = "Some settings differ from the presets: epochs 101 instead of 100 (in blocks-gnn)."
    assert some.text.startswith(start)
