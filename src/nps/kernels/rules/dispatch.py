"""Which rows go to which rule, so that evaluation computes only the rules that fire.

The rows are sorted by rule and laid out in blocks, each of one rule and of exactly `size` rows; the
gaps hold rows whose results are never read. Every product has the same shape, so the rounding of a
row cannot depend on how many rows share its rule, on their order, or on the number of rules. Rules
that do not fire cost nothing. The plain twin is the dense form in `nps.rules.actions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nps.rules.actions import ConvRules, MLPRules, conv_layers, mlp_layers, pad_to_cache_lines
from nps.rules.ruleset import RuleSet
from nps.rules.slots import unsqueeze_right

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


BLOCK, AT_ONCE = 24, 24
"""On the CPU: rows of an MLP's product (fewer waste its set-up, more waste rows where a rule has
only a few), and blocks in one call, so that the copies of their weights stay in the cache."""
GPU_BLOCK, GPU_AT_ONCE = 32, 1024
"""On a GPU, which has no such cache to fit: the copies take about 0.1 GB."""
CONV_BLOCK = 8
"""Rows of a convolution, which costs more by the row and has little set-up."""
WIDE, WIDE_BLOCK = 128, 2
"""Channels of slots from which on two rows use the processor well: of one scene, as in the
workbench, most rules fire on one or two slots (of 256 channels: 1.0 ms for 2 rows, 3.0 for 8)."""


def supported(*tensors: Tensor) -> bool:
    """True if rules that do not fire may be left out: no gradient needs them.

    torch.compile, torch.export and torch.func trace or batch every operation: they get the dense
    form, which is two products and a sum. So does a call without rows.
    """
    if torch.compiler.is_compiling() or any(x.numel() == 0 for x in tensors):
        return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        return False
    return not any(torch._C._functorch.is_functorch_wrapped_tensor(x) for x in tensors)


def only_fired(rules: RuleSet, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor | None:
    """The actions of the rules that fire; None where only the dense form serves."""
    if not supported(primary, context, choice, *rules.parameters()):
        return None
    if type(rules) is MLPRules:
        return _mlp(rules, primary, context, choice)
    # On other devices the rules of the blocks cannot be read without stalling.
    if type(rules) is ConvRules and primary.device.type == "cpu":
        return _conv(rules, primary, context, choice)
    return None


def _mlp(rules: MLPRules, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor:
    weights = rules.weights()
    static = primary.device.type != "cpu"
    size, at_once = (GPU_BLOCK, GPU_AT_ONCE) if static else (BLOCK, AT_ONCE)

    def act(x: Float[Tensor, "b size 2*D"], rule: Int[Tensor, "b"]) -> Tensor:
        if not static and rule[0] == rule[-1]:  # all of one rule: no need to copy it b times
            rule = rule[:1]
        chosen = [pad_to_cache_lines(w.index_select(0, rule), w.dim() - 1) for w in weights]
        x = pad_to_cache_lines(x.to(chosen[0].dtype), 1)
        return mlp_layers(x, chosen)[..., : rules.slot_dim]

    return Blocks.of(choice, size, static=static).run(primary, context, act, at_once)


def _conv(rules: ConvRules, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor:
    weights = rules.weights()

    def act(x: Float[Tensor, "1 size 2*C H W"], rule: Int[Tensor, "1"]) -> Tensor:
        chosen = [w[int(rule)] for w in weights]
        return conv_layers(x[0].to(chosen[0].dtype), chosen).unsqueeze(0)

    size = CONV_BLOCK if rules.slot_dim < WIDE else WIDE_BLOCK
    return Blocks.of(choice, size, static=False).run(primary, context, act, at_once=1)


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

        With `static` there are as many blocks as could ever be needed: reading how many are would
        stall a GPU, and a CUDA graph could not be captured.
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

        `action` gets up to `at_once` blocks and their rules: [primary slot, contextual slot] as
        (b, size, ...) and (b,).
        """
        # index_select: several times as fast on the CPU as indexing with brackets.
        pair = [x.index_select(0, self.source.flatten()) for x in (primary, context)]
        filled = torch.cat(pair, 1).unflatten(0, self.source.shape)
        parts = zip(filled.split(at_once), self.rule.split(at_once), strict=True)
        results = torch.cat([action(x, rule) for x, rule in parts])
        rows = results.flatten(0, 1).index_select(0, self.place)
        return torch.where(unsqueeze_right(self.fired, rows.dim() - 1), rows, 0.0)
