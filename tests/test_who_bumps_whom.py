"""The example that learns collisions from true states: its data are true, and it runs."""

import runpy
from pathlib import Path

import torch

EXAMPLE = runpy.run_path(str(Path(__file__).parent.parent / "examples/who_bumps_whom.py"))


def test_balls_that_meet_nothing_go_straight_on():
    data = EXAMPLE["frames"](20, (4, 6), 0)
    place, velocity = data["state"][..., :2], data["state"][..., 2:4]
    wall = (data["after"].abs() > 3.4).any(-1) | (place.abs() > 3.4).any(-1)
    free = data["present"] & ~data["collided"].any(-1) & ~wall
    assert free.sum() > 100
    torch.testing.assert_close(data["after"][free], (place + velocity)[free], rtol=0, atol=1e-4)
    assert not data["collided"][~data["present"]].any()


def test_every_variant_trains_and_is_tested(capsys):
    EXAMPLE["main"](steps=2, scenes=5)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(EXAMPLE["VARIANTS"])
    told = [line for line in lines if "%" in line]
    assert [line.startswith("rule") for line in lines[2:]].count(True) == len(told)
