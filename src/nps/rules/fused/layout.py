"""Rows laid out in blocks of one rule each, so that one batched product serves all rules.

On a CPU only, where reading the counts costs nothing. Every rule has at least one block; more where
it was chosen so often that blocks of its size would leave the others mostly empty.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int


LARGE = 128
"""Empty rows of a product cost less than copies of weights, up to about so many in a block."""


class Layout(NamedTuple):
    place: Int[Tensor, "S*T"]
    """Where each row lies, counted through all blocks."""
    size: int
    """Rows of a block; those that no row fills are zero."""
    owners: Int[Tensor, "blocks"] | None
    """The rule of each block, counted through all models; None if each has one."""
    rules: int

    @classmethod
    def of(cls, rule: Int[Tensor, "S T"], n: int) -> Layout:
        s, rows = len(rule), rule.numel()
        flat = rule.flatten() if s == 1 else (rule + torch.arange(0, s * n, n)[:, None]).flatten()
        counts: list[int] = torch.bincount(flat, minlength=s * n).tolist()
        size = max(1, min(max(counts), max(LARGE, -(-2 * rows // (s * n)))))
        blocks = [max(1, -(-count // size)) for count in counts]
        # A row's place is its rank among all rows, moved by the gaps before its rule.
        starts, firsts = ([0, *accumulate(x)] for x in (counts, blocks))
        gaps = torch.tensor([b * size - a for a, b in zip(starts, firsts, strict=True)])
        ranked, order = flat.sort(stable=True)
        place = torch.empty_like(flat)
        place[order] = gaps.index_select(0, ranked).add_(torch.arange(rows))
        several = len(blocks) < firsts[-1]
        owners = torch.arange(s * n).repeat_interleave(torch.tensor(blocks)) if several else None
        return cls(place, size, owners, s * n)

    def weights(self, x: Float[Tensor, "S N *w"]) -> Float[Tensor, "blocks *w"]:
        x = x.flatten(0, 1)
        return x if self.owners is None else x.index_select(0, self.owners)

    def blocks(self, x: Float[Tensor, "S T *r"]) -> Float[Tensor, "blocks size *r"]:
        count = self.rules if self.owners is None else len(self.owners)
        zeros = x.new_zeros(count * self.size, x.shape[-1])
        return zeros.index_copy_(0, self.place, x.flatten(0, 1)).view(count, self.size, -1)

    def rows(self, x: Float[Tensor, "blocks size *r"]) -> Float[Tensor, "S*T *r"]:
        return x.flatten(0, 1).index_select(0, self.place)

    def by_rule(self, x: Float[Tensor, "blocks *w"]) -> Float[Tensor, "S*N *w"]:
        """Add up the blocks of each rule."""
        if self.owners is None:
            return x
        return x.new_zeros(self.rules, *x.shape[1:]).index_add_(0, self.owners, x)
