"""Precision of the computation: float32, or faster with fewer bits where the hardware has it.

The default is exact float32; torch's own default lets convolutions round to TF32 on CUDA. cuDNN is
set to deterministic algorithms always, so that a run can be resumed bit for bit. The precision
changes results, so it is part of a run's identity.
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
    # No cache of casts: a captured step would keep the weights of the step it was captured in.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
