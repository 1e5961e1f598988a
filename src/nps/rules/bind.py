"""Step 3: which other slot is the context (paper, section 3.1).

q_p = V_p W̃^q, k_j = V_j W̃^k, c = argmax_j (q_p · k_j + γ). The algorithm's query is written
q_{r,p} but its formula has the primary slot alone; so has ours.
"""

from __future__ import annotations

from torch import nn

from nps.rules.projection import Projection, Query


class Bind(nn.Module):
    """W̃^q and W̃^k.

    With `query="mlp"` both sides get the small network: comparing a change with a slot's value
    needs the value's square on the key side.
    """

    def __init__(self, selection_dim: int, key_dim: int, query: Query) -> None:
        super().__init__()
        self.query = Projection(selection_dim, key_dim, query)
        self.key = Projection(selection_dim, key_dim, query)
