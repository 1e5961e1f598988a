"""The first signal is remembered, its echo is not a second one, a later one ends the process."""

import os
import signal
import subprocess
import sys

import pytest

from nps.training.signals import Signals


def test_an_echo_of_a_signal_says_nothing_new():
    with Signals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGTERM


def test_a_later_one_exits_at_once():
    program = f"""if True:
        import os
        from nps.training import signals
        signals.SAME_REQUEST = 0.0
        with signals.Signals():
            os.kill(os.getpid(), {signal.SIGTERM})
            print("goes on", flush=True)
            os.kill(os.getpid(), {signal.SIGINT})
            print("never")"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "goes on\n"), done.stderr


def test_in_a_program_a_later_ctrl_c_is_an_exception(monkeypatch):
    monkeypatch.setattr("nps.training.signals.SAME_REQUEST", 0.0)
    before = signal.getsignal(signal.SIGINT)
    with Signals(raises=True) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
