"""The code of the guide to the layers, and of the README's swap, runs as it is written."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/guides/model.md", "README.md"])
def test_python_code_runs(page):
    torch.manual_seed(0)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.M)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
