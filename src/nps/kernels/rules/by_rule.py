"""Gradients of the chosen rules alone, on a CPU, where reading how often each was chosen is free.

Where rules are chosen about equally often, each gets as many places for its rows as the most
frequent one, the rest filled with zeros, and one batched product serves all. Where most places
would be empty, the rows are sorted and each rule has its own products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

PRODUCTS = 100_000
"""Multiplications that take one thread as long as the call overhead of one rule's own products: a
batch is shared by all threads, products of a few rows are not."""


def count(rule: Int[Tensor, "*S T"], n: int) -> tuple[Int[Tensor, "*S T"], list[int]]:
    """For each row, how many rows before it chose the same rule; for each rule, how many in all."""
    so_far = (rule.unsqueeze(-2) == torch.arange(n).unsqueeze(-1)).cumsum(-1)
    before = so_far.gather(-2, rule.unsqueeze(-2)).squeeze(-2).sub_(1)
    return before, so_far[..., -1].flatten().tolist()


def gradients(
    counts: list[int],
    before: Int[Tensor, "T"],
    rule: Int[Tensor, "T"],
    g: Float[Tensor, "T D"],
    x: Float[Tensor, "T I"],
    chosen: Float[Tensor, "T H"],
    weight_in: Float[Tensor, "N I H"],
    weight_out: Float[Tensor, "N H D"],
) -> tuple[Tensor, ...]:
    """To x and to the four weights. `chosen`: the chosen rule's hidden layer; `before`: `count`."""
    n, h, d = weight_out.shape
    size = max(counts)
    zeros = n * size - len(rule)
    own = (n - counts.count(0)) * PRODUCTS * torch.get_num_threads() < zeros * h * d
    if own:
        return _each(counts, rule, g, x, chosen, weight_in, weight_out)
    return _batched(size, before.add(rule, alpha=size), g, x, chosen, weight_in, weight_out)


def _batched(
    size: int,
    place: Tensor,
    g: Tensor,
    x: Tensor,
    chosen: Tensor,
    weight_in: Tensor,
    weight_out: Tensor,
) -> tuple[Tensor, ...]:
    n, joint = len(weight_in), torch.cat([g, x, chosen], 1)
    placed = joint.new_zeros(n * size, joint.shape[1]).index_copy_(0, place, joint)
    widths = [g.shape[1], x.shape[1], chosen.shape[1]]
    g, x, chosen = placed.view(n, size, -1).split_with_sizes(widths, -1)
    passed = torch.ops.aten.threshold_backward(torch.bmm(g, weight_out.mT), chosen, 0)
    to_x = torch.bmm(passed, weight_in.mT).flatten(0, 1).index_select(0, place)
    return to_x, torch.bmm(x.mT, passed), passed.sum(1), torch.bmm(chosen.mT, g), g.sum(1)


def _each(
    counts: list[int],
    rule: Tensor,
    g: Tensor,
    x: Tensor,
    chosen: Tensor,
    weight_in: Tensor,
    weight_out: Tensor,
) -> tuple[Tensor, ...]:
    ranked, order = rule.sort(stable=True)
    g, x, chosen = (y.index_select(0, order) for y in (g, x, chosen))
    passed, back = torch.empty_like(chosen), torch.empty_like(x)
    to_in, to_out = torch.empty_like(weight_in), torch.empty_like(weight_out)
    _products(chosen.t().split(counts, 1), g.split(counts), to_out)
    _products(g.split(counts), weight_out.mT, passed.split(counts))
    passed = torch.ops.aten.threshold_backward(passed, chosen, 0)
    _products(x.t().split(counts, 1), passed.split(counts), to_in)
    _products(passed.split(counts), weight_in.mT, back.split(counts))
    to_x = torch.empty_like(x).index_copy_(0, order, back)
    to_bias_in, to_bias_out = (
        y.new_zeros(len(counts), y.shape[1]).index_add_(0, ranked, y) for y in (passed, g)
    )
    return to_x, to_in, to_bias_in, to_out, to_bias_out


def _products(left: Sequence[Tensor], right: Any, out: Any) -> None:
    """A product for each rule; over no rows it is zero, as it should be."""
    for a, b, c in zip(left, right, out, strict=True):
        torch.mm(a, b, out=c)
