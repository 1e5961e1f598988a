"""Freed memory stays: the second use of a large block costs no page faults."""

import os
import subprocess
import sys

import pytest

# glibc is made to return everything at once, which it may do anyway.
GENEROUS = {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}

SCRIPT = """
import resource, sys, torch
from nps.allocator import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(77)

def use():
    blocks = [torch.ones(6 * 2**20) for _ in range(4)]  # 24 MB each

for _ in range(5):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    command, environment = [sys.executable, "-c", SCRIPT, how], {**os.environ, **GENEROUS}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 77:
        pytest.skip("the C library is not glibc")
    return int(done.stdout)


def test_large_blocks_are_used_again():
    assert faults("keep") < 100
    assert faults("leave") > 1000  # else this test tells nothing
