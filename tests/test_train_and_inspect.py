"""The example in cells does what it says: it trains for seconds and finds the four operations."""

import os
import re
import subprocess
import sys
from pathlib import Path

from nps.worlds.arithmetic import OPERATIONS

EXAMPLE = Path(__file__).parent.parent / "examples/train_and_inspect.py"


def test_train_and_inspect_finds_a_rule_for_each_operation(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "run of arithmetic, preset arithmetic-sharp, seed 0" in done.stdout
    table = dict(re.findall(r"^([xy] \w+) +\[(.*)\]$", done.stdout, re.MULTILINE))
    uses = {operation: [int(n) for n in row.split(",")] for operation, row in table.items()}
    assert list(uses) == list(OPERATIONS)
    favourites = {max(range(4), key=row.__getitem__) for row in uses.values()}
    assert favourites == {0, 1, 2, 3}
    (without,) = re.findall(r"^tensor\(.*?\)$", done.stdout, re.MULTILINE | re.DOTALL)[-1:]
    assert "0" not in without  # the rule that is disabled
