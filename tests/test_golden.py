"""Runs of released versions must load for ever and give the numbers they gave."""

import json
from pathlib import Path

import pytest
import torch

import nps

VERSIONS = sorted(path for path in (Path(__file__).parent / "golden").iterdir())


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_old_runs_load_and_compute_the_same(folder):
    expected = json.loads((folder / "expected.json").read_text())
    model = nps.load(folder).model
    with torch.no_grad():
        predicted, trace = model(
            torch.tensor(expected["before"]), torch.tensor(expected["after"]), return_trace=True
        )
    torch.testing.assert_close(predicted, torch.tensor(expected["predicted"]))
    assert trace.rule.tolist() == expected["rule"]
    assert trace.context.tolist() == expected["context"]
