"""What a report says of where its numbers come from: time, commands, what was changed."""

import json

import pytest

from nps.experiments import EXPERIMENTS, changes
from nps.experiments.results import provenance, read_result, wall_time
from nps.training.config import to_json


def sitting(first, last, seconds, seeds=1):
    return {"from_step": first, "to_step": last, "wall_seconds": seconds, "seeds_in_stack": seeds}


@pytest.mark.parametrize(
    ("sittings", "told"),
    [
        ([sitting(0, 100, 12.0)], "12 s a run"),
        ([sitting(0, 100, 12.0, seeds=5)], "12 s for 5 seeds"),
        ([sitting(0, 60, 12.0), sitting(60, 100, 8.0)], "20 s a run"),
        ([sitting(0, 60, 12.0), sitting(50, 100, 8.0)], "20 s a run"),  # went on from a save
        ([sitting(40, 100, 12.0)], "over 12 s a run"),  # the first was killed
        ([sitting(0, 60, 12.0), sitting(70, 100, 8.0, seeds=5)], "over 20 s for 5 seeds"),
    ],
)
def test_a_time_that_is_not_all_known_is_told_as_such(tmp_path, sittings, told):
    run = write(tmp_path / "a", "mnist", "a", {}, sittings)
    assert wall_time([read_result(run)]) == told


def write(folder, experiment, preset, config, sittings):
    """The logs of a tested run."""
    run = folder / "seed-0"
    run.mkdir(parents=True)
    saved = {"schema": 1, "experiment": experiment, "preset": preset, "seed": 0, "config": config}
    contents = {"config": saved, "test": {}, "provenance": sittings}
    for name, content in contents.items():
        (run / f"{name}.json").write_text(json.dumps(content))
    return run


def result_of(folder, preset, experiment="blocks", **config):
    usual = to_json(EXPERIMENTS[experiment].presets[preset].config)
    where = {"device": "cpu", "torch": "2", "commit": "c", "precision": "tf32"}
    sittings = [{**sitting(0, 100, 12.0), **where}]
    return read_result(write(folder, experiment, preset, {**usual, **config}, sittings))


def test_commands_give_the_runs_that_were_tested(tmp_path):
    as_it_is = result_of(tmp_path / "blocks-nps", "blocks-nps")
    changed = result_of(tmp_path / "mine", "blocks-nps", epochs=3, stay=False)
    game = result_of(tmp_path / "game", "atari-nps", "atari", epochs=3)
    own = result_of(tmp_path / "own", "world-model", "world-model", episodes="my file.h5")
    _, lines = provenance([[as_it_is], [changed], [game], [own]])
    assert [line.partition(":")[0] for line in lines.lines[:4]] == [
        "nps train blocks-nps --precision=tf32",
        "nps train blocks-nps --epochs=3 --no-stay --precision=tf32",
        "nps train atari-nps --game=pong --epochs=3 --precision=tf32",
        "nps train world-model '--data=my file.h5' --precision=tf32",
    ]


def test_a_variant_that_got_a_name_is_told_by_it(tmp_path):
    as_aligned = {"transition": "gnn", "negatives": "time-aligned"}
    named = result_of(tmp_path / "atari-gnn-aligned", "atari-nps", "atari", **as_aligned)
    other = result_of(tmp_path / "x/atari-gnn-aligned", "atari-nps", "atari", transition="gnn")
    assert changes.command([named]) == "nps train atari-gnn-aligned --game=pong --precision=tf32"
    assert changes.told([[named]]) == []
    assert "atari-nps --game=pong --transition=gnn" in changes.command([other])


def test_a_preset_that_is_gone_is_told_by_its_name(tmp_path):
    run = write(tmp_path / "a", "mnist", "mnist-old", {"epochs": 2}, [sitting(0, 1, 1.0)])
    assert changes.command([read_result(run)]) == "nps train mnist-old"


def test_reports_begin_with_what_was_changed(tmp_path):
    quick = EXPERIMENTS["blocks"].quick["shapes-gnn"]
    one, two = (
        [result_of(tmp_path / preset, preset, **quick)] for preset in ("shapes-gnn", "blocks-gnn")
    )
    whole = [result_of(tmp_path / "whole", "blocks-gnn")]
    longer = [result_of(tmp_path / "longer", "blocks-gnn", epochs=101)]
    other_game = [result_of(tmp_path / "game", "atari-nps", "atari", game="qbert")]
    assert changes.told([whole]) == changes.told([other_game]) == []
    (short,) = changes.told([one, two])
    assert short.text.startswith("This is the short version: epochs 20 instead of 100, batch_size ")
    assert "batch_size 256 instead of 1024 or 512, " in short.text
    assert "(in " not in short.text
    (some,) = changes.told([whole, longer])
    start = "Not the presets as they are: epochs 101 instead of 100 (in blocks-gnn)."
    assert some.text.startswith(start)
