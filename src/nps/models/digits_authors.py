"""Digit transformations as the authors' published program executes them.

Their program is not the text's algorithm (docs/notes/mnist.md compares them). In step 2 the rules
ask and the slots answer, through one linear map for each slot position. Of the pair that wins only
the rule is used: its embedding asks for the slot in step 3, and what its MLP makes of that slot
replaces it. So the operation reaches the result through the choice of a rule alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from nps.models.digits import OperandNPS
from nps.rules.allowed import Allowed
from nps.rules.bind import Bound, bind_contexts
from nps.rules.config import Query
from nps.rules.noise import StageNoise
from nps.rules.projection import Factory, exact, match
from nps.rules.select import Selected, select_pair
from nps.rules.slots import pick

if TYPE_CHECKING:
    from jaxtyping import Float, Int

OPERATION_HIDDEN = 64
"""Hidden units between an operation and its slot."""


class GroupLinear(nn.Module):
    """A linear map with a bias of its own for each of G positions.

    All parameters start uniform within size_out^-0.5, where torch takes size_in^-0.5.

    Shapes: (..., G, size_in) -> (..., G, size_out).
    """

    def __init__(
        self, groups: int, size_in: int, size_out: int, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, size_in, size_out, **factory))
        self.bias = nn.Parameter(torch.empty(groups, size_out, **factory))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in (self.weight, self.bias):
            draw_by_outputs(parameter)

    def forward(self, x: Float[Tensor, "*batch G in"]) -> Float[Tensor, "*batch G out"]:
        return torch.einsum("...gi,gio->...go", x, self.weight) + self.bias


class SlotScores(nn.Module):
    """Scores of slots for rules: queries of the rules, keys of the slots, divided by √key_dim.

    Shapes: rules (..., Q, rule_dim), slots (..., M, D) -> (..., Q, M).
    """

    def __init__(self, query: nn.Linear | GroupLinear, key: GroupLinear) -> None:
        super().__init__()
        self.query, self.key = query, key

    def reset_parameters(self) -> None:
        self.query.reset_parameters()
        self.key.reset_parameters()

    def forward(self, rules: Tensor, slots: Tensor) -> Tensor:
        with torch.autocast(slots.device.type, enabled=False):  # half precision flips choices
            query, key = self.query(exact(rules)), self.key(exact(slots))
            scores: Tensor = match(query, key) / key.shape[-1] ** 0.5
        return scores


class AuthorsNPS(OperandNPS):
    r"""The rule layer of the authors' program for MNIST.

    .. math::
        j, r &= \mathrm{argmax}_{j,i}\,(R_i W^q \cdot V_j W^k_j / \sqrt{32} + \gamma) \\
        p &= \mathrm{argmax}_j\,(R_r \tilde W^q \cdot V_j \tilde W^k_j / \sqrt{16} + \gamma) \\
        \mathrm{result} &= \mathrm{MLP}_r(V_p)

    with a bias in every map. Slot j of step 2 is not used; the trace has it as the context. In
    evaluation both choices are the argmax; the program goes on sampling the second.

    Args:
        slot_dim, num_rules, rule_dim, key_dim, hidden_dim, temperature: as for `SequentialNPS`.
        slots: M. There is a map for each slot position, so M is fixed and their order matters.
        operand_key_dim: size of queries and keys in step 3.
        operand_temperature: of the softmax that gives the gradient of step 3.

    The program has no counterpart of the other settings of `SequentialNPS`.

    Shapes: slots (..., M, D) -> (..., D).
    """

    unused = OperandNPS.unused | {
        "dropout",
        "context_dropout",
        "query",
        "context_query",
        "self_context",
        "context_gradient",
    }

    def __init__(
        self,
        slot_dim: int,
        num_rules: int,
        *,
        slots: int = 2,
        operand_key_dim: int = 16,
        operand_temperature: float = 0.5,
        **settings: Any,
    ) -> None:
        if without := sorted(self.unused & settings.keys()):
            raise ValueError(f"{without[0]}: AuthorsNPS has no such setting")
        self._sizes = slots, operand_key_dim
        super().__init__(slot_dim, num_rules, **settings)
        self.operand_temperature = operand_temperature

    def _make_selection(
        self, key_dim: int, query: Query, context_query: Query, **factory: Unpack[Factory]
    ) -> None:
        (slots, operand_key_dim), size, asks = self._sizes, self.selection_dim, self.rules.rule_dim
        self.select_slots = SlotScores(
            nn.Linear(asks, key_dim, **factory), GroupLinear(slots, size, key_dim, **factory)
        )
        self.bind_slots = SlotScores(
            GroupLinear(1, asks, operand_key_dim, **factory),
            GroupLinear(slots, size, operand_key_dim, **factory),
        )
        self._draw_actions()

    def _reset_selection(self) -> None:
        self.select_slots.reset_parameters()
        self.bind_slots.reset_parameters()
        self._draw_actions()

    def _draw_actions(self) -> None:
        """The rules' MLPs are group linear maps in the program."""
        for name, parameter in self.rules.named_parameters():
            if name != "embedding":
                draw_by_outputs(parameter)

    def select_rule(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed, noise: StageNoise
    ) -> Selected:
        if features.shape[-2] != self._sizes[0]:
            got, expected = features.shape[-2], self._sizes[0]
            raise ValueError(f"slots: got {got} slots, expected {expected}, a map for each")
        scores = self.select_slots(self.rules.tensor("embedding"), features).mT
        primary, rule = select_pair(scores, allowed.pairs(), noise.choices[0], self.temperature)
        return Selected(primary, rule, scores)

    def bind_operand(
        self,
        features: Float[Tensor, "*batch M F"],
        selecting: Float[Tensor, "*batch M"],
        rule: Float[Tensor, "*batch 1 N"],
        allowed: Allowed,
        noise: StageNoise,
    ) -> Bound:
        scores = self.bind_slots(pick(rule, self.rules.tensor("embedding")), features)
        return Bound(
            bind_contexts(scores, None, noise.choices[-1], self.operand_temperature), scores
        )

    def result(
        self, slot: Float[Tensor, "*batch D"], rule: Float[Tensor, "*batch N"]
    ) -> Float[Tensor, "*batch D"]:
        return self._act(slot, torch.zeros_like(slot), rule)


class OperationMLP(nn.Module):
    """The slot of each operation, by an MLP of its one-hot vector."""

    def __init__(self, count: int, slot_dim: int) -> None:
        super().__init__()
        self.count = count
        self.net = nn.Sequential(
            nn.Linear(count, OPERATION_HIDDEN), nn.ReLU(), nn.Linear(OPERATION_HIDDEN, slot_dim)
        )

    def forward(self, operation: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
        slot: Tensor = self.net(one_hot(operation, self.count).float())
        return slot


def draw_by_outputs(parameter: nn.Parameter) -> None:
    """Draw a weight (..., in, out) or a bias (..., out) uniformly within out^-0.5."""
    bound = parameter.shape[-1] ** -0.5
    nn.init.uniform_(parameter, -bound, bound)
