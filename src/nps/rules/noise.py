"""The randomness of a call: one tensor of uniform numbers, and which choice uses which of them.

The tensor is passed in, or drawn by the layer from a given generator or torch's own. A training
step is therefore a function of (weights, batch, noise), the same eager, compiled, under vmap and
after a resume; and each call draws once, not once per choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.rules.check import require_type
from nps.rules.choice import gumbel

if TYPE_CHECKING:
    from jaxtyping import Float

Noise = Tensor | torch.Generator


class StageNoise(NamedTuple):
    """The noise of one stage: Gumbel for its choices, uniform for the dropout of scores."""

    choices: Sequence[Tensor | None]
    drop: Float[Tensor, "*batch M N"] | None
    drop_context: Float[Tensor, "*batch P M"] | None


class Shares(NamedTuple):
    """How the numbers of a call are divided: a row for each stage, in the order of the fields."""

    stages: int
    choices: Sequence[tuple[int, ...]]
    """Shapes of a stage's choices, the context's last; their numbers become Gumbel noise."""
    drop: tuple[int, int] | None
    """(M, N), if scores of rules may be dropped."""
    drops_context: bool

    @property
    def sizes(self) -> list[int]:
        """How many numbers each choice takes, then the two dropouts."""
        choices = [math.prod(shape) for shape in self.choices]
        rules = 0 if self.drop is None else math.prod(self.drop)
        return [*choices, rules, choices[-1] * self.drops_context]

    def shape(self, *batch: int) -> tuple[int, ...]:
        return (*batch, self.stages, sum(self.sizes))

    def uniform(
        self, noise: Noise | None, batch: tuple[int, ...], device: torch.device
    ) -> Float[Tensor, "*batch K U"]:
        shape = self.shape(*batch)
        if isinstance(noise, Tensor):
            if tuple(noise.shape) != shape:
                raise ValueError(f"noise: got shape {tuple(noise.shape)}, expected {shape}")
            return noise.to(device)
        if noise is not None:
            require_type("noise", noise, torch.Generator, "a tensor or a torch.Generator")
            if _recomputing():
                raise RuntimeError(
                    "noise: got a torch.Generator inside torch.utils.checkpoint, where it draws "
                    "different numbers when the call is recomputed; draw them outside: "
                    "noise=torch.rand(layer.noise_shape(...), generator=generator)"
                )
        return torch.rand(shape, generator=noise, device=device)

    def of_stages(self, uniform: Float[Tensor, "*batch K U"] | None) -> list[StageNoise]:
        """The noise of each stage. Gumbel noise is computed for all stages at once."""
        if uniform is None:
            return [StageNoise([None] * len(self.choices), None, None)] * self.stages
        *sizes, rules, contexts = self.sizes
        for_choices, for_rules, for_contexts = uniform.split([sum(sizes), rules, contexts], -1)
        shared = []
        stages = (x.unbind(-2) for x in (gumbel(for_choices), for_rules, for_contexts))
        for noise, drop, drop_context in zip(*stages, strict=True):
            parts = zip(noise.split(sizes, -1), self.choices, strict=True)
            choices = [part.unflatten(-1, shape) for part, shape in parts]
            of_rules = None if self.drop is None else drop.unflatten(-1, self.drop)
            of_contexts = drop_context.unflatten(-1, self.choices[-1]) if contexts else None
            shared.append(StageNoise(choices, of_rules, of_contexts))
        return shared


def _recomputing() -> bool:
    """True inside a backward pass, where torch.utils.checkpoint repeats the forward pass.

    For that it restores torch's own generators, but no others.
    """
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
