"""OP3 and OP3 with rules, the model of Sprites-MOT (paper, section 4.3; Veerapaneni et al. 2019).

A slot is a latent, and an object is what explains a part of the picture. Slots are refined on a
frame, moved to the next one, refined again:

    frame t ──► refine ──► refine ──► dynamics ──► refine ──► refine ──► dynamics ──► …
                   ▲                                   ▲
                draw, compare with frame t          draw, compare with frame t + 1

The dynamics let the slots interact: OP3 by effects between all pairs, the paper by sequential NPS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nps.interactions.pairwise import Pairwise, elu_mlp
from nps.models.op3_schedule import Step, require_schedule
from nps.models.op3_state import State, divergence, softplus_inverse
from nps.perception.refinement import BroadcastConvs, Refinement, Standardise
from nps.rules import ParallelNPS, RuleConfig, RuleLayer, SequentialNPS, Trace

if TYPE_CHECKING:
    from jaxtyping import Float

Kind = Literal["op3", "snps", "pnps", "none"]
"""What takes place between the slots."""

SIGMA = 0.1
"""Standard deviation of a pixel's colour."""
DENSITY = 1.0 / (SIGMA**3 * (2 * torch.pi) ** 3)
"""Factor of the density of a colour, as published: with (2π)³, where a normal distribution of three
numbers has its root. The square in the exponent is divided by the channels, too (`OP3.loss`)."""
CHANNELS = 3


class Drawn(NamedTuple):
    """What K slots draw."""

    colours: Float[Tensor, "B K 3 S S"]
    masks: Float[Tensor, "B K 1 S S"]
    logits: Float[Tensor, "B K 1 S S"]


class Loss(NamedTuple):
    """Of a frame, as a mean over the batch."""

    total: Float[Tensor, ""]
    pixels: Float[Tensor, ""]
    divergence: Float[Tensor, ""]
    likelihood: Float[Tensor, "B S S"]
    """Of each pixel."""
    of_slots: Float[Tensor, "B K S S"]
    """Of each pixel, if it were a slot's."""


class Moment(NamedTuple):
    """A step of the schedule and what is there after it."""

    step: Step
    frame: int
    drawn: Drawn
    state: State
    loss: Loss | None
    """Without a picture: None."""
    trace: Trace | None
    """What fired, if the step is a move and rules are what interacts."""


class Dynamics(nn.Module):
    """The slots in the next frame: inertia, interaction, and a new distribution.

    Args:
        interaction: what takes place between slots; None: nothing.
        latent_dim: R.

    Shapes: (B, K, 2R) -> fixed, mean and spread, (B, K, R) each.
    """

    def __init__(self, interaction: nn.Module | None, latent_dim: int) -> None:
        super().__init__()
        size = 2 * latent_dim
        self.inertia = elu_mlp(size, size, size)
        self.interaction = interaction
        self.fixed, self.mean, self.spread = (
            nn.Sequential(nn.Linear(size, size), nn.ELU(), nn.Linear(size, latent_dim))
            for _ in range(3)
        )

    def forward(
        self, slots: Float[Tensor, "B K 2R"], *, return_trace: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Trace | None]:
        slots, trace = self.interact(self.alone(slots), return_trace=return_trace)
        return *self.expect(slots), trace

    def alone(self, slots: Float[Tensor, "B K 2R"]) -> Float[Tensor, "B K 2R"]:
        """Each slot after its inertia: what interacts."""
        moved: Tensor = self.inertia(slots).to(slots.dtype)
        return moved

    def interact(
        self, moved: Float[Tensor, "B K 2R"], *, return_trace: bool = False
    ) -> tuple[Float[Tensor, "B K 2R"], Trace | None]:
        """Moved slots after their interaction, and what fired."""
        if isinstance(self.interaction, RuleLayer) and return_trace:
            slots, trace = self.interaction(moved, return_trace=True)
            return slots, trace
        return moved if self.interaction is None else self.interaction(moved), None

    def expect(self, slots: Float[Tensor, "B K 2R"]) -> tuple[Tensor, Tensor, Tensor]:
        """Fixed part, mean and spread in the next frame."""
        fixed, mean, spread = (
            head(slots).to(slots.dtype) for head in (self.fixed, self.mean, self.spread)
        )
        return fixed, mean, spread


class OP3(nn.Module):
    """Objects by refinement, and where they go.

    Args:
        interaction: what takes place between slots; None: nothing.
        size: side of the frames.
        latent_dim: R, size of each half of a slot (OP3: 64).
        channels: of the convolutions (OP3: 32).
        hidden_dim: of the refinement's LSTM (OP3: 128).
        beta: weight of the divergence (OP3: 0.01).
    """

    def __init__(
        self,
        interaction: nn.Module | None,
        size: int = 64,
        *,
        latent_dim: int = 64,
        channels: int = 32,
        hidden_dim: int = 128,
        beta: float = 1e-2,
    ) -> None:
        super().__init__()
        self.size, self.latent_dim, self.hidden_dim, self.beta = size, latent_dim, hidden_dim, beta
        self.decoder = BroadcastConvs(2 * latent_dim, size, channels)
        self.refinement = Refinement(latent_dim, size, channels=channels, hidden_dim=hidden_dim)
        self.dynamics = Dynamics(interaction, latent_dim)
        self.of_masks, self.of_pixels, self.of_others, self.of_colours = (
            Standardise(n, uniform=True) for n in (1, 1, 1, 3)
        )
        self.of_mean, self.of_spread = (Standardise(latent_dim, epsilon=1e-6) for _ in range(2))
        self.first_fixed, self.first_mean, self.first_spread = (
            nn.Parameter(torch.randn(latent_dim) / latent_dim**0.5) for _ in range(3)
        )

    @property
    def interaction(self) -> nn.Module | None:
        """What takes place between slots."""
        return self.dynamics.interaction

    def forward(
        self,
        frames: Float[Tensor, "B T 3 S S"],
        schedule: Sequence[Step],
        slots: int,
        *,
        noise: Float[Tensor, "B K R"] | None = None,
        return_trace: bool = False,
    ) -> Iterator[Moment]:
        """Run a schedule; what is there after each of its steps.

        Args:
            frames: from 0 to 1. A move beyond the last one is made without a picture.
            schedule: of refinements and moves, as `rprp` makes it.
            slots: K.
            noise: of the first latents; drawn by default, in evaluation too: it is all that tells
                the slots apart.
            return_trace: also record what fires.
        """
        require_schedule(schedule, frames.shape[1])
        state, frame, trace = self.begin(len(frames), slots, noise), 0, None
        drawn = self.draw(state)
        loss: Loss | None = self.loss(state, drawn, frames[:, 0])
        for step in schedule:
            if step == "refine":
                assert loss is not None  # as the schedule was checked
                state, trace = self.refine(state, drawn, loss, frames[:, frame]), None
            else:
                state, trace = self.move(state, return_trace=return_trace)
                frame += 1
            drawn = self.draw(state)
            seen = frame < frames.shape[1]
            loss = self.loss(state, drawn, frames[:, frame]) if seen else None
            yield Moment(step, frame, drawn, state, loss, trace)

    def begin(self, batch: int, slots: int, noise: Tensor | None = None) -> State:
        fixed, mean, spread = (
            x.expand(batch, slots, -1)
            for x in (self.first_fixed, self.first_mean, self.first_spread)
        )
        none = mean.new_zeros(batch, slots, self.hidden_dim)
        standard = torch.full_like(mean, softplus_inverse(1.0))
        noise = torch.randn_like(mean) if noise is None else noise
        return State(fixed, mean, spread, noise, torch.zeros_like(mean), standard, none, none)

    def draw(self, state: State) -> Drawn:
        return self.draw_slots(state.slots, state.mean.dtype)

    def draw_slots(self, slots: Float[Tensor, "B K 2R"], dtype: torch.dtype) -> Drawn:
        """As `draw`, of slots alone."""
        drawn = self.decoder(slots.flatten(0, 1)).to(dtype).unflatten(0, slots.shape[:2])
        colours, logits = drawn.split([CHANNELS, 1], 2)
        return Drawn(colours, logits.softmax(1), logits)

    def loss(self, state: State, drawn: Drawn, frame: Float[Tensor, "B 3 S S"]) -> Loss:
        """-log of the pixels' likelihood, and β times the divergence from what was expected."""
        far = (drawn.colours - frame.unsqueeze(1)).square().sum(2)
        of_slots = DENSITY * (far / (-2.0 * CHANNELS * SIGMA**2)).exp()
        likelihood = (drawn.masks.squeeze(2) * of_slots).sum(1)
        pixels = -(likelihood + 1e-12).log().sum() / len(frame)
        parts = state.mean, state.spread, state.prior_mean, state.prior_spread
        apart = divergence(*parts).sum() / len(frame)
        return Loss(pixels + self.beta * apart, pixels, apart, likelihood, of_slots)

    def refine(
        self, state: State, drawn: Drawn, loss: Loss, frame: Float[Tensor, "B 3 S S"]
    ) -> State:
        """A better latent for each slot, from what it drew and how good that was. Gradients of the
        loss are inputs, and not learned through."""
        if not torch.is_grad_enabled():
            return self.refine_without_learning(state, frame)
        wanted = drawn.colours, drawn.masks, state.mean, state.spread
        of_colours, of_masks, of_mean, of_spread = torch.autograd.grad(
            loss.total, wanted, retain_graph=True
        )
        k = state.mean.shape[1]
        share = loss.of_slots / (loss.of_slots.sum(1, keepdim=True) + 1e-8)
        pixels = loss.likelihood.unsqueeze(1)
        others = pixels - drawn.masks.squeeze(2) * loss.of_slots
        images = [
            frame.unsqueeze(1).expand_as(drawn.colours),
            drawn.colours,
            drawn.masks,
            drawn.logits,
            share.unsqueeze(2),
            apply(self.of_masks, of_masks),
            apply(self.of_pixels, pixels.expand_as(share).unsqueeze(2).detach()),
            apply(self.of_others, others.unsqueeze(2).detach()),
            apply(self.of_colours, of_colours),
        ]
        vectors = [
            apply(self.of_mean, of_mean),
            apply(self.of_spread, of_spread),
            state.mean,
            state.spread,
            state.latent,
        ]
        mean, spread, memory = self.refinement(
            torch.cat(images, 2).flatten(0, 1),
            torch.cat(vectors, -1).flatten(0, 1),
            (state.hidden.flatten(0, 1), state.cell.flatten(0, 1)),
        )
        mean, spread, hidden, cell = (
            x.to(state.mean.dtype).unflatten(0, (-1, k)) for x in (mean, spread, *memory)
        )
        noise = self._noise(mean)
        return state._replace(mean=mean, spread=spread, noise=noise, hidden=hidden, cell=cell)

    def refine_without_learning(self, state: State, frame: Float[Tensor, "B 3 S S"]) -> State:
        """As `refine`, without a gradient of what comes out. It draws the slots itself."""
        with torch.enable_grad():
            state = state.detach()
            state.mean.requires_grad_()
            state.spread.requires_grad_()
            drawn = self.draw(state)
            loss = self.loss(state, drawn, frame)
            return self.refine(state, drawn, loss, frame).detach()

    def move(self, state: State, *, return_trace: bool = False) -> tuple[State, Trace | None]:
        """The next frame's slots as expected. The refinement forgets."""
        return self.go_on(state, self.dynamics.alone(state.slots), return_trace=return_trace)

    def go_on(
        self, state: State, moved: Float[Tensor, "B K 2R"], *, return_trace: bool = False
    ) -> tuple[State, Trace | None]:
        """As `move`, from slots that are already moved by their inertia."""
        slots, trace = self.dynamics.interact(moved, return_trace=return_trace)
        fixed, mean, spread = self.dynamics.expect(slots)
        none = torch.zeros_like(state.hidden)
        return State(fixed, mean, spread, self._noise(mean), mean, spread, none, none), trace

    def _noise(self, mean: Tensor) -> Tensor:
        """Drawn in training; in evaluation the likeliest latents count."""
        return torch.randn_like(mean) if self.training else torch.zeros_like(mean)


def apply(standardise: Standardise, x: Float[Tensor, "B K *rest"]) -> Float[Tensor, "B K *rest"]:
    """For each slot by itself."""
    new: Tensor = standardise(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    return new


def make_interaction(kind: Kind, rules: RuleConfig, *, latent_dim: int = 64) -> nn.Module | None:
    """The layer between slots."""
    match kind:
        case "op3":
            return Pairwise(2 * latent_dim)
        case "snps":
            return SequentialNPS.from_config(rules, 2 * latent_dim)
        case "pnps":
            return ParallelNPS.from_config(rules, 2 * latent_dim)
        case "none":
            return None
