"""Plain progress: a few lines for programs without a terminal, however long they train."""

from nps.training import progress
from nps.training.progress import PlainProgress


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


def lines_of(capsys, monkeypatch, total, seconds_a_step, steps_an_epoch, done=0):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
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


def test_a_line_a_minute_of_a_long_one_also_inside_an_epoch(capsys, monkeypatch):
    lines = lines_of(capsys, monkeypatch, total=100, seconds_a_step=70, steps_an_epoch=50)
    assert lines[0] == "run: step 1 of 100 (about 1 h 55 min left)"
    assert lines[-1] == "run: step 100 of 100, loss 0.01 (1 h 56 min)"
    assert 100 <= len(lines) <= 102


def test_the_time_left_of_a_resumed_training_is_that_of_its_own_steps(capsys, monkeypatch):
    lines = lines_of(capsys, monkeypatch, total=100, seconds_a_step=1, steps_an_epoch=10, done=80)
    assert lines[0] == "run: step 90 of 100, loss 0.01111 (about 10 s left)"
