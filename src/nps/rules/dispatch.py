"""Which rows go to which rule, so that evaluation computes only the rules that fire.

The rows are sorted by rule and laid out in blocks, each of one rule and of exactly `size` rows; the
gaps hold rows whose results nobody reads. So every product has the same shape, and the rounding of
a row cannot depend on how many rows share its rule, on their order, or on the number of rules. Nor
does the cost grow with the rules that do not fire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.rules.stage import behind

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


def only_fired(*tensors: Tensor) -> bool:
    """May the rules that do not fire be left out? Not where a gradient needs them all.

    torch.compile, torch.export and torch.func trace or batch every operation: they get the dense
    form, which is two products and a sum. So does a call without rows.
    """
    if torch.compiler.is_compiling() or any(x.numel() == 0 for x in tensors):
        return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return False
    return not any(torch._C._functorch.is_functorch_wrapped_tensor(x) for x in tensors)


class Blocks(NamedTuple):
    """T rows laid out in blocks of one rule each."""

    rule: Int[Tensor, "blocks"]
    """The rule of each block."""
    source: Int[Tensor, "blocks size"]
    """Which row fills each place."""
    place: Int[Tensor, "T"]
    """Where each row lies, counted through all blocks; anywhere if no rule fires on it."""
    fired: Bool[Tensor, "T"]

    @classmethod
    def of(cls, choice: Float[Tensor, "T N"], size: int, *, static: bool) -> Blocks:
        """Lay out rows by their choices, which are one-hot, or zero where no rule fires.

        With `static` there are as many blocks as could be needed: to read how many are would stall
        a GPU, and a CUDA graph could not be captured.
        """
        t, n, device = *choice.shape, choice.device
        best, rule = choice.max(-1)
        # A GPU sorts byte by byte: the fewer, the better.
        kind = torch.int16 if n < 2**15 else torch.int64
        ranked, order = torch.where(best > 0, rule, n).to(kind).sort(stable=True)
        ends = torch.searchsorted(ranked, torch.arange(n, dtype=kind, device=device), right=True)
        starts = F.pad(ends[:-1], (1, 0))
        last = ((ends - starts + size - 1) // size).cumsum(0)
        blocks = min(t, (t + n * (size - 1)) // size) if static else max(1, int(last[-1]))
        owner = torch.searchsorted(last, torch.arange(blocks, device=device), right=True)
        owner = owner.clamp(max=n - 1)
        # The gaps push the rows of a rule back, from their rank in the order to their place.
        gaps = F.pad(last[:-1], (1, 0)) * size - starts
        places = torch.arange(blocks * size, device=device).view(blocks, size)
        ranks = (places - gaps[owner].unsqueeze(-1)).clamp(max=t - 1)
        place = torch.arange(t, device=device) + F.pad(gaps, (0, 1))[ranked.long()]
        place = torch.where(ranked < n, place, 0)
        return cls(owner, order[ranks], torch.empty_like(place).scatter_(0, order, place), best > 0)

    def run(
        self,
        primary: Float[Tensor, "T *slot"],
        context: Float[Tensor, "T *slot"],
        action: Callable[[Tensor, Tensor], Tensor],
        at_once: int,
    ) -> Float[Tensor, "T *slot"]:
        """The rows' results, zero where no rule fires.

        `action` is called with so many blocks at once and their rules: [primary slot, contextual
        slot] as (b, size, ...) and (b,).
        """
        # index_select: several times as fast on the CPU as indexing with brackets.
        pair = [x.index_select(0, self.source.flatten()) for x in (primary, context)]
        filled = torch.cat(pair, 1).unflatten(0, self.source.shape)
        parts = zip(filled.split(at_once), self.rule.split(at_once), strict=True)
        results = torch.cat([action(x, rule) for x, rule in parts])
        rows = results.flatten(0, 1).index_select(0, self.place)
        return torch.where(behind(self.fired, rows.dim() - 1), rows, 0.0)
