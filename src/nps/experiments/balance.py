"""An entropy bonus on the mean use of the rules, so that all of them are tried early in training.

The selection is hard: a rule that loses early gets no training signal and is never selected again.
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
    """Entropy of the mean use of the rules over the batch, from the scores without noise."""
    scores = trace.rule_scores
    pairs = torch.softmax(scores.flatten(-2), -1).unflatten(-1, scores.shape[-2:])
    use = distributed.batch_mean(pairs.sum(-2).flatten(0, -2).mean(0))
    return -(use * (use + 1e-8).log()).sum()
