"""Slots with a place: they look around it, follow what they see, and are drawn around it.

In a video of objects, where something is and what it is are two things. Plain slot attention has to
learn both from position embeddings, and to tell slots apart by chance. Here the first two numbers
of a slot are its place, column and row from -1 to 1, as in Invariant Slot Attention (Biza et al.
2023), and everything else is relative to it. Slots then separate within a minute, and
what was learned with 4 balls holds for 8 (docs/notes/balls.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nps.kernels.feature_norm import normalise_features
from nps.networks import linear
from nps.perception.slot_attention import GRU, fold_norm
from nps.rules.check import require_int, require_number

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

PLACE = 2
"""Numbers of a slot that are its place; as many after them are its velocity."""
FASTEST = 0.5
"""Largest way of a slot in one frame, where half of the image's side is 1."""
EXTENT = 0.3
"""About the radius of an object, by default; half of the image's side is 1."""
COVERED = 1.5
"""Extents around a slot's first place in which others start only if nothing else is left."""
SHARPNESS = 4.0
"""Power of the foreground's share from which first places are drawn in training."""
LITTLE = 1.0
"""Features of which a slot has to see more than this many to be present, and to follow them."""


def cell_centres(size: int) -> Float[Tensor, "size*size 2"]:
    """Column and row of the cells of a square grid, row by row, from -1 to 1."""
    along = (torch.arange(size) + 0.5) * (2.0 / size) - 1.0
    down, right = torch.meshgrid(along, along, indexing="ij")
    return torch.stack([right, down], -1).flatten(0, 1)


def in_radii(slots: Float[Tensor, "*batch D"], radius: float) -> Float[Tensor, "*batch D"]:
    """Place and velocity in radii of an object, in place of half image sides.

    Collisions depend on distances of a fraction of a radius. Networks that read them in half image
    sides, as numbers of about 0.05, learn to collide far more slowly (docs/notes/balls.md).
    """
    return torch.cat([motion(slots) / radius, slots[..., 2 * PLACE :]], -1)


def motion(slots: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch 4"]:
    """Place and velocity."""
    return slots[..., : 2 * PLACE]


def push(
    slots: Float[Tensor, "*batch D"], change: Float[Tensor, "*batch 2"]
) -> Float[Tensor, "*batch D"]:
    """Change the velocity of each slot, and nothing else."""
    place, velocity, state = slots.tensor_split((PLACE, 2 * PLACE), -1)
    return torch.cat([place, velocity + change, state], -1)


def drift(
    slots: Float[Tensor, "*batch D"], start: Float[Tensor, "*batch D"]
) -> Float[Tensor, "*batch D"]:
    """Move each slot from the place it had in `start` by its velocity, to the next frame.

    So a slot that is left alone goes straight on, also over many frames without input. What the
    model has to learn is what changes a velocity: walls, and other slots. Places stay inside the
    image.
    """
    velocity = slots[..., PLACE : 2 * PLACE].clamp(-1.0, 1.0)
    place = (start[..., :PLACE] + FASTEST * velocity).clamp(-1.0, 1.0)
    return torch.cat([place, velocity, slots[..., 2 * PLACE :]], -1)


def square_distances(
    places: Float[Tensor, "B M 2"], grid: Float[Tensor, "n 2"]
) -> Float[Tensor, "B M n"]:
    return (places.unsqueeze(-2) - grid).square().sum(-1)


class Seen(NamedTuple):
    """What slots can see of a frame: keys, values, and the background's claim to each feature."""

    key: Float[Tensor, "B n D"]
    value: Float[Tensor, "B n D"]
    background: Float[Tensor, "B n"]


class Read(NamedTuple):
    """Slots that have read a frame."""

    slots: Float[Tensor, "B M D"]
    present: Bool[Tensor, "B M"] | None
    """Which of them see anything; None where that is not known."""


class PlacedReader(nn.Module):
    r"""SCOFF++ with places: slot attention through a window around each slot's place.

    With :math:`x_n` a normalised feature at :math:`g_n`, and a slot
    :math:`V_m = [p_m, v_m, h_m]` of place, velocity and the rest:

    .. math::
        a_{mn} &= W^q\,\mathrm{LN}(V_m) \cdot W^k x_n / \sqrt D - |g_n - p_m|^2 / 2 \sigma^2 \\
        \alpha &= \mathrm{softmax}_m(a_{1n}, \dots, a_{Mn}, w^b \cdot x_n + b), \qquad
        w_{mn} = \alpha_{mn} / (1 + \textstyle\sum_n \alpha_{mn}) \\
        d_m &= \textstyle\sum_n w_{mn} (g_n - p_m), \qquad
        u_m = \textstyle\sum_n w_{mn} W^v x_n \\
        z_m &= \mathrm{GRU}([u_m, p_m + d_m, 10\, d_m], V_m), \qquad
        z_m \leftarrow z_m + \mathrm{MLP}(\mathrm{LN}(z_m)) \\
        [e_m, f_m] &= \textstyle\sum_n w_{mn}\, W^r z_m \\
        p'_m &= p_m + d_m + e_m, \qquad v'_m = v_m + g\,(d_m + e_m + f_m) / \mathrm{FASTEST}

    The new slot is p', v' and the rest of z. A velocity that was right is not changed; on the first
    frame it is zero. With a gain g of 1, and :math:`W^r = 0` as at first, it is the way from the
    last place to this. The background competes for the features as slots do: what it leaves is the
    foreground. A slot that sees nothing goes on as it went.

    **The first places** are taken one after another from the first frame: each slot takes a feature
    of the foreground that is not near one already taken, in training at random, in evaluation the
    clearest one. Where all objects are taken, a spare slot starts at the rim of one.

    Args:
        slots: M, number of slots while training; any number may be started.
        slot_dim: D, with the place.
        feature_dim: F, size of a feature.
        side: features of a frame along each side.
        extent: about the radius of an object, where half of the image's side is 1.
        first_iterations: rounds of attention on the first frame.
        iterations: rounds on every later frame, from the slots of the frame before.
        hidden_dim: hidden units of the MLP.
    """

    grid: Tensor

    def __init__(
        self,
        slots: int,
        slot_dim: int,
        feature_dim: int,
        *,
        side: int,
        extent: float = EXTENT,
        first_iterations: int = 3,
        iterations: int = 1,
        hidden_dim: int = 128,
    ) -> None:
        super().__init__()
        require_int("slot_dim", slot_dim, at_least=2 * PLACE + 1)
        require_int("side", side, at_least=1)
        require_int("first_iterations", first_iterations, at_least=1)
        require_int("iterations", iterations, at_least=1)
        require_number("extent", extent, 0.01, 2.0, open_top=False)
        self.slots, self.slot_dim, self.extent = slots, slot_dim, extent
        self.first_iterations, self.iterations = first_iterations, iterations
        self.register_buffer("grid", cell_centres(side), persistent=False)
        self.state = nn.Parameter(torch.randn(slot_dim - 2 * PLACE))
        self.norm_features = nn.LayerNorm(feature_dim)
        self.norm_slots, self.norm_mlp = nn.LayerNorm(slot_dim, bias=False), nn.LayerNorm(slot_dim)
        self.query = nn.Linear(slot_dim, slot_dim, bias=False)
        self.key = nn.Linear(feature_dim, slot_dim, bias=False)
        self.value = nn.Linear(feature_dim, slot_dim, bias=False)
        self.background = nn.Linear(feature_dim, 1)
        self.log_window = nn.Parameter(torch.tensor(extent / 2).log())
        self.gain = nn.Parameter(torch.ones(()))
        self.refine = nn.Linear(slot_dim, 2 * PLACE)
        for parameter in self.refine.parameters():
            nn.init.zeros_(parameter)
        self.gru = GRU(slot_dim + 2 * PLACE, slot_dim)
        self.mlp = nn.Sequential(
            nn.Linear(slot_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, slot_dim)
        )

    def look_at(self, features: Float[Tensor, "T B n F"]) -> list[Seen]:
        """What slots can see of each frame."""
        x = normalise_features(features.flatten(0, 1)).unflatten(0, features.shape[:2])
        layers = (self.key, self.value, self.background)
        key, value, background = (linear(x, *fold_norm(self.norm_features, a)) for a in layers)
        frames = zip(key.unbind(), value.unbind(), background.squeeze(-1).unbind(), strict=True)
        return [Seen(*frame) for frame in frames]

    def begin(self, seen: Seen, slots: int, noise: Tensor | None = None) -> Float[Tensor, "B M D"]:
        """The slots before they have read the first frame; `noise` is for other readers."""
        places = self.first_places(seen.background.detach().float(), slots)
        state = self.state.expand(*places.shape[:2], -1)
        return torch.cat([places, torch.zeros_like(places), state], -1)

    def first_places(self, background: Float[Tensor, "B n"], slots: int) -> Float[Tensor, "B M 2"]:
        """Features of the foreground, each outside of what the ones before it cover."""
        scores = SHARPNESS * F.logsigmoid(-background)
        if self.training:
            scores = scores - torch.rand_like(scores).clamp(1e-6, 1 - 1e-6).log().neg().log()
        free = SHARPNESS * self.uncovered(self.grid)
        places = []
        for _ in range(slots):
            taken = scores.argmax(-1)
            places.append(self.grid[taken])
            scores = scores + free[taken]
        return torch.stack(places, 1)

    def uncovered(
        self, places: Float[Tensor, "*batch 2"], extents: float = COVERED
    ) -> Float[Tensor, "*batch n"]:
        """What a slot at each of these places leaves of the features to others, as a logarithm:
        -inf where the slot is, near 0 from some extents on."""
        away = (places.unsqueeze(-2) - self.grid).square().sum(-1)
        near = away / (extents * self.extent) ** 2
        return (-(near.square())).exp().neg().log1p()

    def read(self, seen: Seen, slots: Float[Tensor, "B M D"], *, first: bool) -> Read:
        with torch.autocast(slots.device.type, enabled=False):
            for _ in range(self.first_iterations if first else self.iterations):
                slots, sight = self._round(seen, slots, gain=0.0 if first else self.gain / FASTEST)
        return Read(slots, sight > LITTLE)

    def shares(self, seen: Seen, slots: Float[Tensor, "B M D"]) -> Float[Tensor, "B M n"]:
        """What each slot sees of each feature; the background has the rest."""
        query = self.query(self.norm_slots(slots)) * self.slot_dim**-0.5
        scores = (query.to(seen.key.dtype) @ seen.key.mT).float()
        window = -0.5 * (-2.0 * self.log_window).exp()
        scores = scores + window * square_distances(slots[..., :PLACE], self.grid)
        claims = torch.cat([scores, seen.background.unsqueeze(1).float()], 1)
        return claims.softmax(1)[:, :-1]

    def _round(
        self, seen: Seen, slots: Float[Tensor, "B M D"], *, gain: float | Tensor
    ) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B M"]]:
        """The new slots, and how many features each of them sees."""
        place, velocity, _ = slots.split([PLACE, PLACE, self.slot_dim - 2 * PLACE], -1)
        share = self.shares(seen, slots)
        sight = share.sum(-1, keepdim=True)
        weights = share / (LITTLE + sight)
        in_sight = weights.sum(-1, keepdim=True)  # nearly 1, or 0 for a slot that sees nothing
        update = (weights.to(seen.value.dtype) @ seen.value).float()
        moved = weights @ self.grid - in_sight * place
        slots = self.gru(torch.cat([update, place + moved, 10.0 * moved], -1), slots)
        slots = slots + self.mlp(self.norm_mlp(slots))
        nearer, faster = (in_sight * self.refine(slots)).chunk(2, -1)
        moved = moved + nearer
        velocity = velocity + gain * (moved + faster)
        slots = torch.cat([place + moved, velocity, slots[..., 2 * PLACE :]], -1)
        return slots, sight.detach().squeeze(-1)
