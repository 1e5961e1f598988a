"""How object files read a frame: SCOFF's attention and schemata, and SCOFF++'s slot attention.

SCOFF (Goyal et al. 2020): object files, the slots of a video, compete for the features of a frame
by one round of attention, and each updates its state by one of S schemata, GRU cells that all
object files share. The paper's SCOFF++ replaces the attention by slot attention, whose rounds are
queried by the object files of the frame before, and has one schema: slot attention's own GRU.

Both are called alike: `prepare` once with the features of all frames, `start`, then `read` for each
frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.kernels.attention import attend
from nps.kernels.feature_norm import normalise_features
from nps.perception.slot_attention import GRU, Gaussian, Inputs, SlotAttention, fold_norm
from nps.rules.check import require_int
from nps.rules.choice import hard_choice

if TYPE_CHECKING:
    from jaxtyping import Float

SCHEMA_KEY = 16
"""Size of the keys by which an object file chooses a schema (the authors' program)."""


class SlotReader(SlotAttention):
    """SCOFF++: slot attention, queried by the previous slots.

    Args:
        slots: M, number of slots while training; any number may be started.
        slot_dim: D.
        feature_dim: F, size of a feature.
        first_iterations: rounds of attention on the first frame, from random slots.
        iterations: rounds on every later frame, from the slots of the frame before.
    """

    def __init__(
        self,
        slots: int,
        slot_dim: int,
        feature_dim: int,
        *,
        first_iterations: int = 3,
        iterations: int = 1,
    ) -> None:
        require_int("first_iterations", first_iterations, at_least=1)
        super().__init__(
            slots, slot_dim, feature_dim=feature_dim, iterations=iterations, start="sampled"
        )
        self.first_iterations = first_iterations

    def read(
        self, inputs: Inputs, slots: Float[Tensor, "B M D"], *, first: bool
    ) -> Float[Tensor, "B M D"]:
        return self.iterate(inputs, slots, self.first_iterations if first else self.iterations)[0]


class SchemaReader(nn.Module):
    r"""SCOFF: one round of attention, then the schema that each object file chooses.

    .. math::
        u_m &= \mathrm{attend}(W^q h_m, x), \qquad h_m^s = \mathrm{GRU}_s(u_m, h_m) \\
        s_m &= \mathrm{argmax}_s\,(W^r h_m \cdot W^w h_m^s + \gamma) \\
        h_m &\leftarrow h_m^{s_m}

    Args:
        slots: M, number of object files while training; any number may be started.
        slot_dim: D, size of an object file.
        feature_dim: F, size of a feature.
        schemata: S (the authors' programs: 2 to 6).
        key_dim: size of the attention's queries and keys (theirs: 64).
    """

    def __init__(
        self, slots: int, slot_dim: int, feature_dim: int, *, schemata: int = 4, key_dim: int = 64
    ) -> None:
        super().__init__()
        require_int("schemata", schemata, at_least=1)
        self.slots, self.key_dim = slots, key_dim
        self.slot_dim = slot_dim
        self.sampled = Gaussian(slot_dim)
        self.norm_features = nn.LayerNorm(feature_dim)
        self.query = nn.Linear(slot_dim, key_dim, bias=False)
        self.key = nn.Linear(feature_dim, key_dim, bias=False)
        self.value = nn.Linear(feature_dim, slot_dim, bias=False)
        self.schemata = nn.ModuleList(GRU(slot_dim, slot_dim) for _ in range(schemata))
        self.read_key = nn.Linear(slot_dim, SCHEMA_KEY)
        self.write_key = nn.Linear(slot_dim, SCHEMA_KEY)

    def prepare(self, features: Float[Tensor, "B n F"]) -> Inputs:
        """What `read` needs of the features: once for all frames of a video."""
        with torch.autocast(features.device.type, enabled=False):
            layers = (fold_norm(self.norm_features, layer) for layer in (self.key, self.value))
            return Inputs(normalise_features(features), *layers)

    def initial_slots(self, batch: int, noise: Tensor | None = None) -> Float[Tensor, "B M D"]:
        if noise is None:
            shape = (batch, self.slots, self.slot_dim)
            noise = torch.randn(shape, device=self.sampled.mean.device)
        starts: Tensor = self.sampled(noise)
        return starts

    def read(
        self, inputs: Inputs, slots: Float[Tensor, "B M D"], *, first: bool
    ) -> Float[Tensor, "B M D"]:
        with torch.autocast(slots.device.type, enabled=False):
            query = self.query(slots) * self.key_dim**-0.5
            update = attend(inputs.features, query, inputs.key, inputs.value)
            states = torch.stack([schema(update, slots) for schema in self.schemata], -2)
            scores = (self.write_key(states) @ self.read_key(slots).unsqueeze(-1)).squeeze(-1)
            uniform = torch.rand_like(scores) if self.training else None
            choice = hard_choice(scores, uniform=uniform)
            return (choice.unsqueeze(-1) * states).sum(-2)
