"""A set of N rules that can be counted, named, added to, removed from, frozen and switched off.

The paper asks that a rule "can be intervened (added, modified or deleted) independently of other
production rules" (section 2). All rules are stored stacked, every parameter with a leading
dimension N, so that one batched product evaluates them; the operations below work on that
dimension. A rule never depends on another: removing or disabling rule i leaves every other rule as
it was, bit for bit, wherever rule i was not the winner.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from nps.rules.check import require_int, require_type, shown
from nps.rules.names import Names, without_repetitions
from nps.rules.optimisers import require_optimiser, set_rows
from nps.rules.projection import Factory
from nps.rules.rule import Rule
from nps.rules.switch import Switches

if TYPE_CHECKING:
    from jaxtyping import Float

Which = int | str | Rule
"""A rule by its index, its name, or its view."""


class RuleSet(nn.Module, ABC):
    """N rules R_i = (embedding, action). Subclasses say what the action is.

    `rules[2]` or `rules["push"]` is a `Rule`, a view of one rule, and iteration gives all of them.
    Wherever an operation takes a rule, its index or name will do.

    Args:
        num_rules: number of rules N.
        slot_dim: size of a slot (its channels, for convolutional rules).
        rule_dim: size of a rule's embedding, its condition.
        action: name -> (shape of one rule's parameter, bound of its uniform initialisation).
        device, dtype: of the parameters.
    """

    event_dims = 1
    """How many trailing dimensions a slot has: (D,) here, (C, H, W) for convolutional rules."""

    embedding: nn.Parameter
    applicability: nn.Parameter | None
    retired: Tensor
    frozen_mask: Tensor

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
        self._names = Names.numbered(num_rules)
        self._action = tuple(action)
        self._layout = dict(action)
        self._frozen: set[int] = set()
        self._switches = Switches(num_rules)
        shapes = {"embedding": (rule_dim,)} | {name: shape for name, (shape, _) in action.items()}
        for name, shape in shapes.items():
            rows = torch.empty(num_rules, *shape, **factory)
            setattr(self, name, nn.Parameter(rows))
        self.applicability = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the constructor does. Frozen rules stay frozen."""
        self.reset_actions()
        self.reset_applicability()

    def __len__(self) -> int:
        return self.embedding.shape[0]

    def __getitem__(self, which: Which) -> Rule:
        return Rule(self, self._switches.numbers[self._index(which)])

    def __iter__(self) -> Iterator[Rule]:
        return (Rule(self, number) for number in list(self._switches.numbers))

    def __contains__(self, name: object) -> bool:
        return name in self._names if isinstance(name, str) else name in list(self)

    @property
    def names(self) -> Names:
        """The name of each rule, `rule 0` and so on until you change it. No two are the same."""
        return self._names

    @names.setter
    def names(self, names: Sequence[str]) -> None:
        if isinstance(names, str) or len(names) != len(self):
            got = shown(names) if isinstance(names, str) else len(names)
            raise ValueError(f"names: got {got}, expected {len(self)}, one for each rule")
        self._names = Names(names)

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

    def add(self, n: int = 1, *, optimizer: Optimizer | None = None) -> range:
        """Append n new rules and return their indices.

        The values of the old rules, frozen or not, stay as they are. The parameters are the same
        objects as before, so an optimiser made earlier trains the new rules too.

        Args:
            n: how many.
            optimizer: one that has already taken steps and is to continue. Its moments are kept for
                the old rules and zero for the new ones. If you neither pass it nor make a new one,
                its next step fails, because its moments have the old number of rules.
        """
        require_int("n", n, at_least=1)
        require_optimiser(optimizer, [p for _, p in self._per_rule()])
        self._settle()
        first = len(self)
        for name, parameter in self._per_rule():
            rows = torch.cat([parameter.detach(), self._fresh(name, n).to(parameter)])
            set_rows(
                parameter, rows, lambda x: torch.cat([x, x.new_zeros(n, *x.shape[1:])]), optimizer
            )
            parameter.requires_grad_()
        self._names.grow(n)
        self._switches.add(n)
        self._reset_masks()
        return range(first, first + n)

    def remove(self, which: Which, *, optimizer: Optimizer | None = None) -> None:
        """Delete a rule. Later rules move up by one, with their names; `optimizer` as for `add`."""
        i = self._index(which)
        if len(self) == 1:
            raise ValueError("remove: the last rule cannot be removed")
        require_optimiser(optimizer, [p for _, p in self._per_rule()])
        self._settle()
        if self.applicability is not None:
            # The rules' joint vote against the null rule keeps rule i's share, else removing it
            # would change which slots the other rules apply to.
            self.retired = self.retired + self._shares()[i].detach()

        def others(x: Tensor) -> Tensor:
            return torch.cat([x[:i], x[i + 1 :]])

        for _, parameter in self._per_rule():
            set_rows(parameter, others(parameter.detach()), others, optimizer)
        self._names.remove_at(i)
        self._switches.remove(i)
        self._frozen = {j - (j > i) for j in self._frozen if j != i}
        self._reset_masks()

    def resize(self, n: int, *, optimizer: Optimizer | None = None) -> None:
        """Add new rules, or remove the last ones, until there are n.

        A state dict loads only into as many rules as it has: `rules.resize(n)` prepares for one
        that was saved after rules had been added or removed.
        """
        require_int("n", n, at_least=1)
        if n > len(self):
            self.add(n - len(self), optimizer=optimizer)
        while len(self) > n:
            self.remove(-1, optimizer=optimizer)

    def freeze(self, *which: Which) -> None:
        """Hold rules at their present values under any optimiser, weight decay and momentum too."""
        indices = [self._index(each) for each in which]
        self._settle()
        self._frozen.update(indices)
        self._reset_masks()

    def unfreeze(self, *which: Which) -> None:
        """Let rules learn again, from the values they were frozen at."""
        indices = [self._index(each) for each in which]
        self._settle()
        self._frozen.difference_update(indices)
        self._reset_masks()

    @property
    def frozen(self) -> list[int]:
        """Indices of the frozen rules."""
        return sorted(self._frozen)

    def copy_from(self, other: RuleSet, which: Which, *, to: Which | None = None) -> None:
        """Overwrite rule `to` with a rule of another rule set: its condition and action.

        Without `to` it is the rule with the same index, or with the same name if one is given.

        The condition is an embedding that the layer's own W^k reads: between layers with different
        W^k the copied rule acts the same but may be chosen on other slots.
        """
        require_type("other", other, RuleSet, "a rule set")
        source = other._index(which)
        same = which if isinstance(which, str) else source
        target = self._index(same if to is None else to)
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
    def disabled(self, *which: Which) -> Iterator[None]:
        """While the context is open these rules cannot fire; the next best take their place.

        It holds for calls in this thread (or asyncio task), and not for copies of the rule set.
        """
        with self._switches.off([self._index(each) for each in which]):
            yield

    # -- for the layers -----------------------------------------------------------------------

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

    def allowed(self) -> Tensor | None:
        """Which rules may fire, (N,), or None when all may."""
        return self._switches.allowed(self.embedding.device)

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

    # -- bookkeeping --------------------------------------------------------------------------

    def _per_rule(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self._parameters.items() if p is not None]

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

    def _index(self, which: Which) -> int:
        if isinstance(which, str):
            if which not in self._names:
                hint = self._names.nearest(which)
                raise ValueError(f"rule: got {which!r}, expected a name or an index; {hint}")
            return self._names.index(which)
        if isinstance(which, Rule):
            which = which.index_in(self)
        if isinstance(which, bool) or not isinstance(which, int):
            raise ValueError(f"rule: got {shown(which)}, expected a name or an index")
        if not -len(self) <= which < len(self):
            raise ValueError(f"rule: got {which}, expected a name or 0 to {len(self) - 1}")
        return which % len(self)

    def _settle(self) -> None:
        """Restore the frozen values, which an optimiser may have changed."""
        with torch.no_grad():
            for i in self._frozen:
                for name, parameter in self._per_rule():
                    parameter[i] = getattr(self, f"frozen_{name}")[i]

    def _reset_masks(self) -> None:
        """After a change of the rules: resize the masks and snapshot the frozen rules."""
        n, device = len(self), self.embedding.device
        frozen = torch.tensor([j in self._frozen for j in range(n)], device=device)
        self.register_buffer("frozen_mask", frozen, persistent=False)
        for name, parameter in self._per_rule():
            if self._frozen:
                self.register_buffer(f"frozen_{name}", parameter.detach().clone(), persistent=False)
            else:
                self._buffers.pop(f"frozen_{name}", None)

    # -- saving: names and frozen rules travel in the state dict, as JSON in a tensor ------------

    def get_extra_state(self) -> Tensor:
        text = json.dumps({"names": list(self.names), "frozen": self.frozen})
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        saved = json.loads(bytes(state.tolist()).decode())
        self.names = list(without_repetitions(saved["names"]))
        self._frozen = set(saved["frozen"])
        self._reset_masks()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        self._settle()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Refuse another number of rules whole, before names and frozen rules are taken over."""
        saved = state_dict.get(prefix + "embedding")
        if isinstance(saved, Tensor) and saved.dim() == 2 and len(saved) != len(self):
            error_msgs.append(
                f"size mismatch for {prefix}embedding: got {len(saved)} rules, expected "
                f"{len(self)}; call {prefix}resize({len(saved)}) before load_state_dict"
            )
            return
        lists = missing_keys, unexpected_keys, error_msgs
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)


def _options(like: Tensor | None) -> dict[str, Any]:
    return {} if like is None else {"device": like.device, "dtype": like.dtype}


def _uniform(shape: Sequence[int], bound: float, like: Tensor | None) -> Tensor:
    return (torch.rand(*shape, **_options(like)) * 2.0 - 1.0) * bound
