"""Global state that training changes, restored when a program calls it.

The `nps` command owns its process. A notebook or script does not expect a call to reseed its random
numbers, or to change its number of threads or the precision of its convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def isolated(device: torch.device, threads: int | None = None) -> Iterator[None]:
    """Inside, torch has the global settings of a new process; afterwards, the previous ones.

    Args:
        device: where to train; the random generators of the CPU and of this device are restored.
        threads: number of torch threads inside; None keeps it.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    dtype, threads_before = torch.get_default_dtype(), torch.get_num_threads()
    with ExitStack() as inside:
        inside.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        inside.enter_context(torch.inference_mode(False))
        inside.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            inside.enter_context(torch.device("cpu"))
        try:
            torch.set_default_dtype(torch.float32)
            if threads is not None:
                torch.set_num_threads(threads)
            yield
        finally:
            torch.set_default_dtype(dtype)
            if torch.get_num_threads() != threads_before:
                torch.set_num_threads(threads_before)
            matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = flags
