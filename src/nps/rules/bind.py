"""Step 3: where the contextual slot is chosen (paper, section 3.1).

q_p = V_p W̃^q, k_j = V_j W̃^k, c = argmax_j (q_p · k_j + γ). The algorithm writes the query as
q_{r,p}, but its formula contains only the primary slot, and so does ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Unpack

from torch import Tensor, nn

from nps.rules.choice import hard_choice
from nps.rules.config import Query
from nps.rules.projection import Factory, Projection, match

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class Bound(NamedTuple):
    """Step 3: the contexts of the primary slots, one-hot, and the scores behind them."""

    context: Float[Tensor, "*batch #M M"]
    scores: Float[Tensor, "*batch #M M"]


class Bind(nn.Module):
    """Scores of every slot as context of the primary slots: W̃^q and W̃^k.

    With `query="mlp"` both sides get the small network: comparing a change with a slot's value
    needs the value's square on the key side.

    Shapes: primary features (..., P, F), features (..., M, F) -> (..., P, M).
    """

    def __init__(
        self, selection_dim: int, key_dim: int, query: Query, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.query = Projection(selection_dim, key_dim, query, **factory)
        self.key = Projection(selection_dim, key_dim, query, **factory)

    def forward(self, primary: Tensor, features: Tensor) -> Tensor:
        return match(self.query(primary), self.key(features))


def bind_contexts(
    scores: Float[Tensor, "*batch P M"],
    allowed: Bool[Tensor, "*#batch #P M"] | None,
    noise: Float[Tensor, "*batch P M"] | None,
    temperature: float | Tensor,
) -> Float[Tensor, "*batch P M"]:
    """A one-hot context for each primary slot; a zero row where no context is allowed."""
    return hard_choice(scores, allowed=allowed, noise=noise, temperature=temperature)
