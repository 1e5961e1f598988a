"""What the steps eat: the examples of each batch and its noise, on the device before they are due.

The order of an epoch is a function of (seed, epoch) and the noise of a step one of (seed, step).
Nothing of it depends on what happened before, on the other seeds of a stack or on the number of
processes; so a resumed run, a stacked one and a distributed one see what the plain one sees, and
there is no generator to save. The order is drawn on the CPU and is the same on every device; the
noise is drawn where it is used, for a block of steps at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.training import rng

if TYPE_CHECKING:
    from jaxtyping import Float, Int

NOISE_BLOCK = 2**18
"""Uniform numbers drawn at once for a seed. Part of what a seed means: changing it changes runs."""


class Feed:
    """Order and noise of S seeds.

    Args:
        examples: size of the training set.
        batch_size: examples a step.
        noise_size: uniform numbers an example.
        seeds: the seeds.
        device: where the steps run.
        share: (rank, processes): this process's part of each batch.
    """

    def __init__(
        self,
        examples: int,
        batch_size: int,
        noise_size: int,
        seeds: Sequence[int],
        device: torch.device,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.examples, self.batch_size, self.noise_size = examples, batch_size, noise_size
        self.seeds, self.device = list(seeds), device
        self.steps_an_epoch = examples // batch_size
        self.block = max(1, NOISE_BLOCK // max(1, batch_size * noise_size))
        rank, processes = share
        size = batch_size // processes
        self._mine = slice(rank * size, (rank + 1) * size)
        s = len(self.seeds)
        self._order = torch.zeros(s, self.steps_an_epoch, size, dtype=torch.long, device=device)
        self._noise = torch.zeros(s, self.block, size, noise_size, device=device)
        self._epoch = self._block = -1
        self._helper = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[Tensor]] | None = None

    @property
    def nbytes(self) -> int:
        return self._order.nbytes + self._noise.nbytes

    def prepare(self, step: int) -> None:
        """Lay out what the step (counted from 0) needs, if it is not there yet."""
        if step // self.steps_an_epoch != self._epoch:
            self._epoch = step // self.steps_an_epoch
            orders = self._orders_of(self._epoch)
            if self.device.type == "cuda":  # so that the copy waits for no one
                orders = orders.pin_memory()
            self._order.copy_(orders, non_blocking=True)
        if step // self.block != self._block:
            self._block = step // self.block
            for row, seed in zip(self._noise, self.seeds, strict=True):
                row.copy_(self.noise(seed, self._block)[:, self._mine])

    def _orders_of(self, epoch: int) -> Int[Tensor, "S steps B"]:
        """The orders of all seeds. Those of the next epoch are drawn while this one runs."""
        known, orders = self._ahead if self._ahead else (None, None)
        drawn = orders.result() if orders and known == epoch else self._draw_orders(epoch)
        if len(self.seeds) > 1:  # one seed's order takes less time than handing it over
            self._ahead = (epoch + 1, self._helper.submit(self._draw_orders, epoch + 1))
        return drawn

    def _draw_orders(self, epoch: int) -> Int[Tensor, "S steps B"]:
        # On the CPU alone: a call to CUDA from another thread would spoil a capture.
        return torch.stack([self.order(s, epoch)[:, self._mine] for s in self.seeds])

    def order(self, seed: int, epoch: int) -> Int[Tensor, "steps B"]:
        """The batches of an epoch: a permutation without the incomplete last batch."""
        order = torch.randperm(self.examples, generator=rng.generator("cpu", seed, "order", epoch))
        return order[: self.steps_an_epoch * self.batch_size].view(-1, self.batch_size)

    def noise(self, seed: int, block: int) -> Float[Tensor, "block B noise"]:
        draw = rng.generator(self.device, seed, "noise", block)
        shape = (self.block, self.batch_size, self.noise_size)
        return torch.rand(shape, generator=draw, device=self.device)

    def batch(
        self, step: Int[Tensor, "1"]
    ) -> tuple[Int[Tensor, "S B"], Float[Tensor, "S B noise"]]:
        """Indices and noise of a step, counted on the device; `prepare` came before."""
        index = self._order.index_select(1, step % self.steps_an_epoch).squeeze(1)
        noise = self._noise.index_select(1, step % self.block).squeeze(1)
        return index, noise
