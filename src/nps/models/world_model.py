"""A world model in the space of slots (section 4.3): encode once, then predict from predictions.

C-SWM's model (Kipf et al. 2020): an encoder from images to slots, and a transition that changes the
slots for an action. It has no decoder; `contrastive.py` has its loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from nps.models.transitions import RuleTransition, Transition
from nps.rules import Trace
from nps.rules.check import require_choice, require_int
from nps.rules.projection import exact

if TYPE_CHECKING:
    from jaxtyping import Float, Int, Shaped

ActionEncoding = Literal["copied", "factored", "numbered"]
FARTHEST = 1e12
"""Roll-outs are clamped to this range: a model that is right for one step may diverge over many."""


class Actions(nn.Module):
    """Discrete actions as one vector per slot.

    `"copied"`: every slot gets the action, one-hot (the paper; C-SWM on Atari). `"factored"`: an
    action is object * directions + direction; the slot with that object's index gets the direction,
    one-hot, and the others get zeros (C-SWM on blocks), so slot m must represent object m.
    `"numbered"`: factored, followed by the slot's own index, one-hot. Slots share one encoder, so
    two of them may look the same although one shows the heavier block.

    Shapes: (...,) -> (..., M, A), where A is `dim`; the last `index_dim` entries are the index.
    """

    def __init__(self, count: int, slots: int, encoding: ActionEncoding) -> None:
        super().__init__()
        require_int("count", count, at_least=1)
        require_int("slots", slots, at_least=1)
        require_choice("encoding", encoding, get_args(ActionEncoding))
        if encoding != "copied" and count % slots:
            raise ValueError(f"count: got {count} actions, expected a multiple of {slots} slots")
        self.count, self.slots, self.encoding = count, slots, encoding
        self.index_dim = slots if encoding == "numbered" else 0
        self.dim = count if encoding == "copied" else count // slots + self.index_dim

    def forward(self, action: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch M A"]:
        actions = torch.arange(self.count, device=action.device)
        chosen = (action.unsqueeze(-1) == actions).float()
        if self.encoding == "copied":
            return chosen.unsqueeze(-2).expand(*action.shape, self.slots, self.dim)
        own = chosen.view(*action.shape, self.slots, -1)
        if self.encoding == "factored":
            return own
        index = torch.eye(self.slots, device=action.device)
        return torch.cat([own, index.expand(*action.shape, -1, -1)], -1)


class ContinuousActions(nn.Module):
    """Continuous actions: every slot gets the same vector.

    Shapes: (..., A) -> (..., M, A), where A is `dim`.
    """

    def __init__(self, dim: int, slots: int) -> None:
        super().__init__()
        require_int("dim", dim, at_least=1)
        require_int("slots", slots, at_least=1)
        self.dim, self.slots, self.index_dim = dim, slots, 0

    def forward(self, action: Float[Tensor, "*batch A"]) -> Float[Tensor, "*batch M A"]:
        return action.unsqueeze(-2).expand(*action.shape[:-1], self.slots, self.dim)


AnyActions = Actions | ContinuousActions


class WorldModel(nn.Module):
    """An encoder and a transition.

    Slots are at least float32, even under autocast: energies are small differences between them.

    Args:
        encoder: images (B, H, W, C) -> slots (B, M, D).
        transition: slots and the actions of `actions` -> slots.
        actions: how an action is given to the slots.
    """

    def __init__(self, encoder: nn.Module, transition: Transition, actions: AnyActions) -> None:
        super().__init__()
        self.encoder, self.transition, self.actions = encoder, transition, actions

    @property
    def noise_size(self) -> int:
        """Uniform random numbers per example that a prediction needs in training."""
        return self.transition.noise_size(self.actions.slots)

    def encode(self, images: Shaped[Tensor, "B H W C"]) -> Float[Tensor, "B M D"]:
        return exact(self.encoder(images))

    def predict(
        self,
        slots: Float[Tensor, "B M D"],
        action: Int[Tensor, "B"] | Float[Tensor, "B A"],
        noise: Float[Tensor, "B noise"] | None = None,
    ) -> Float[Tensor, "B M D"]:
        """The slots after an action."""
        new: Tensor = self.transition(slots, self.actions(action).to(slots.dtype), noise)
        return new

    def propose(
        self,
        slots: Float[Tensor, "B M D"],
        action: Int[Tensor, "B"] | Float[Tensor, "B A"],
        noise: Float[Tensor, "B noise"] | None = None,
    ) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B M"]]:
        """What an `AdaptiveNPS` would make of every slot, and what that is worth to it."""
        assert isinstance(self.transition, RuleTransition)
        return self.transition.propose(slots, self.actions(action).to(slots.dtype), noise)

    def every_update(
        self, slots: Float[Tensor, "B M D"], action: Int[Tensor, "B"] | Float[Tensor, "B A"]
    ) -> tuple[Float[Tensor, "B M N M"], Float[Tensor, "B M N M D"]]:
        """All updates that the rules could make, and the log-probability of each."""
        assert isinstance(self.transition, RuleTransition)
        return self.transition.every_update(slots, self.actions(action).to(slots.dtype))

    def traced(
        self, slots: Float[Tensor, "B M D"], action: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B M D"], Trace]:
        """The slots after an action, and the trace of the rules that changed them."""
        if not isinstance(self.transition, RuleTransition):
            kind = type(self.transition).__name__
            raise ValueError(
                f"transition: got {kind}, expected a RuleTransition: others have no trace"
            )
        return self.transition.traced(slots, self.actions(action).to(slots.dtype))

    def rollout(
        self,
        slots: Float[Tensor, "B M D"],
        actions: Int[Tensor, "B T"] | Float[Tensor, "B T A"],
    ) -> Float[Tensor, "B T M D"]:
        """The slots after each of T actions, each predicted from the prediction before."""
        steps: list[Tensor] = []
        for action in actions.unbind(1):
            slots = self.predict(slots, action).clamp(-FARTHEST, FARTHEST)
            steps.append(slots)
        return torch.stack(steps, 1)

    def forward(
        self,
        images: Shaped[Tensor, "B H W C"],
        action: Int[Tensor, "B"] | Float[Tensor, "B A"],
        noise: Float[Tensor, "B noise"] | None = None,
    ) -> Float[Tensor, "B M D"]:
        return self.predict(self.encode(images), action, noise)
