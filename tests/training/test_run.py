"""Run folders: one writer, one config, readable errors."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap

import pytest

from nps.errors import RunFailed, UserError
from nps.training.run import Run, find_checkpoint, identity
from tests.training.tools import CONFIG, STEPS, go

IDENTITY = {"experiment": "arithmetic", "preset": "p", "seed": 0, "config": {"rules": 4}}


def test_claim_then_same_then_other(tmp_path):
    run = Run(tmp_path / "run")
    with run.writing():
        run.claim(IDENTITY)
        run.claim(IDENTITY)
        with pytest.raises(UserError, match=r"rules: 4 -> 6.*seed: 0 -> 1"):
            run.claim({**IDENTITY, "seed": 1, "config": {"rules": 6}})
        assert run.read()["config"] == {"rules": 4}


def test_fresh_starts_over_and_touches_nothing_else(tmp_path):
    run = Run(tmp_path / "run")
    with run.writing():
        run.claim(IDENTITY)
        (run.folder / "metrics.jsonl").write_text("{}\n")
        (run.folder / "my-notes.txt").write_text("keep me")
        run.claim({**IDENTITY, "config": {"rules": 6}}, fresh=True)
    assert run.read()["config"] == {"rules": 6}
    assert not run.metrics_path.exists()
    assert (run.folder / "my-notes.txt").read_text() == "keep me"


def test_second_process_is_refused(tmp_path):
    script = f"""
        from nps.training.run import Run
        from nps.errors import UserError
        try:
            with Run({str(tmp_path / "run")!r}).writing():
                print("entered")
        except UserError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with Run(tmp_path / "run").writing():
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "in use by another process (pid" in output
    free = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert free == "entered\n"


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailed, match="cannot write to"), Run(tmp_path / "file/run").writing():
        pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "it has no config.json"),
        ("{", "damaged, not JSON"),
        ("{}", "schema, experiment, preset, seed, config are missing"),
        (json.dumps({"schema": 7, **IDENTITY}), "schema 7, this nps reads up to 1: update nps"),
    ],
)
def test_broken_config(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=message) as error:
        Run(tmp_path).read()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("seeds", "words", "first"),
    [((3, 1), "1, 3", 1), ((0, 1, 2, 3), "0 to 3", 0), ((7,), "7", 7)],
)
def test_a_folder_of_seeds_names_them(tmp_path, seeds, words, first):
    for seed in seeds:
        run = Run(tmp_path / f"seed-{seed}")
        with run.writing():
            run.claim({**IDENTITY, "seed": seed})
    one = tmp_path / f"seed-{first}"
    with pytest.raises(UserError, match=f"holds runs of seeds {words}; choose one, such as {one}$"):
        find_checkpoint(tmp_path)


def test_missing_run_and_empty_run(tmp_path):
    with pytest.raises(UserError, match="no such run folder"):
        find_checkpoint(tmp_path / "nothing")
    run = Run(tmp_path / "run")
    with run.writing():
        run.claim(IDENTITY)
    with pytest.raises(UserError, match="no whole checkpoint"):
        find_checkpoint(run.folder)


def test_torn_last_line_of_the_log_is_left_out_and_a_torn_middle_is_reported(tmp_path):
    run = Run(tmp_path)
    run.metrics_path.write_text('{"epoch": 1, "step": 1}\n{"ep')
    assert run.metrics() == [{"epoch": 1, "step": 1}]
    run.metrics_path.write_text('{"ep\n{"epoch": 1, "step": 1}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl:1"):
        run.metrics()


def test_complete_is_judged_by_the_files(tmp_path):
    run = Run(tmp_path / "run")
    wanted = identity("arithmetic", "p", 0, CONFIG)
    assert not run.complete(wanted)
    with run.writing():
        run.claim(wanted)
    assert not run.complete(wanted)
    go(run.folder, stop_at=STEPS - 1)
    assert not run.complete(wanted)
    go(run.folder)
    assert run.complete(wanted)
    assert not run.complete({**wanted, "seed": 1})
    assert not run.complete(identity("arithmetic", "p", 0, dataclasses.replace(CONFIG, epochs=3)))


@pytest.mark.parametrize("name", ["metrics.jsonl", "manifest.json", "model.safetensors"])
def test_a_run_with_a_damaged_file_is_not_complete(tmp_path, name):
    run = Run(tmp_path / "run")
    wanted = identity("arithmetic", "p", 0, CONFIG)
    with run.writing():
        run.claim(wanted)
    go(run.folder)
    path = max(run.folder.rglob(name))
    path.write_bytes(path.read_bytes()[:-2])
    assert not run.complete(wanted)


def test_the_lock_goes_with_the_writer_though_a_forked_child_lives(tmp_path):
    """A child that is forked while the run is written has the open lock file, too."""
    go_on, wait = os.pipe()
    with Run(tmp_path).writing():
        child = os.fork()
        if child == 0:
            os.close(wait)
            os.read(go_on, 1)  # until the parent closes its end
            os._exit(0)
    try:
        with Run(tmp_path).writing():
            pass
    finally:
        os.close(wait)
        os.close(go_on)
        os.waitpid(child, 0)
