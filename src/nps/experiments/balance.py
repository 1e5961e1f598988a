"""A bonus on the entropy of the rules' mean use: no rule is left behind while they are all alike.

The choice is hard, so a rule that an early winner starves learns nothing and is never chosen again.
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
    scores = trace.rule_scores
    pairs = torch.softmax(scores.flatten(-2), -1).unflatten(-1, scores.shape[-2:])
    use = distributed.batch_mean(pairs.sum(-2).flatten(0, -2).mean(0))
    return -(use * (use + 1e-8).log()).sum()
