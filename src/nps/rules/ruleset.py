"""A set of N rules that can be counted, named, added to, removed from, frozen and switched off.

The paper asks that a rule "can be intervened (added, modified or deleted) independently of other
production rules" (section 2). All rules are stored stacked, every parameter with a leading
dimension N, so that one batched product evaluates them; the operations below work on that
dimension. A rule never depends on another: removing or disabling rule i leaves every other rule as
it was, bit for bit, wherever rule i was not the winner.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nps.rules.check import require_int, require_type

if TYPE_CHECKING:
    from jaxtyping import Float


class RuleSet(nn.Module, ABC):
    """N rules R_i = (embedding, action). Subclasses say what the action is.

    Args:
        num_rules: number of rules N.
        slot_dim: size of a slot (its channels, for convolutional rules).
        rule_dim: size of a rule's embedding, its condition.
        action: name -> (shape of one rule's parameter, bound of its uniform initialisation).
    """

    event_dims = 1
    """How many trailing dimensions a slot has: (D,) here, (C, H, W) for convolutional rules."""

    embedding: nn.Parameter
    applicability: nn.Parameter | None
    retired: Tensor
    enabled: Tensor
    frozen_mask: Tensor

    def __init__(
        self,
        num_rules: int,
        slot_dim: int,
        rule_dim: int,
        action: dict[str, tuple[tuple[int, ...], float]],
    ) -> None:
        super().__init__()
        require_int("num_rules", num_rules, at_least=1)
        require_int("slot_dim", slot_dim, at_least=1)
        require_int("rule_dim", rule_dim, at_least=1)
        self.slot_dim = slot_dim
        self.rule_dim = rule_dim
        self.names = [f"rule {i}" for i in range(num_rules)]
        self._layout = dict(action)
        self._frozen: set[int] = set()
        self._disabled: set[int] = set()
        self.embedding = nn.Parameter(torch.randn(num_rules, rule_dim))
        for name in action:
            setattr(self, name, nn.Parameter(self._fresh(name, num_rules)))
        self.applicability = None
        self._reset_masks()

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

    # -- operations ---------------------------------------------------------------------------

    def add(self, n: int = 1) -> range:
        """Append n new rules and return their indices.

        Parameters are replaced by longer ones, so build a new optimiser afterwards. The values of
        the old rules, frozen or not, stay as they are.
        """
        require_int("n", n, at_least=1)
        self._settle()
        first = len(self)
        for name, parameter in self._per_rule():
            rows = self._fresh(name, n).to(parameter)
            self._replace(name, torch.cat([parameter.detach(), rows]))
        unused = (f"rule {i}" for i in itertools.count() if f"rule {i}" not in self.names)
        self.names += list(itertools.islice(unused, n))
        self._reset_masks()
        return range(first, first + n)

    def remove(self, i: int) -> None:
        """Delete rule i. Later rules move up by one, with their names."""
        i = self._index(i)
        if len(self) == 1:
            raise ValueError("remove: the last rule cannot be removed")
        self._settle()
        if self.applicability is not None:
            # The rules' joint vote against the null rule keeps rule i's share, else removing it
            # would change which slots the other rules apply to.
            self.retired = self.retired + self._shares()[i].detach()
        for name, parameter in self._per_rule():
            kept = torch.cat([parameter.detach()[:i], parameter.detach()[i + 1 :]])
            self._replace(name, kept)
        del self.names[i]
        self._frozen = {j - (j > i) for j in self._frozen if j != i}
        self._disabled = {j - (j > i) for j in self._disabled if j != i}
        self._reset_masks()

    def freeze(self, i: int) -> None:
        """Hold rule i at its present values under any optimiser, weight decay and momentum too."""
        i = self._index(i)
        self._settle()
        self._frozen.add(i)
        self._reset_masks()

    def unfreeze(self, i: int) -> None:
        """Let rule i learn again, from the values it was frozen at."""
        i = self._index(i)
        self._settle()
        self._frozen.discard(i)
        self._reset_masks()

    @property
    def frozen(self) -> list[int]:
        """Indices of the frozen rules."""
        return sorted(self._frozen)

    def copy_from(self, other: RuleSet, i: int, *, to: int | None = None) -> None:
        """Overwrite rule `to` (default: i) with rule i of another rule set: condition and action.

        The condition is an embedding that the layer's own W^k reads: between layers with different
        W^k the copied rule acts the same but may be chosen on other slots.
        """
        require_type("other", other, RuleSet, "a rule set")
        source = other._index(i)
        target = self._index(i if to is None else to)
        theirs = dict(other._per_rule())
        for name, parameter in self._per_rule():
            if name not in theirs or theirs[name].shape[1:] != parameter.shape[1:]:
                found = tuple(theirs[name].shape[1:]) if name in theirs else "none"
                raise ValueError(
                    f"copy_from: other's {name} has shape {found}, expected "
                    f"{tuple(parameter.shape[1:])}"
                )
        other._settle()
        self._settle()
        with torch.no_grad():
            for name, parameter in self._per_rule():
                parameter[target] = theirs[name][source].to(parameter)
        if other.names[source] not in self.names:
            self.names[target] = other.names[source]
        self._reset_masks()

    @contextmanager
    def disabled(self, i: int) -> Iterator[None]:
        """While the context is open rule i cannot fire; the next best takes its place."""
        i = self._index(i)
        before = set(self._disabled)
        self._disabled.add(i)
        self._mark_enabled()
        try:
            yield
        finally:
            self._disabled = before
            self._mark_enabled()

    # -- for the layers -----------------------------------------------------------------------

    def tensor(self, name: str) -> Tensor:
        """The parameter as it acts: frozen rules from their snapshot, without gradient."""
        parameter = self._parameters[name]
        assert parameter is not None
        if not self._frozen:
            return parameter
        mask = self.frozen_mask.view(-1, *[1] * (parameter.dim() - 1))
        return torch.where(mask, getattr(self, f"frozen_{name}"), parameter)

    def allowed(self) -> Tensor | None:
        """Which rules may fire, (N,), or None when all may."""
        return self.enabled if self._disabled else None

    def make_applicable(self, key_dim: int) -> None:
        """Give every rule its block of W^{R_a} (Algorithm 2, step 2), unless it has one."""
        if self.applicability is not None and self.applicability.shape[-1] == key_dim:
            return
        n = len(self)
        self._layout["applicability"] = ((self.rule_dim, key_dim), (n * self.rule_dim) ** -0.5)
        rows = self._fresh("applicability", n).to(self.embedding)
        self.applicability = nn.Parameter(rows)
        self.register_buffer("retired", torch.zeros(key_dim).to(self.embedding))
        # Rules added later start with no share in the vote, so the old ones apply where they did.
        self._layout["applicability"] = ((self.rule_dim, key_dim), 0.0)
        self._reset_masks()

    def joint_key(self) -> Float[Tensor, "key"]:
        """R_a = Concatenate(R_1 … R_N) W^{R_a}: the rules' joint bid against the null rule."""
        concatenated, matrix = self.tensor("embedding"), self.tensor("applicability")
        with torch.autocast(concatenated.device.type, enabled=False):
            return torch.addmv(self.retired, matrix.flatten(0, 1).t(), concatenated.flatten())

    def _shares(self) -> Float[Tensor, "N key"]:
        # A concatenation times a matrix is the sum over rules of embedding times its own block.
        with torch.autocast(self.embedding.device.type, enabled=False):
            return torch.bmm(self.tensor("embedding")[:, None], self.tensor("applicability"))[:, 0]

    # -- bookkeeping --------------------------------------------------------------------------

    def _per_rule(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self._parameters.items() if p is not None]

    def _fresh(self, name: str, n: int) -> Tensor:
        """New rows: standard normal embeddings, uniform within their bound for the rest."""
        if name == "embedding":
            return torch.randn(n, self.rule_dim)
        shape, bound = self._layout[name]
        return (torch.rand(n, *shape) * 2.0 - 1.0) * bound

    def _index(self, i: int) -> int:
        require_int("rule index", i)
        if not -len(self) <= i < len(self):
            raise ValueError(f"rule index: got {i}, expected 0 to {len(self) - 1}")
        return i % len(self)

    def _replace(self, name: str, value: Tensor) -> None:
        setattr(self, name, nn.Parameter(value.clone()))

    def _settle(self) -> None:
        """Restore the frozen values, which an optimiser may have changed."""
        with torch.no_grad():
            for i in self._frozen:
                for name, parameter in self._per_rule():
                    parameter[i] = getattr(self, f"frozen_{name}")[i]

    def _mark_enabled(self) -> None:
        marks = [j not in self._disabled for j in range(len(self))]
        enabled = torch.tensor(marks, device=self.embedding.device)
        self.register_buffer("enabled", enabled, persistent=False)

    def _reset_masks(self) -> None:
        """After a change of the rules: resize the masks and snapshot the frozen rules."""
        n, device = len(self), self.embedding.device
        self._mark_enabled()
        frozen = torch.tensor([j in self._frozen for j in range(n)], device=device)
        self.register_buffer("frozen_mask", frozen, persistent=False)
        for name, parameter in self._per_rule():
            if self._frozen:
                self.register_buffer(f"frozen_{name}", parameter.detach().clone(), persistent=False)
            else:
                self._buffers.pop(f"frozen_{name}", None)

    # -- saving: names and frozen rules travel in the state dict, as JSON in a tensor ------------

    def get_extra_state(self) -> Tensor:
        text = json.dumps({"names": self.names, "frozen": self.frozen})
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        saved = json.loads(bytes(state.tolist()).decode())
        self.names = list(saved["names"])
        self._frozen = set(saved["frozen"])
        self._reset_masks()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self._settle()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Take over the saved number of rules: surgery may have changed it since construction."""
        saved = state_dict.get(prefix + "embedding")
        if saved is not None and saved.dim() == 2 and saved.shape[0] != len(self):
            for name, parameter in self._per_rule():
                rows = parameter.detach().new_empty(saved.shape[0], *parameter.shape[1:])
                self._replace(name, rows)
        super()._load_from_state_dict(state_dict, prefix, *args)
