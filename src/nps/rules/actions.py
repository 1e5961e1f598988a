"""Step 4: N rules, each with its own action on [primary slot, contextual slot].

The straight-through gradient of the choice is <g, action_i(x)> for every rule i, so training
computes all N actions and the one-hot choice picks one. Evaluation without gradients computes only
the rules that fire (through `fast.py`).

In evaluation a rule's result comes from its own product and does not depend on where the rule lies
in memory (a processor may round an unaligned row differently): removing a rule leaves the results
of the others bit for bit as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from nps.rules import fast
from nps.rules.check import require_int
from nps.rules.projection import Factory
from nps.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def init_bounds(fan_in: int, hidden: int) -> tuple[float, float]:
    """Bounds of the uniform initialisation of an action's two layers (the paper gives none).

    He's for the ReLU layer, and a tenth of torch's default for the last: the update is a residual,
    so every rule starts close to doing nothing and none is chosen for its random output
    (docs/notes/arithmetic.md shows the effect).
    """
    return (6.0 / fan_in) ** 0.5, 0.1 * hidden**-0.5


def pad_to_cache_lines(x: Tensor, dims: int) -> Tensor:
    """Pad the last `dims` dimensions with zeros to multiples of 16 floats (one cache line)."""
    amounts = [-size % 16 for size in reversed(x.shape[-dims:])]
    if not any(amounts):
        return x
    return F.pad(x, [pad for amount in amounts for pad in (0, amount)])


class MLPRules(RuleSet):
    """The paper's action: Linear(2D, hidden), ReLU, Linear(hidden, D) (table "rule-specific MLP").

    Args:
        num_rules: number of rules N.
        slot_dim: size D of a slot.
        rule_dim: size of the embeddings.
        hidden_dim: hidden units H of the action.
        hidden_layers: the paper has one. A rule that compares two slots (are they neighbours?)
            learns it much faster with two.
        zero_start: start the output layers at zero instead of small, so that no rule does anything
            until it has learned what to do.
        device, dtype: of the parameters, as for `nn.Linear`.

    Shapes: slots (T, D), choice (T, N) -> (T, D).
    """

    weight_in: Parameter
    bias_in: Parameter
    weight_out: Parameter
    bias_out: Parameter

    def __init__(
        self,
        num_rules: int,
        slot_dim: int,
        *,
        rule_dim: int = 64,
        hidden_dim: int = 128,
        hidden_layers: int = 1,
        zero_start: bool = False,
        **factory: Unpack[Factory],
    ) -> None:
        require_int("hidden_dim", hidden_dim, at_least=1)
        require_int("hidden_layers", hidden_layers, at_least=1)
        require_int("slot_dim", slot_dim, at_least=1)
        first, last = init_bounds(2 * slot_dim, hidden_dim)
        middle, _ = init_bounds(hidden_dim, hidden_dim)
        action = {"weight_in": ((2 * slot_dim, hidden_dim), first), "bias_in": ((hidden_dim,), 0.0)}
        for k in range(1, hidden_layers):
            action[f"weight_{k}"] = ((hidden_dim, hidden_dim), middle)
            action[f"bias_{k}"] = ((hidden_dim,), 0.0)
        last = 0.0 if zero_start else last
        action |= {"weight_out": ((hidden_dim, slot_dim), last), "bias_out": ((slot_dim,), 0.0)}
        super().__init__(num_rules, slot_dim, rule_dim, action, **factory)
        self.hidden_dim = hidden_dim
        self.hidden_layers = hidden_layers

    def forward(
        self,
        primary: Float[Tensor, "T D"],
        context: Float[Tensor, "T D"],
        choice: Float[Tensor, "T N"],
    ) -> Float[Tensor, "T D"]:
        update = fast.only_fired(self, primary, context, choice)
        if update is not None:
            return update
        stock = type(self).outputs is MLPRules.outputs  # a subclass's own outputs are used
        if self.training and self.hidden_layers == 1 and stock:
            return self._chosen(primary, context, choice)
        outputs = self.outputs(primary, context).transpose(0, 1)
        return torch.bmm(choice.unsqueeze(1).to(outputs.dtype), outputs).squeeze(1)

    def _chosen(self, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor:
        """Training: one product per layer for all rules; hidden units of the others become 0."""
        weight_in, bias_in, weight_out, bias_out = self.weights()
        n, i, h = weight_in.shape
        x = torch.cat([primary, context], -1).to(weight_in.dtype)
        choice = choice.to(x.dtype)
        side_by_side = weight_in.transpose(0, 1).reshape(i, n * h)
        hidden = torch.addmm(bias_in.flatten(), x, side_by_side).relu()
        chosen = hidden.unflatten(-1, (n, h)) * choice.unsqueeze(-1)
        return torch.addmm(choice @ bias_out, chosen.flatten(-2), weight_out.flatten(0, 1))

    def outputs(
        self, primary: Float[Tensor, "T D"], context: Float[Tensor, "T D"]
    ) -> Float[Tensor, "N T D"]:
        """What every rule would do."""
        weights = self.weights()
        x = torch.cat([primary, context], -1).to(weights[0].dtype)
        if not self.training:
            x = pad_to_cache_lines(x, 1)
            weights = [pad_to_cache_lines(w, w.dim() - 1) for w in weights]
        return mlp_layers(x.expand(len(self), -1, -1), weights)[..., : self.slot_dim]

    def each(
        self, primary: Float[Tensor, "T D"], context: Float[Tensor, "T D"]
    ) -> Float[Tensor, "T N D"]:
        return self.outputs(primary, context).transpose(0, 1)

    def in_every_context(
        self, slots: Float[Tensor, "T M D"], contexts: Bool[Tensor, "T M M"] | None = None
    ) -> Float[Tensor, "T M N M D"]:
        if type(self).outputs is not MLPRules.outputs:  # a subclass's own outputs are used
            return super().in_every_context(slots, contexts)
        weight, bias, *later = self.weights()
        # The first layer reads the two slots separately: M products for each rule, not M².
        halves = (slots.to(weight.dtype).flatten(0, 1) @ half for half in weight.chunk(2, 1))
        own, other = (half.unflatten(1, slots.shape[:2]) for half in halves)
        other = other.unsqueeze(2)
        if contexts is not None:
            other = torch.where(contexts.unsqueeze(-1), other, 0.0)
        hidden = (own.unsqueeze(3) + bias[:, None, None, None] + other).relu()
        updates = mlp_layers(hidden.flatten(1, 3), later)
        return updates.view(*hidden.shape[:4], self.slot_dim).permute(1, 2, 0, 3, 4)


def mlp_layers(x: Float[Tensor, "b T in"], weights: Sequence[Tensor]) -> Float[Tensor, "b T out"]:
    """Linear layers with ReLU between them, with one set of weights or b of them."""
    last = len(weights) - 2
    for k in range(0, len(weights), 2):
        weight, bias = weights[k].expand(len(x), -1, -1), weights[k + 1].unsqueeze(1)
        x = torch.baddbmm(bias, x, weight)
        x = x if k == last else x.relu_()
    return x


class ConvRules(RuleSet):
    """Convolutional actions for slots that are feature maps (Shapes stack with RPIN).

    conv(2C, hidden), ReLU, conv(hidden, C), of unchanged size. Pass it as `rules=` to a layer;
    without explicit `selection` features the layer selects by each slot's spatial mean.

    Args:
        num_rules: number of rules N.
        slot_dim: C, the channels of a slot.
        rule_dim: size of the embeddings.
        hidden_dim: channels of the hidden layer.
        kernel_size: odd.
        zero_start: as for `MLPRules`.
        device, dtype: of the parameters, as for `nn.Linear`.

    Shapes: slots (T, C, H, W), choice (T, N) -> (T, C, H, W).
    """

    event_dims = 3

    weight_in: Parameter
    bias_in: Parameter
    weight_out: Parameter
    bias_out: Parameter

    def __init__(
        self,
        num_rules: int,
        slot_dim: int,
        *,
        rule_dim: int = 64,
        hidden_dim: int = 128,
        kernel_size: int = 3,
        zero_start: bool = False,
        **factory: Unpack[Factory],
    ) -> None:
        require_int("hidden_dim", hidden_dim, at_least=1)
        require_int("kernel_size", kernel_size, at_least=1)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size: got {kernel_size}, expected an odd number")
        require_int("slot_dim", slot_dim, at_least=1)
        square, area = (kernel_size, kernel_size), kernel_size**2
        first, last = init_bounds(2 * slot_dim * area, hidden_dim * area)
        action = {
            "weight_in": ((hidden_dim, 2 * slot_dim, *square), first),
            "bias_in": ((hidden_dim,), 0.0),
            "weight_out": ((slot_dim, hidden_dim, *square), 0.0 if zero_start else last),
            "bias_out": ((slot_dim,), 0.0),
        }
        super().__init__(num_rules, slot_dim, rule_dim, action, **factory)
        self.hidden_dim = hidden_dim
        self.kernel_size = kernel_size

    def forward(
        self,
        primary: Float[Tensor, "T C H W"],
        context: Float[Tensor, "T C H W"],
        choice: Float[Tensor, "T N"],
    ) -> Float[Tensor, "T C H W"]:
        update = fast.only_fired(self, primary, context, choice)
        if update is not None:
            return update
        stock = type(self).outputs is ConvRules.outputs  # a subclass's own outputs are used
        if self.training and stock:
            return self._chosen(primary, context, choice)
        outputs = self.outputs(primary, context)
        return (choice[:, :, None, None, None].to(outputs.dtype) * outputs).sum(1)

    def _chosen(self, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor:
        """Training: one convolution per layer for all rules, as in `MLPRules`."""
        weight_in, bias_in, weight_out, bias_out = self.weights()
        n, pad = len(self), self.kernel_size // 2
        x = torch.cat([primary, context], 1).to(weight_in.dtype)
        hidden = F.conv2d(x, weight_in.flatten(0, 1), bias_in.flatten(), padding=pad).relu()
        choice = choice.to(hidden.dtype)
        chosen = (hidden.unflatten(1, (n, -1)) * choice[..., None, None, None]).flatten(1, 2)
        side_by_side = weight_out.permute(1, 3, 4, 0, 2).flatten(-2).movedim(-1, 1)
        out = F.conv2d(chosen, side_by_side, padding=pad)
        return out + (choice @ bias_out)[..., None, None]

    def outputs(
        self, primary: Float[Tensor, "T C H W"], context: Float[Tensor, "T C H W"]
    ) -> Float[Tensor, "T N C H W"]:
        """What every rule would do. One by one: side by side, they would round by their number."""
        x = torch.cat([primary, context], 1).to(self.weight_in.dtype)
        rules = zip(*self.weights(), strict=True)
        return torch.stack([conv_layers(x, rule) for rule in rules], 1)

    def each(
        self, primary: Float[Tensor, "T C H W"], context: Float[Tensor, "T C H W"]
    ) -> Float[Tensor, "T N C H W"]:
        return self.outputs(primary, context)


def conv_layers(x: Float[Tensor, "T C H W"], rule: Sequence[Tensor]) -> Float[Tensor, "T C H W"]:
    """The two convolutions of one rule."""
    weight_in, bias_in, weight_out, bias_out = rule
    pad = weight_in.shape[-1] // 2
    hidden = F.conv2d(x, weight_in, bias_in, padding=pad).relu()
    return F.conv2d(hidden, weight_out, bias_out, padding=pad)
