"""How object files read a frame: SCOFF's attention and schemata, and SCOFF++'s slot attention.

SCOFF (Goyal et al. 2020): object files, the slots of a video, compete for the features of a frame
by one round of attention, and each updates its state by one of S schemata, GRU cells that all
object files share. The paper's SCOFF++ replaces the attention by slot attention, whose rounds are
queried by the object files of the frame before, and has one schema: slot attention's own GRU.

Both are called alike, and like `PlacedReader`: `look_at` the features of all frames, `begin`, then
`read` each frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nps.kernels.attention import attend
from nps.kernels.feature_norm import normalise_features
from nps.perception.places import Read
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

    def look_at(self, features: Float[Tensor, "T B n F"]) -> list[Inputs]:
        """What `read` needs of each frame."""
        return each_frame(self.prepare(features.flatten(0, 1)), len(features))

    def begin(
        self, inputs: Inputs, slots: int, noise: Float[Tensor, "B M D"] | None = None
    ) -> Float[Tensor, "B M D"]:
        assert self.sampled is not None
        return start_at(self.sampled, inputs, slots, noise)

    def read(self, inputs: Inputs, slots: Float[Tensor, "B M D"], *, first: bool) -> Read:
        rounds = self.first_iterations if first else self.iterations
        return Read(self.iterate(inputs, slots, rounds)[0], None)


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

    def look_at(self, features: Float[Tensor, "T B n F"]) -> list[Inputs]:
        """What `read` needs of each frame."""
        with torch.autocast(features.device.type, enabled=False):
            layers = (fold_norm(self.norm_features, layer) for layer in (self.key, self.value))
            inputs = Inputs(normalise_features(features.flatten(0, 1)), *layers)
            return each_frame(inputs, len(features))

    def begin(
        self, inputs: Inputs, slots: int, noise: Float[Tensor, "B M D"] | None = None
    ) -> Float[Tensor, "B M D"]:
        return start_at(self.sampled, inputs, slots, noise)

    def read(self, inputs: Inputs, slots: Float[Tensor, "B M D"], *, first: bool) -> Read:
        with torch.autocast(slots.device.type, enabled=False):
            query = self.query(slots) * self.key_dim**-0.5
            update = attend(inputs.features, query, inputs.key, inputs.value)
            states = torch.stack([schema(update, slots) for schema in self.schemata], -2)
            scores = (self.write_key(states) @ self.read_key(slots).unsqueeze(-1)).squeeze(-1)
            uniform = torch.rand_like(scores) if self.training else None
            choice = hard_choice(scores, uniform=uniform)
            return Read((choice.unsqueeze(-1) * states).sum(-2), None)


def each_frame(inputs: Inputs, frames: int) -> list[Inputs]:
    """Apart, what was made ready at once. Time comes first, so that a frame is contiguous."""
    return [inputs._replace(features=x) for x in inputs.features.chunk(frames)]


def start_at(
    sampled: Gaussian, inputs: Inputs, slots: int, noise: Float[Tensor, "B M D"] | None
) -> Float[Tensor, "B M D"]:
    """Slots from normal numbers, which are drawn if not given."""
    if noise is None:
        size = len(sampled.mean)
        noise = torch.randn(len(inputs.features), slots, size, device=sampled.mean.device)
    starts: Tensor = sampled(noise)
    return starts
