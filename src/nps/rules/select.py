"""Step 2: slot queries meet rule keys (paper, section 3.1).

q_j = V_j W^q, k_i = R_i W^k, score_ji = q_j · k_i. What is chosen from the scores differs: one
(slot, rule) pair in Algorithm 1, one rule for each slot in Algorithm 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.rules.projection import Projection, Query

if TYPE_CHECKING:
    from jaxtyping import Float


class Select(nn.Module):
    """W^q and W^k."""

    def __init__(self, selection_dim: int, rule_dim: int, key_dim: int, query: Query) -> None:
        super().__init__()
        self.query = Projection(selection_dim, key_dim, query)
        self.key = Projection(rule_dim, key_dim)


def drop_scores(
    scores: Float[Tensor, "*shape"], uniform: Float[Tensor, "*shape"], p: float | Tensor
) -> Float[Tensor, "*shape"]:
    """Dropout on the scores: the paper's p = 0.35 on coordinate arithmetic.

    A dropped score is zero, not out of the competition. The mask comes from the caller's uniform
    numbers, as the Gumbel noise does, so that a step is a function of its noise.
    """
    return torch.where(uniform < p, 0.0, scores / (1.0 - p))
