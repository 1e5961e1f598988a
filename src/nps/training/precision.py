"""How exactly to compute: float32 as it is, or faster with fewer bits where the hardware has it.

The default is exact, which torch's own is not: it lets convolutions round to TF32 on CUDA. And sums
have a fixed order always, so that a run can be resumed bit for bit: cuDNN must be told.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bf16"]


def set_precision(precision: Precision) -> None:
    """`tf32`: products of float32 matrices round their inputs to 10 bits of mantissa (CUDA)."""
    fast = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = fast
    torch.backends.cudnn.allow_tf32 = fast
    torch.backends.cudnn.deterministic = True


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """`bf16`: torch's autocast; weights, optimiser and the scores of choices stay in float32."""
    if precision != "bf16":
        return nullcontext()
    # A captured step must cast anew each time: a cache would keep the first step's weights.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
