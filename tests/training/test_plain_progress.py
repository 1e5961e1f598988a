"""Plain progress: a few lines for programs without a terminal, however long they train."""

from nps.training import plain_progress
from nps.training.plain_progress import PlainProgress


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


def lines_of(capsys, monkeypatch, total, seconds_a_step, steps_an_epoch, done=0):
    clock = Clock()
    monkeypatch.setattr(plain_progress, "time", clock)
    with PlainProgress("run", total, done) as line:
        for step in range(done + 1, total + 1):
            clock.now += seconds_a_step
            line.update(step)
            if step % steps_an_epoch == 0:
                line.update(step, {"loss": 1.0 / step})
    return capsys.readouterr().out.splitlines()


def test_about_ten_lines_of_a_short_training(capsys, monkeypatch):
    lines = lines_of(capsys, monkeypatch, total=1000, seconds_a_step=0.01, steps_an_epoch=10)
    assert len(lines) == 10
    assert lines[0] == "run: step 100 of 1000, loss 0.01 (about 9 s left)"
    assert lines[-1] == "run: step 1000 of 1000, loss 0.001 (10 s)"


def test_a_long_one_shows_life_early_and_then_a_line_a_minute(capsys, monkeypatch):
    lines = lines_of(capsys, monkeypatch, total=7200, seconds_a_step=1, steps_an_epoch=3600)
    assert lines[0] == "run: step 5 of 7200 (about 1 h 59 min left)"
    steps = [int(line.split()[2]) for line in lines]
    assert steps[:7] == [5, 15, 35, 75, 135, 195, 255]
    assert 120 < len(lines) < 130
    assert lines[-1] == "run: step 7200 of 7200, loss 0.0001389 (2 h 0 min)"


def test_the_time_left_of_a_resumed_training_is_that_of_its_own_steps(capsys, monkeypatch):
    lines = lines_of(capsys, monkeypatch, total=100, seconds_a_step=1, steps_an_epoch=10, done=80)
    assert lines[0] == "run: step 85 of 100 (about 15 s left)"
