"""Shared settings: one torch thread, since the tests' tensors are tiny, no terminal colours, and
assertions of helpers that say what they compared."""

import os

import pytest
import torch

pytest.register_assert_rewrite("tests.gradients")  # before it is imported
torch.set_num_threads(1)
os.environ.setdefault("COLUMNS", "200")
os.environ["NO_COLOR"] = "1"
