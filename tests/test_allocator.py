"""Freed memory stays: the second use of a large block costs no page faults."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from nps.allocator import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    sys.exit(77)

def use():
    blocks = [torch.ones(6 * 2**20) for _ in range(4)]  # 24 MB each: more than glibc would keep

for _ in range(5):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("the C library is not glibc")
    return int(done.stdout)


def test_large_blocks_are_used_again():
    assert faults("keep") < 100
    assert faults("leave") > 1000  # else this test tells nothing
