"""Apply a transition many times: the long roll-outs of world models.

On CUDA the step is captured after its first applications and replayed, so that a roll-out
of a hundred steps costs a hundred launches, not a hundred times those of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from nps.capture import Captured
from nps.rules import Trace

if TYPE_CHECKING:
    from jaxtyping import Float


class Rollout(NamedTuple):
    """What a model predicts over T steps of E episodes, and what is true."""

    slots: Float[Tensor, "E T M D"]
    """The predicted slots after each step."""
    true: Float[Tensor, "E T M D"] | None
    """The slots of the true observations, if these are known."""
    trace: Trace | None
    """What fired at each step, (E, T, K, M); None of models without rules."""

    def __repr__(self) -> str:
        true = None if self.true is None else tuple(self.true.shape)
        trace = None if self.trace is None else tuple(self.trace.rule.shape)
        sizes = f"slots={tuple(self.slots.shape)}, true={true}, trace={trace}"
        return f"Rollout({sizes}, device={self.slots.device})"


@torch.no_grad()
def rollout(
    transition: Callable[..., Tensor],
    slots: Float[Tensor, "*batch M D"],
    steps: int,
    *inputs: Float[Tensor, "steps ..."],
    capture: bool = True,
) -> Float[Tensor, "steps *batch M D"]:
    """The slots after each of `steps` applications of a transition, each fed the one before.

    Args:
        transition: `transition(slots, *inputs_of_the_step) -> slots`, e.g. a rule layer in
            evaluation mode. With capture it must not read anything on the host; ours do not.
        slots: the initial slots.
        steps: number of applications.
        inputs: further inputs of the transition, with one row per step, e.g. actions.
        capture: on CUDA, replay the step as a graph.
    """
    if steps < 1:
        raise ValueError(f"steps: got {steps}, expected at least 1")
    for sequence in inputs:
        if sequence.shape[:1] != (steps,):
            raise ValueError(
                f"inputs: got shape {tuple(sequence.shape)}, expected {steps} steps first"
            )
    state = slots.clone()
    history = state.new_empty(steps, *state.shape)
    now = torch.zeros(1, dtype=torch.long, device=slots.device)

    def step() -> None:
        taken = [sequence.index_select(0, now).squeeze(0) for sequence in inputs]
        state.copy_(transition(state, *taken))
        history.index_copy_(0, now, state.unsqueeze(0))
        now.add_(1)

    run = Captured(step) if capture and slots.is_cuda else step
    for _ in range(steps):
        run()
    return history
