"""What a table says of the time that training took."""

import json

import pytest

from nps.experiments.results import read_result, wall_time


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
    run = tmp_path / "a/seed-0"
    run.mkdir(parents=True)
    saved = {"schema": 1, "experiment": "mnist", "preset": "a", "seed": 0, "config": {}}
    contents = {"config": saved, "test": {}, "provenance": sittings}
    for name, content in contents.items():
        (run / f"{name}.json").write_text(json.dumps(content))
    assert wall_time([read_result(run)]) == told
