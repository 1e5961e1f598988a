"""Shared settings: one torch thread, since the tests' tensors are tiny, and no terminal colours."""

import os

import torch

torch.set_num_threads(1)
os.environ.setdefault("COLUMNS", "200")
os.environ["NO_COLOR"] = "1"
