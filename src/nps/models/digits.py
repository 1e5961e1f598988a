"""Digit transformations: an image and an operation are two slots, and a rule changes the image.

Appendix "MNIST Transformation Task". The slots' roles are not those of Algorithm 1. There the slot
of step 2 is changed, and that of step 3 is its argument. Here step 2 "will match the
transformation embedding to the corresponding rule", so its slot is the operation; step 3 selects
"the correct slot for rule application", the image; step 4 applies the rule's MLP "to the selected
slot from step 3 and output[s] the result", which is decoded. So the slot of step 3 is all that the
rule reads: no rule can serve two operations by reading which one was requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from nps.perception.digits import DigitDecoder, DigitEncoder
from nps.rules import MLPRules, SequentialNPS, Trace
from nps.rules.allowed import Allowed
from nps.rules.bind import Bound
from nps.rules.noise import Noise, StageNoise
from nps.rules.projection import exact
from nps.rules.select import Selected
from nps.rules.slots import pick
from nps.rules.trace import Choices

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

IMAGE, OPERATION = 0, 1
"""Indices of the slots."""


class OperandNPS(SequentialNPS):
    r"""Algorithm 1 with the roles of the appendix, one stage.

    .. math::
        s, r &= \mathrm{argmax}_{j,i}\,(V_j W^q \cdot R_i W^k + \gamma) \\
        p &= \mathrm{argmax}_j\,(V_s \tilde W^q \cdot V_j \tilde W^k + \gamma) \\
        \mathrm{result} &= V_p + \mathrm{MLP}_r([V_p, 0])

    It returns "the result", not the slots: what is decoded was made of the slot that step 3 chose.
    (If it were always the image slot, choosing the operation would amount to copying the image,
    which is a good enough local optimum for rules to stop segregating.)

    The trace has the rule at slot p, which it read; its context is s, the slot that chose the rule;
    its context scores are those of step 3, among which p is the largest.

    Args: as for `SequentialNPS`, with one stage; without `self_context` p is never s. With
        `selecting_slot`, step 2 chooses a rule for that slot only, and the scores of the others
        are -inf.

    Shapes: slots (..., M, D) -> (..., D).
    """

    def __init__(
        self,
        slot_dim: int,
        num_rules: int,
        *,
        selecting_slot: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(slot_dim, num_rules, **settings)
        if self.stages != 1:
            raise ValueError(f"stages: got {self.stages}, expected 1: the result is not slots")
        self.selecting_slot = selecting_slot

    def stage(
        self, slots: Tensor, features: Tensor, allowed: Allowed, noise: StageNoise
    ) -> tuple[Tensor, Choices]:
        if allowed.slots is not None:
            raise ValueError("slot_mask is not supported by OperandNPS: its result is not a slot")
        # Steps 2 and 3: a slot selects a rule, then the slot that the rule reads.
        selecting, rule, scores = self.select_rule(features, allowed, noise)
        operand, operand_scores = self.bind_operand(features, selecting, rule, allowed, noise)
        # Step 4: the rule reads the slot of step 3 alone.
        new = self.result(pick(operand, slots).squeeze(-2), rule.squeeze(-2))
        chosen = operand.squeeze(-2), rule, selecting.unsqueeze(-2)
        return new, Choices(*chosen, scores, operand_scores)

    def select_rule(self, features: Tensor, allowed: Allowed, noise: StageNoise) -> Selected:
        selects = self._selects(features)
        allowed = allowed._replace(slots=selects)
        primary, rule, scores = super().select_rule(features, allowed, noise)
        if selects is not None:
            scores = scores.masked_fill(~selects.unsqueeze(-1), -torch.inf)
        return Selected(primary, rule, scores)

    def _selects(self, features: Tensor) -> Bool[Tensor, "M"] | None:
        """The slots that may select the rule; None for all."""
        if self.selecting_slot is None:
            return None
        slots = torch.arange(features.shape[-2], device=features.device)
        return slots == self.selecting_slot

    def bind_operand(
        self,
        features: Float[Tensor, "*batch M F"],
        selecting: Float[Tensor, "*batch M"],
        rule: Float[Tensor, "*batch 1 N"],
        allowed: Allowed,
        noise: StageNoise,
    ) -> Bound:
        """Step 3: the slot that the rule reads, asked for by the slot that selected the rule."""
        return self.bind_context(features, selecting, allowed, noise)

    def result(
        self, slot: Float[Tensor, "*batch D"], rule: Float[Tensor, "*batch N"]
    ) -> Float[Tensor, "*batch D"]:
        """Step 4: the slots, updated by the chosen rules."""
        return slot + self._act(slot, torch.zeros_like(slot), rule)

    def log_pairs(
        self, features: Float[Tensor, "*batch M F"], allowed: Allowed
    ) -> Float[Tensor, "*batch M N"]:
        return super().log_pairs(features, allowed._replace(slots=self._selects(features)))

    def every_result(
        self, slots: Float[Tensor, "B M D"]
    ) -> tuple[Float[Tensor, "B N P"], Float[Tensor, "B N P D"]]:
        """The result of every rule on every slot, and how likely the scores make each.

        The slot that selects the rule does not change the result, so its choices are added up. A
        slot that can never be operand is left out (P = M - 1).
        """
        never = None if self.self_context else self.selecting_slot
        operands = [j for j in range(slots.shape[-2]) if j != never]
        allowed = Allowed(None, self.rules.allowed())
        shares = self.log_prior(exact(slots), allowed).logsumexp(-3)
        # Not by a list of indices: CUDA graphs cannot capture a copy from the host.
        log_prior = torch.stack([shares[..., j] for j in operands], -1)
        read = torch.stack([slots[..., j, :] for j in operands], -2)
        rows = read.flatten(0, -2)
        update = self.rules.each(rows, torch.zeros_like(rows)).unflatten(0, read.shape[:-1])
        return log_prior, (read.unsqueeze(-2) + update).transpose(-2, -3)


class OneMLP(nn.Module):
    """The model without rules: one MLP reads image and operation, and changes the image.

    The call is that of `OperandNPS`. It chooses nothing: its trace says rule 0 everywhere.

    Args:
        slot_dim: D, size of a slot.
        hidden_dim: hidden units of the MLP.
    """

    def __init__(self, slot_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.rules = MLPRules(1, slot_dim, rule_dim=1, hidden_dim=hidden_dim)
        self.rules.embedding.requires_grad_(False)  # there is nothing to choose

    def noise_shape(self, *batch: int, slots: int) -> tuple[int, ...]:
        return (*batch, 1, 0)

    def forward(
        self, slots: Float[Tensor, "B 2 D"], *, noise: Noise | None, return_trace: bool
    ) -> Tensor | tuple[Tensor, Trace]:
        image, operation = slots.unbind(-2)
        always = torch.ones_like(image[..., :1])
        result: Tensor = image + self.rules(image, operation, always)
        if not return_trace:
            return result
        fired, context = (torch.full_like(slots[..., None, :, 0], -1).long() for _ in range(2))
        fired[..., IMAGE], context[..., IMAGE] = 0, OPERATION
        no_scores = torch.zeros_like(slots[..., None, :, :1])
        return result, Trace(fired, context, no_scores, no_scores.expand(*no_scores.shape[:-1], 2))


class Operations(nn.Module):
    """A slot for each operation: "a learned weight matrix".

    Rows added later are a separate parameter, so that the first ones can be frozen.
    """

    def __init__(self, count: int, slot_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, slot_dim))
        self.added: nn.Parameter | None
        self.register_parameter("added", None)

    def add(self) -> None:
        """Add one operation."""
        rows = [] if self.added is None else [self.added.detach()]
        self.added = nn.Parameter(torch.cat([*rows, torch.randn_like(self.weight[:1])]))

    def forward(self, operation: Int[Tensor, "B"]) -> Float[Tensor, "B D"]:
        rows = self.weight if self.added is None else torch.cat([self.weight, self.added])
        # Unlike an index's, the gradient of a product adds up in a fixed order.
        return pick(one_hot(operation, len(rows)).unsqueeze(-2), rows).squeeze(-2)


class DigitTransformation(nn.Module):
    """Encode, apply a rule, decode.

    Args:
        layer: acts on slots [image, operation].
        slot_dim: D, size of a slot.
        operations: number of operations, each with a row of a learned matrix; or another module
            from operations (B,) to slots (B, D).
    """

    def __init__(
        self, layer: OperandNPS | OneMLP, slot_dim: int, operations: int | nn.Module
    ) -> None:
        super().__init__()
        self.encoder = DigitEncoder(slot_dim)
        if isinstance(operations, int):
            operations = Operations(operations, slot_dim)
        self.operations = operations
        self.layer = layer
        self.decoder = DigitDecoder(slot_dim)

    def forward(
        self,
        images: Float[Tensor, "B 64 64"],
        operation: Int[Tensor, "B"],
        *,
        noise: Noise | None = None,
        return_trace: bool = False,
    ) -> Float[Tensor, "B 64 64"] | tuple[Float[Tensor, "B 64 64"], Trace]:
        """Logits of the transformed images, and on request what fired."""
        stepped = self.step(self.encode(images), operation, noise=noise, return_trace=return_trace)
        if isinstance(stepped, tuple):
            return self.decoder(stepped[0]), stepped[1]
        logits: Tensor = self.decoder(stepped)
        return logits

    def encode(self, images: Float[Tensor, "B 64 64"]) -> Float[Tensor, "B D"]:
        """The image slot."""
        slot: Tensor = self.encoder(images)
        return slot

    def step(
        self,
        slot: Float[Tensor, "B D"],
        operation: Int[Tensor, "B"],
        *,
        noise: Noise | None = None,
        return_trace: bool = False,
    ) -> Float[Tensor, "B D"] | tuple[Float[Tensor, "B D"], Trace]:
        """The image slot after an operation, and on request what fired."""
        slots = torch.stack([slot, self.operations(operation)], -2)
        result: Tensor | tuple[Tensor, Trace] = self.layer(
            slots, noise=noise, return_trace=return_trace
        )
        return result

    def every_result(
        self, images: Float[Tensor, "B 64 64"], operation: Int[Tensor, "B"]
    ) -> tuple[Float[Tensor, "B N P"], Float[Tensor, "B N P 64 64"]]:
        """Logits of the image that each rule makes of each slot, and how likely each is."""
        if not isinstance(self.layer, OperandNPS):
            raise ValueError("every_result: this model has no rules to choose from")
        slots = torch.stack([self.encode(images), self.operations(operation)], -2)
        log_prior, results = self.layer.every_result(slots)
        logits: Tensor = self.decoder(results.flatten(0, -2))
        return log_prior, logits.unflatten(0, results.shape[:-1])

    def act(self, slot: Float[Tensor, "B D"], rule: int) -> Float[Tensor, "B D"]:
        """Apply one rule by hand, whatever would have been chosen."""
        if not isinstance(self.layer, OperandNPS):
            raise ValueError("act: this model has no rules to apply by hand")
        count = len(self.layer.rules)
        if not 0 <= rule < count:
            raise ValueError(f"rule: got {rule}, expected 0 to {count - 1}")
        choice = torch.eye(count, device=slot.device)[rule]
        return self.layer.result(slot, choice.expand(len(slot), -1))

    def decode(self, slot: Float[Tensor, "B D"]) -> Float[Tensor, "B 64 64"]:
        """Grey levels from 0 to 1."""
        logits: Tensor = self.decoder(slot)
        return logits.sigmoid()

    def add_operation(self) -> None:
        """Add an operation and a rule; everything else stays as it is.

        The rule's scores start at zero, so that it wins nothing for which an old rule has a
        positive score: with a random condition it may start as the winner of an old operation, and
        then learns that one instead of the new one.
        """
        if not isinstance(self.operations, Operations):
            raise ValueError("add_operation: the operations of this model are not rows of a matrix")
        self.operations.add()
        (new,) = self.layer.rules.add(1)
        with torch.no_grad():
            self.layer.rules.embedding[new] = 0.0

    def freeze(self) -> None:
        """Freeze everything, every rule included; only what is added afterwards can learn."""
        self.requires_grad_(False)
        for i in range(len(self.layer.rules)):
            self.layer.rules.freeze(i)
