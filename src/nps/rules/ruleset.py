"""A set of N rules that can be counted, named, added to, removed from, frozen and switched off.

The paper asks that a rule "can be intervened (added, modified or deleted) independently of other
production rules" (section 2). All rules are stored stacked (`stacked.py`), and the operations below
work on the rows. A rule never depends on another: removing or disabling rule i leaves every other
rule as it was, bit for bit, wherever rule i was not the winner.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.optim import Optimizer

from nps.rules.check import require_int, require_type, shown
from nps.rules.names import Names, without_repetitions
from nps.rules.optimisers import require_optimiser, set_rows
from nps.rules.projection import Factory
from nps.rules.rule import Rule
from nps.rules.stacked import StackedRules
from nps.rules.switch import Switches

Which = int | str | Rule
"""A rule by its index, its name, or its view."""


class RuleSet(StackedRules):
    """N rules R_i = (embedding, action). Subclasses say what the action is.

    `rules[2]` or `rules["push"]` is a `Rule`, a view of one rule, and iteration gives all of them.
    Every operation takes a rule's index, name or view.

    Args:
        num_rules: number of rules N.
        slot_dim: size of a slot (its channels, for convolutional rules).
        rule_dim: size of a rule's embedding, its condition.
        action: name -> (shape of one rule's parameter, bound of its uniform initialisation).
        device, dtype: of the parameters, as for `nn.Linear`.
    """

    def __init__(
        self,
        num_rules: int,
        slot_dim: int,
        rule_dim: int,
        action: dict[str, tuple[tuple[int, ...], float]],
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__(num_rules, slot_dim, rule_dim, action, **factory)
        self._names = Names.numbered(num_rules)
        self._switches = Switches(num_rules)

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

    # -- operations ---------------------------------------------------------------------------

    def add(self, n: int = 1, *, optimizer: Optimizer | None = None) -> range:
        """Append n new rules and return their indices.

        The values of the old rules, frozen or not, stay as they are. The parameters are the same
        objects as before, so an optimiser made earlier trains the new rules too.

        Args:
            n: how many.
            optimizer: one that has moments but has taken no step yet, because its state was loaded.
                Optimisers that have taken steps need not be passed. Moments are kept for the old
                rules and zero for the new ones.
        """
        require_int("n", n, at_least=1)
        require_optimiser(optimizer, [p for _, p in self._per_rule()])
        self._settle()
        first = len(self)

        def with_zeros(x: Tensor) -> Tensor:
            return torch.cat([x, x.new_zeros(n, *x.shape[1:])])

        for name, parameter in self._per_rule():
            rows = torch.cat([parameter.detach(), self._fresh(name, n).to(parameter)])
            set_rows(parameter, rows, with_zeros, optimizer)
            parameter.requires_grad_()  # the new rules are to learn, even in a frozen model
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
        self._off = frozenset(j - (j > i) for j in self._off if j != i)
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

    def copy_from(self, other: RuleSet, which: Which, *, to: Which | None = None) -> None:
        """Overwrite rule `to` with a rule of another rule set: its condition and action.

        By default `to` is the rule with the same index, or with the same name if `which` is a name.

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
        A generator that yields inside shares it with its caller until it goes on, as with
        `torch.no_grad` as a context: open it for each item instead.
        """
        with self._switches.off([self._index(each) for each in which]):
            yield

    def switch_off(self, *which: Which) -> None:
        """Let rules never fire again, until `switch_on`; the next best take their place.

        Unlike `disabled` it lasts: copies and saved states keep it, and it holds in all threads.
        Unlike `remove` it can be undone, and indices stay as they are.
        """
        self._off |= {self._index(each) for each in which}
        self._reset_masks()

    def switch_on(self, *which: Which) -> None:
        """Let rules fire again that were switched off."""
        self._off -= {self._index(each) for each in which}
        self._reset_masks()

    @property
    def off(self) -> list[int]:
        """Indices of the rules that are switched off."""
        return sorted(self._off)

    def allowed(self) -> Tensor | None:
        """Which rules may fire, (N,), or None when all may."""
        here = self._switches.allowed(self.embedding.device)
        if not self._off:
            return here
        return self.on_mask if here is None else self.on_mask & here

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

    # -- saving: what is not a parameter travels in the state dict, as JSON in a tensor ----------

    def get_extra_state(self) -> Tensor:
        state: dict[str, Any] = {"names": list(self.names), "frozen": self.frozen}
        if self._off:  # older states are without it
            state["off"] = self.off
        return torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        self._names, self._frozen, self._off = self._read(state)
        self._reset_masks()

    def _read(self, state: Tensor) -> tuple[Names, set[int], frozenset[int]]:
        """Names, frozen rules and those that are off, of a saved state, which may be damaged."""
        try:
            saved = json.loads(bytes(state.tolist()).decode())
            names = Names(without_repetitions(saved["names"]))
            frozen = {range(len(names))[i] for i in saved["frozen"]}
            off = frozenset(range(len(names))[i] for i in saved.get("off", ()))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"names and frozen rules cannot be read: {shown(error)}") from None
        if len(names) != len(self):
            raise ValueError(f"got {len(names)} names, expected {len(self)}, one for each rule")
        return names, frozen, off

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
        """Refuse a state that does not fit before any of it is loaded."""
        rows, extra = state_dict.get(f"{prefix}embedding"), state_dict.get(f"{prefix}_extra_state")
        if isinstance(rows, Tensor) and rows.dim() == 2 and len(rows) != len(self):
            error_msgs.append(
                f"size mismatch for {prefix}embedding: got {len(rows)} rules, expected "
                f"{len(self)}; call {prefix}resize({len(rows)}) before load_state_dict"
            )
            return
        try:
            if extra is not None:
                self._read(extra)
        except ValueError as error:
            error_msgs.append(f"{prefix}_extra_state: {error}")
            return
        lists = missing_keys, unexpected_keys, error_msgs
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)
