"""N rules as stacked parameters: every parameter has a leading dimension N, one row a rule.

One batched product then evaluates all of them. Frozen rules act from a snapshot: whatever an
optimiser does to their rows, they stay as they were. What can be done with the rules is in
`ruleset.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor, nn

from nps.rules.check import require_int
from nps.rules.projection import Factory, exact
from nps.rules.slots import unsqueeze_right

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class StackedRules(nn.Module, ABC):
    """The parameters of a `RuleSet`, whose docstring explains the arguments."""

    event_dims = 1
    """How many trailing dimensions a slot has: (D,) here, (C, H, W) for convolutional rules."""

    embedding: nn.Parameter
    applicability: nn.Parameter | None
    retired: Tensor
    frozen_mask: Tensor
    on_mask: Tensor

    _off: frozenset[int] = frozenset()
    """Indices of the rules that are switched off."""

    def __init__(
        self,
        num_rules: int,
        slot_dim: int,
        rule_dim: int,
        action: dict[str, tuple[tuple[int, ...], float]],
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        require_int("num_rules", num_rules, at_least=1)
        require_int("slot_dim", slot_dim, at_least=1)
        require_int("rule_dim", rule_dim, at_least=1)
        self.slot_dim = slot_dim
        self.rule_dim = rule_dim
        self._action = tuple(action)
        self._layout = dict(action)
        self._frozen: set[int] = set()
        shapes = {"embedding": (rule_dim,)} | {name: shape for name, (shape, _) in action.items()}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.empty(num_rules, *shape, **factory)))
        self.applicability = None
        self.reset_parameters()

    def __len__(self) -> int:
        return self.embedding.shape[0]

    def extra_repr(self) -> str:
        return f"{len(self)}, slot_dim={self.slot_dim}, rule_dim={self.rule_dim}"

    @abstractmethod
    def forward(
        self,
        primary: Float[Tensor, "T *slot"],
        context: Float[Tensor, "T *slot"],
        choice: Float[Tensor, "T N"],
    ) -> Float[Tensor, "T *slot"]:
        """The update of each primary slot: Σ_i choice_i · action_i([primary, context]).

        A row of `choice` is one-hot, or zero where no rule fires.
        """

    # -- for the layers -----------------------------------------------------------------------

    def in_every_context(
        self,
        slots: Float[Tensor, "T M *slot"],
        contexts: Bool[Tensor, "T M M"] | None = None,
    ) -> Float[Tensor, "T M N M *slot"]:
        """The update of every slot by every rule with every slot as its context.

        Where `contexts` is False the rule reads zeros in place of the context.
        """
        (t, m), events = slots.shape[:2], self.event_dims
        own = slots.unsqueeze(2).expand(t, m, *slots.shape[1:])
        other = slots.unsqueeze(1).expand_as(own)
        if contexts is not None:
            other = torch.where(unsqueeze_right(contexts, events), other, 0.0)
        updates = self.each(own.flatten(0, 2), other.flatten(0, 2))
        return updates.view(t, m, m, *updates.shape[1:]).transpose(2, 3)

    def each(
        self, primary: Float[Tensor, "T *slot"], context: Float[Tensor, "T *slot"]
    ) -> Float[Tensor, "T N *slot"]:
        """The update of each primary slot by every rule."""
        choices = exact(torch.eye(len(self), dtype=primary.dtype, device=primary.device))
        rows = [self(primary, context, choice.expand(len(primary), -1)) for choice in choices]
        return torch.stack(rows, 1)

    def tensor(self, name: str) -> Tensor:
        """The parameter as it acts: frozen rules from their snapshot, without gradient."""
        parameter = self._parameters[name]
        assert parameter is not None
        if not self._frozen:
            return parameter
        mask = self.frozen_mask.view(-1, *[1] * (parameter.dim() - 1))
        return torch.where(mask, getattr(self, f"frozen_{name}"), parameter)

    def weights(self) -> list[Tensor]:
        """The action's weights and biases, layer by layer, each (N, ...)."""
        return [self.tensor(name) for name in self._action]

    def make_applicable(self, key_dim: int) -> None:
        """Give every rule its block of W^{R_a} (Algorithm 2, step 2), unless it has one."""
        if self.applicability is not None and self.applicability.shape[-1] == key_dim:
            return
        shape = self.rule_dim, key_dim
        self.applicability = nn.Parameter(self.embedding.new_empty(len(self), *shape))
        self.register_buffer("retired", self.embedding.new_zeros(key_dim))
        # Rules added later start with no share in the vote, so the old ones apply where they did.
        self._layout["applicability"] = (shape, 0.0)
        self.reset_applicability()

    def joint_key(self) -> Float[Tensor, "key"]:
        """R_a = Concatenate(R_1 … R_N) W^{R_a}: the rules' joint bid against the null rule."""
        concatenated, matrix = self.tensor("embedding"), self.tensor("applicability")
        with torch.autocast(concatenated.device.type, enabled=False):
            return torch.addmv(self.retired, matrix.flatten(0, 1).t(), concatenated.flatten())

    def _shares(self) -> Float[Tensor, "N key"]:
        # A concatenation times a matrix is the sum over rules of embedding times its own block.
        with torch.autocast(self.embedding.device.type, enabled=False):
            return torch.bmm(self.tensor("embedding")[:, None], self.tensor("applicability"))[:, 0]

    # -- initial values -----------------------------------------------------------------------

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does. Frozen rules stay frozen."""
        self.reset_actions()
        self.reset_applicability()

    @torch.no_grad()
    def reset_actions(self) -> None:
        """Draw conditions and actions."""
        for name in ("embedding", *self._action):
            parameter = self.get_parameter(name)
            parameter.copy_(self._fresh(name, len(self), parameter))
        self._reset_masks()

    @torch.no_grad()
    def reset_applicability(self) -> None:
        """Draw W^{R_a}, if there is one, and forget the shares of removed rules."""
        if self.applicability is not None:
            bound = (len(self) * self.rule_dim) ** -0.5
            self.applicability.copy_(_uniform(self.applicability.shape, bound, self.applicability))
            self.retired.zero_()
        self._reset_masks()

    def _fresh(self, name: str, n: int, like: Tensor | None = None) -> Tensor:
        """New rows: standard normal embeddings, uniform within their bound for the rest."""
        if name == "embedding":
            return torch.randn(n, self.rule_dim, **_options(like))
        shape, bound = self._layout[name]
        return _uniform((n, *shape), bound, like)

    # -- frozen rules -------------------------------------------------------------------------

    @property
    def frozen(self) -> list[int]:
        """Indices of the frozen rules."""
        return sorted(self._frozen)

    def _settle(self) -> None:
        """Restore the frozen values, which an optimiser may have changed."""
        with torch.no_grad():
            for i in self._frozen:
                for name, parameter in self._per_rule():
                    parameter[i] = getattr(self, f"frozen_{name}")[i]

    def _reset_masks(self) -> None:
        """After a change of the rules: make the masks anew and snapshot the frozen rules."""
        n, device = len(self), self.embedding.device
        frozen = torch.tensor([j in self._frozen for j in range(n)], device=device)
        self.register_buffer("frozen_mask", frozen, persistent=False)
        self._buffers.pop("on_mask", None)
        if self._off:
            on = torch.tensor([j not in self._off for j in range(n)], device=device)
            self.register_buffer("on_mask", on, persistent=False)
        for name, parameter in self._per_rule():
            if self._frozen:
                self.register_buffer(f"frozen_{name}", parameter.detach().clone(), persistent=False)
            else:
                self._buffers.pop(f"frozen_{name}", None)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self._settle()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _per_rule(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self._parameters.items() if p is not None]


def _options(like: Tensor | None) -> dict[str, Any]:
    return {} if like is None else {"device": like.device, "dtype": like.dtype}


def _uniform(shape: Sequence[int], bound: float, like: Tensor | None) -> Tensor:
    return (torch.rand(*shape, **_options(like)) * 2.0 - 1.0) * bound
