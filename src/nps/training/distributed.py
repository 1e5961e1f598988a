"""Several processes, one training: `torchrun --nproc-per-node N -m nps train …`.

Each process takes its share of every batch; gradients and logged scalars are averaged in one
collective each step. The parameters of a model lie in one vector (see `stack.py`), so the buckets
and hooks of `DistributedDataParallel` are not needed, and the collective can be part of a captured
step. Process 0 validates, logs and saves. Without torchrun everything here is a no-op.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from nps.errors import UserError

if TYPE_CHECKING:
    from jaxtyping import Float


def started_by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


@contextmanager
def processes(device: torch.device) -> Iterator[torch.device]:
    """Join the group that torchrun started, if any; yields the device of this process."""
    if not started_by_torchrun():
        yield device
        return
    if device.type == "cuda":
        local = int(os.environ["LOCAL_RANK"])
        if local >= torch.cuda.device_count():
            raise UserError(
                f"torchrun started process {local} on this machine, which has "
                f"{torch.cuda.device_count()} CUDA devices: use at most one process per device"
            )
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def active() -> bool:
    return dist.is_available() and dist.is_initialized()


def share() -> tuple[int, int]:
    """(rank, number of processes)."""
    return (dist.get_rank(), dist.get_world_size()) if active() else (0, 1)


def require_even_shares(batch_size: int) -> None:
    _, count = share()
    if batch_size % count:
        raise UserError(
            f"batch_size: got {batch_size}, expected a multiple of the {count} processes"
        )


def is_first() -> bool:
    return share()[0] == 0


def wait_for_all() -> None:
    if active():
        dist.barrier()


def average(
    gradient: Float[Tensor, "P"], scalars: dict[str, Float[Tensor, "S"]]
) -> tuple[Float[Tensor, "P"], dict[str, Float[Tensor, "S"]]]:
    """The mean over processes of a gradient and of logged scalars."""
    if not active():
        return gradient, scalars
    together = torch.cat([gradient, *(x.to(gradient) for x in scalars.values())])
    dist.all_reduce(together)
    together /= dist.get_world_size()
    sizes = [len(gradient), *(len(x) for x in scalars.values())]
    gradient, *means = together.split(sizes)
    return gradient, dict(zip(scalars, means, strict=True))


class _Sum(torch.autograd.Function):
    """The sum over processes; the gradient is summed over processes too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def batch_mean(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The mean over processes, with its gradient: for losses on a statistic of the whole batch.

    Args:
        x: the mean over this process's share of the batch.
    """
    if not active():
        return x
    total: Tensor = _Sum.apply(x)
    return total / dist.get_world_size()


def agree(number: int | None, device: torch.device) -> int | None:
    """The largest number that any process has, or None if none has one."""
    if not active():
        return number
    largest = torch.tensor([number or 0], device=device)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return int(largest.item()) or None
