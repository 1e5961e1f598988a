"""A bonus on the balanced use of rules, ours: the paper has none.

A rule that is not chosen does not learn, and what has not learned is not chosen: two operations may
share a rule for good while another is idle. The bonus rewards use of all of them over a batch, not
undecided choices: one rule for each operation is balanced too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nps.rules import Trace
from nps.training import distributed

if TYPE_CHECKING:
    from jaxtyping import Float


def use_entropy(trace: Trace) -> Float[Tensor, ""]:
    """Entropy of the rules' mean use over the batch, by the scores before noise."""
    m = trace.rule_scores.shape[-2]
    pairs = torch.softmax(trace.rule_scores.flatten(-2), -1).unflatten(-1, (m, -1))
    use = distributed.batch_mean(pairs.sum(-2).flatten(0, -2).mean(0))
    return -(use * (use + 1e-8).log()).sum()
