"""What each training step works on: the indices of its batch, its noise, its streamed examples.

The order of an epoch is a function of (seed, epoch) and the noise of a step one of (seed, step).
Neither depends on what came before, on the other seeds of a stack or on the number of
processes, so resumed, stacked and distributed runs see what a single one sees, and there is no
generator to save. The order is drawn on the CPU and is the same on every device; the noise is drawn
where it is used, for a block of steps at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.threads import Background
from nps.training import rng
from nps.training.data import Examples, Source, Stream, Streamed

if TYPE_CHECKING:
    from jaxtyping import Float, Int

NOISE_BLOCK = 2**18
"""Uniform numbers drawn at once for a seed. Part of what a seed means: changing it changes runs."""


class Batches:
    """The batches of S seeds.

    Args:
        source: the training set.
        batch_size: examples per step.
        noise_size: uniform numbers per example.
        seeds: the seeds.
        device: where the steps run.
        share: (rank, processes), which determines this process's part of each batch.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        noise_size: int,
        seeds: Sequence[int],
        device: torch.device,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.source, self.batch_size, self.noise_size = source, batch_size, noise_size
        self.seeds, self.device = list(seeds), device
        self.steps_per_epoch = source.size // batch_size
        self.block = max(1, NOISE_BLOCK // max(1, batch_size * noise_size))
        self._rank, processes = share
        size = batch_size // processes
        self._mine = slice(self._rank * size, (self._rank + 1) * size)
        s, steps = len(self.seeds), self.steps_per_epoch
        self._order = torch.zeros(s, steps, size, dtype=torch.long, device=device)
        self._noise = torch.zeros(s, self.block, size, noise_size, device=device)
        self._epoch = self._block = -1
        self._worker = Background()
        self._next_orders: tuple[int, Future[Tensor]] | None = None
        self._stream_orders: dict[int, Tensor] = {}
        self._stream: Stream | None = None
        if isinstance(source, Streamed):
            self._stream = Stream(source.read, self._indices, device)

    @property
    def nbytes(self) -> int:
        """Memory on the device."""
        streamed = self._stream.buffers.values() if self._stream else ()
        return self._order.nbytes + self._noise.nbytes + sum(x.nbytes for x in streamed)

    # -- on the host, before a step -----------------------------------------------------------

    def prepare(self, step: int) -> None:
        """Put in place what the step (counted from 0) needs, its random numbers included."""
        epoch, block = step // self.steps_per_epoch, step // self.block
        if epoch != self._epoch:
            self._epoch = epoch
            orders = self._take_orders(epoch)
            if self.device.type == "cuda":  # the copy must not wait for the steps under way
                orders = orders.pin_memory()
            self._order.copy_(orders, non_blocking=True)
        if block != self._block:
            self._block = block
            for row, seed in zip(self._noise, self.seeds, strict=True):
                row.copy_(self.noise(seed, block)[:, self._mine])
        if self._stream is not None:
            self._stream.fetch(step)
        # Whatever a model draws from torch's own generators is a function of seed and step.
        rng.seed_global(self.device, self.seeds[0], "step", step, self._rank)

    def close(self) -> None:
        """End the worker threads."""
        self._worker.close()
        if self._stream is not None:
            self._stream.close()

    def order(self, seed: int, epoch: int) -> Int[Tensor, "steps B"]:
        """The batches of an epoch: a permutation without the incomplete last batch."""
        draw = rng.generator("cpu", seed, "order", epoch)
        order = torch.randperm(self.source.size, generator=draw)
        return order[: self.steps_per_epoch * self.batch_size].view(-1, self.batch_size)

    def noise(self, seed: int, block: int) -> Float[Tensor, "block B noise"]:
        draw = rng.generator(self.device, seed, "noise", block)
        shape = (self.block, self.batch_size, self.noise_size)
        return torch.rand(shape, generator=draw, device=self.device)

    def _take_orders(self, epoch: int) -> Int[Tensor, "S steps B"]:
        """The orders of all seeds. Those of the next epoch are drawn while this one runs."""
        known, orders = self._next_orders if self._next_orders else (None, None)
        drawn = orders.result() if orders and known == epoch else self._draw_orders(epoch)
        if len(self.seeds) > 1:  # for one seed, drawing takes less time than the thread
            self._next_orders = (epoch + 1, self._worker.submit(self._draw_orders, epoch + 1))
        return drawn

    def _draw_orders(self, epoch: int) -> Int[Tensor, "S steps B"]:
        # On the CPU alone: calling CUDA from another thread would spoil a capture.
        return torch.stack([self.order(seed, epoch)[:, self._mine] for seed in self.seeds])

    def _indices(self, step: int) -> Int[Tensor, "S B"]:
        """The batch of a step, for the stream's worker, which runs ahead of `prepare`."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch not in self._stream_orders:
            self._stream_orders = {epoch: self._draw_orders(epoch)}
        return self._stream_orders[epoch][:, position]

    # -- on the device, inside a step ---------------------------------------------------------

    def at(
        self, step: Int[Tensor, "1"]
    ) -> tuple[Int[Tensor, "S B"], Float[Tensor, "S B noise"], Examples]:
        """Indices, noise and streamed examples of a step that was prepared."""
        index = self._order.index_select(1, step % self.steps_per_epoch).squeeze(1)
        noise = self._noise.index_select(1, step % self.block).squeeze(1)
        return index, noise, self._stream.buffers if self._stream else {}
