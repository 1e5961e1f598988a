"""Slot attention: from a set of features to M slots that compete for them.

Locatello et al., "Object-Centric Learning with Slot Attention" (2020), the object encoder of the
paper's world models (appendix, "Physics Environment": V = Slot Attention(x)). The paper also calls
it top-down attention: slots query, features answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.kernels.attention import Affine, at_least_float32, attend, attention_weights
from nps.kernels.feature_norm import normalise_features

if TYPE_CHECKING:
    from jaxtyping import Float

Start = Literal["learned", "sampled"]


class Inputs(NamedTuple):
    """What the slots query: normalised features, and the layers that make keys and values."""

    features: Float[Tensor, "B n F"]
    key: Affine
    value: Affine


class SlotAttention(nn.Module):
    r"""Slots that query the features iteratively, and compete for them:

    .. math::
        q_m &= W^q\, \mathrm{LN}(V_m) / \sqrt D, \qquad
        \alpha_{nm} = \mathrm{softmax}_m(q_m \cdot W^k\, \mathrm{LN}(x_n)) \\
        u_m &= \textstyle\sum_n \alpha_{nm} W^v\, \mathrm{LN}(x_n) / \sum_n \alpha_{nm} \\
        V_m &\leftarrow \mathrm{GRU}(u_m, V_m), \qquad
        V_m \leftarrow V_m + \mathrm{MLP}(\mathrm{LN}(V_m))

    **The initial slots** decide which slot gets which object. As published, all are drawn from one
    Gaussian (`start="sampled"`): slots are then a set, in a different order for every image and
    every draw. A contrastive world model compares the slots of two images one by one, in loss and
    metric, and per-slot selection of rules numbers them: their order must agree. With
    `start="learned"` every slot starts from a parameter of its own: the same image always gives the
    same slots, and slot m can learn to look for the same object in every image. In a video, the
    slots of a frame start from those of the frame before (`slots=`) and keep their objects.

    Slots, queries, softmax and the GRU are computed in at least float32, even under autocast;
    products over all features in the type of the features.

    Args:
        slots: M, number of slots.
        slot_dim: D, size of a slot.
        feature_dim: F, size of a feature; by default that of a slot.
        iterations: rounds of attention.
        hidden_dim: hidden units of the MLP.
        start: "learned", a vector for each slot; "sampled", one learned Gaussian for all.

    Shapes: features (B, n, F) -> (B, M, D); with attention also (B, M, n), which sums to 1 over M.
    """

    def __init__(
        self,
        slots: int,
        slot_dim: int,
        *,
        feature_dim: int | None = None,
        iterations: int = 3,
        hidden_dim: int = 128,
        start: Start = "learned",
    ) -> None:
        super().__init__()
        feature_dim = slot_dim if feature_dim is None else feature_dim
        sizes = {"slots": slots, "slot_dim": slot_dim, "feature_dim": feature_dim}
        for name, size in {**sizes, "iterations": iterations, "hidden_dim": hidden_dim}.items():
            if size < 1:
                raise ValueError(f"{name}: got {size}, expected at least 1")
        if start not in get_args(Start):
            raise ValueError(f"start: got {start!r}, expected one of learned, sampled")
        self.slots, self.slot_dim, self.feature_dim = slots, slot_dim, feature_dim
        self.iterations = iterations
        # A spread of about 1, as published starts have before training.
        self.start = nn.Parameter(torch.randn(slots, slot_dim)) if start == "learned" else None
        self.sampled = Gaussian(slot_dim) if start == "sampled" else None
        self.norm_features = nn.LayerNorm(feature_dim)
        # Without the published bias: it shifts the queries of all slots alike and cancels in the
        # softmax. Its gradient is only rounding, which Adam would scale up to steps of full size.
        self.norm_slots = nn.LayerNorm(slot_dim, bias=False)
        self.norm_mlp = nn.LayerNorm(slot_dim)
        self.query = nn.Linear(slot_dim, slot_dim, bias=False)
        self.key = nn.Linear(feature_dim, slot_dim, bias=False)
        self.value = nn.Linear(feature_dim, slot_dim, bias=False)
        self.gru = GRU(slot_dim, slot_dim)
        self.mlp = nn.Sequential(
            nn.Linear(slot_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, slot_dim)
        )

    def forward(
        self,
        features: Float[Tensor, "B n F"],
        *,
        slots: Float[Tensor, "B M D"] | None = None,
        noise: Float[Tensor, "B M D"] | None = None,
        return_attention: bool = False,
    ) -> Float[Tensor, "B M D"] | tuple[Float[Tensor, "B M D"], Float[Tensor, "B M n"]]:
        """
        Args:
            features: of each pixel.
            slots: the slots to start from; by default the initial ones.
            noise: normal numbers for sampled starts; drawn if not given. Its M may differ.
            return_attention: also return each slot's share of each feature in the last round.
        """
        inputs = self.prepare(features)
        if slots is None:
            slots = self.initial_slots(len(features), noise)
        slots, query = self.iterate(inputs, slots, self.iterations)
        if return_attention:
            return slots, attention_weights(inputs.features, query, inputs.key)
        return slots

    def prepare(self, features: Float[Tensor, "B n F"]) -> Inputs:
        """What `iterate` needs of the features: once for all frames of a video."""
        if features.dim() != 3 or features.shape[-1] != self.feature_dim:
            shape = tuple(features.shape)
            raise ValueError(f"features: got shape {shape}, expected (B, n, {self.feature_dim})")
        with torch.autocast(features.device.type, enabled=False):
            layers = (fold_norm(self.norm_features, layer) for layer in (self.key, self.value))
            return Inputs(normalise_features(features), *layers)

    def iterate(
        self, inputs: Inputs, slots: Float[Tensor, "B M D"], iterations: int
    ) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B M D"]]:
        """Rounds of attention: the new slots, and the queries of the last round."""
        with torch.autocast(slots.device.type, enabled=False):
            for _ in range(iterations):
                query = self.query(self.norm_slots(slots)) * self.slot_dim**-0.5
                slots = self.gru(attend(inputs.features, query, inputs.key, inputs.value), slots)
                slots = slots + self.mlp(self.norm_mlp(slots))
        return slots, query

    def initial_slots(self, batch: int, noise: Tensor | None = None) -> Float[Tensor, "B M D"]:
        """Where slots start; `noise` as for the call."""
        if self.start is not None:
            return at_least_float32(self.start).expand(batch, -1, -1)
        assert self.sampled is not None
        if noise is None:
            noise = torch.randn(batch, self.slots, self.slot_dim, device=self.sampled.mean.device)
        starts: Tensor = self.sampled(noise)
        return starts


class Gaussian(nn.Module):
    """A learned Gaussian that all slots start from: mean and log standard deviation."""

    def __init__(self, size: int) -> None:
        super().__init__()
        bound = (6 / (1 + size)) ** 0.5  # Glorot's, as published
        self.mean = nn.Parameter(torch.empty(size).uniform_(-bound, bound))
        self.log_spread = nn.Parameter(torch.empty(size).uniform_(-bound, bound))

    def forward(self, noise: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        return self.mean + self.log_spread.exp() * noise.to(self.mean.dtype)


class GRU(nn.GRUCell):
    """nn.GRUCell in operations that vmap can batch, unlike torch's own."""

    def forward(  # type: ignore[override]
        self, update: Float[Tensor, "*batch F"], state: Float[Tensor, "*batch D"]
    ) -> Float[Tensor, "*batch D"]:
        from_update = F.linear(update, self.weight_ih, self.bias_ih).chunk(3, -1)
        from_state = F.linear(state, self.weight_hh, self.bias_hh).chunk(3, -1)
        reset, keep = (a + b for a, b in zip(from_update[:2], from_state[:2], strict=True))
        new = (from_update[2] + reset.sigmoid() * from_state[2]).tanh()
        return torch.lerp(new, state, keep.sigmoid())


def fold_norm(norm: nn.LayerNorm, linear: nn.Linear) -> Affine:
    """A linear layer that includes the scale and shift of the normalisation before it.

    The normalisation of all pixels then has no parameters, whose gradients would be sums over all
    of them.
    """
    weight, bias = linear.weight * norm.weight, linear.weight @ norm.bias
    return Affine(weight, bias if linear.bias is None else bias + linear.bias)
