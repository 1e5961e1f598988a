"""Step 4: N rules, each with its own action on [primary slot, contextual slot].

The straight-through gradient of the choice is <g, action_i(x)> for every i, so training computes
all N actions, and the one-hot choice picks one. There are three exact forms of that: one product
for each rule (below), one for all of them on a GPU and for the compiler, and one whose backward
pass goes rule by rule, for many rows on a CPU (both in chosen.py).

Evaluation without gradients computes only the rules that fire, in blocks of rows (dispatch.py). In
evaluation a rule's numbers come from its own product and do not depend on where it lies in memory
(a processor may round an unaligned row differently): removing a rule leaves the others as they
were, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn import functional as F

from nps.rules.check import require_int
from nps.rules.chosen import ByRule, masked
from nps.rules.dispatch import Blocks, only_fired
from nps.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ACTION = ("weight_in", "bias_in", "weight_out", "bias_out")

BLOCK, AT_ONCE = 24, 24
"""On the CPU: rows of an MLP's product (fewer waste its set-up, more waste rows where a rule has
only a few), and blocks in one call, so that the copies of their weights stay in the cache."""
GPU_BLOCK, GPU_AT_ONCE = 32, 1024
"""On a GPU, which has no such cache to keep to: the copies take about 0.1 GB."""
CONV_BLOCK = 8
"""Rows of a convolution, which is dearer by the row and has little set-up."""


MANY_ROWS = 384
"""On the CPU, from here on a backward pass by rule is worth its sorting."""


def bounds(fan_in: int, hidden: int) -> tuple[float, float]:
    """Uniform initialisation of an action's two layers; the paper does not say which.

    He's for the ReLU layer, and a tenth of torch's default for the last: the update is a residual,
    so every rule starts close to doing nothing and none is chosen for its random output
    (docs/arithmetic.md shows what it changes).
    """
    return (6.0 / fan_in) ** 0.5, 0.1 * hidden**-0.5


def _plain(x: Tensor) -> bool:
    """Nothing batches or casts the operations: a function of our own sees tensors as they are."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return not wrapped and not torch.is_autocast_enabled(x.device.type)


def padded(x: Tensor, dims: int, multiple: int = 16) -> Tensor:
    """Zeros behind the last `dims` dimensions, up to a multiple: 16 floats are a cache line."""
    amounts = [-size % multiple for size in reversed(x.shape[-dims:])]
    if not any(amounts):
        return x
    return F.pad(x, [pad for amount in amounts for pad in (0, amount)])


class MLPRules(RuleSet):
    """The paper's action: Linear(2D, hidden), ReLU, Linear(hidden, D) (table "rule-specific MLP").

    Args:
        num_rules: number of rules N.
        slot_dim: size D of a slot.
        rule_dim: size of the embeddings.
        hidden_dim: H of the action.
        hidden_layers: the paper has one. A rule that compares two slots (are they neighbours?)
            learns it much faster with two; stages are then not fused.

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
    ) -> None:
        require_int("hidden_dim", hidden_dim, at_least=1)
        require_int("hidden_layers", hidden_layers, at_least=1)
        require_int("slot_dim", slot_dim, at_least=1)
        first, last = bounds(2 * slot_dim, hidden_dim)
        middle, _ = bounds(hidden_dim, hidden_dim)
        action = {"weight_in": ((2 * slot_dim, hidden_dim), first), "bias_in": ((hidden_dim,), 0.0)}
        for k in range(1, hidden_layers):
            action[f"weight_{k}"] = ((hidden_dim, hidden_dim), middle)
            action[f"bias_{k}"] = ((hidden_dim,), 0.0)
        action |= {"weight_out": ((hidden_dim, slot_dim), last), "bias_out": ((slot_dim,), 0.0)}
        super().__init__(num_rules, slot_dim, rule_dim, action)
        self.hidden_dim = hidden_dim
        self.hidden_layers = hidden_layers
        self._action = tuple(action)

    def forward(
        self,
        primary: Float[Tensor, "T D"],
        context: Float[Tensor, "T D"],
        choice: Float[Tensor, "T N"],
    ) -> Float[Tensor, "T D"]:
        if not self.training and only_fired(primary, context, choice, *self.parameters()):
            return self._fired(primary, context, choice)
        if self.training and self.hidden_layers == 1:
            if primary.is_cuda or torch.compiler.is_compiling():
                return self._chosen(masked, primary, context, choice)
            if len(primary) >= MANY_ROWS and _plain(primary):
                return self._chosen(ByRule.apply, primary, context, choice)
        outputs = self.outputs(primary, context).transpose(0, 1)
        return torch.bmm(choice.unsqueeze(1).to(outputs.dtype), outputs).squeeze(1)

    def _chosen(
        self, form: Callable[..., Tensor], primary: Tensor, context: Tensor, choice: Tensor
    ) -> Tensor:
        """What the chosen rules do, with a gradient for all of them, in a form of `chosen.py`."""
        weights = [self.tensor(name) for name in ACTION]
        x = torch.cat([primary, context], -1).to(weights[0].dtype)
        return form(x, choice.to(x.dtype), *weights)

    def _fired(self, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor:
        """What the chosen rules do, and nothing else."""
        weights = [self.tensor(name) for name in self._action]
        static = primary.device.type != "cpu"
        size, at_once = (GPU_BLOCK, GPU_AT_ONCE) if static else (BLOCK, AT_ONCE)

        def act(x: Float[Tensor, "b size 2*D"], rule: Int[Tensor, "b"]) -> Tensor:
            if not static and rule[0] == rule[-1]:  # all of one rule: no need to copy it b times
                rule = rule[:1]
            chosen = [padded(w.index_select(0, rule), w.dim() - 1) for w in weights]
            x = padded(x.to(chosen[0].dtype), 1)
            return _layers(x, chosen)[..., : self.slot_dim]

        return Blocks.of(choice, size, static=static).run(primary, context, act, at_once)

    def outputs(
        self, primary: Float[Tensor, "T D"], context: Float[Tensor, "T D"]
    ) -> Float[Tensor, "N T D"]:
        """What every rule would do."""
        weights = [self.tensor(name) for name in self._action]
        x = torch.cat([primary, context], -1).to(weights[0].dtype)
        if not self.training:
            x, weights = padded(x, 1), [padded(w, w.dim() - 1) for w in weights]
        return _layers(x.expand(len(self), -1, -1), weights)[..., : self.slot_dim]


def _layers(x: Float[Tensor, "b T in"], weights: Sequence[Tensor]) -> Float[Tensor, "b T out"]:
    """Linear layers with ReLU between them, one set of weights or b of them."""
    last = len(weights) - 2
    for k in range(0, len(weights), 2):
        weight, bias = weights[k].expand(len(x), -1, -1), weights[k + 1].unsqueeze(1)
        x = torch.baddbmm(bias, x, weight)
        x = x if k == last else x.relu_()
    return x


class ConvRules(RuleSet):
    """Convolutional actions for slots that are feature maps (Shapes stack with RPIN).

    conv(2C, hidden), ReLU, conv(hidden, C), size kept. Pass it as `rules=` to a layer; without
    explicit `selection` features the layer selects by each slot's spatial mean.

    Args:
        num_rules: number of rules N.
        slot_dim: C, the channels of a slot.
        rule_dim: size of the embeddings.
        hidden_dim: channels of the hidden layer.
        kernel_size: odd.

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
    ) -> None:
        require_int("hidden_dim", hidden_dim, at_least=1)
        require_int("kernel_size", kernel_size, at_least=1)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size: got {kernel_size}, expected an odd number")
        require_int("slot_dim", slot_dim, at_least=1)
        square, area = (kernel_size, kernel_size), kernel_size**2
        first, last = bounds(2 * slot_dim * area, hidden_dim * area)
        action = {
            "weight_in": ((hidden_dim, 2 * slot_dim, *square), first),
            "bias_in": ((hidden_dim,), 0.0),
            "weight_out": ((slot_dim, hidden_dim, *square), last),
            "bias_out": ((slot_dim,), 0.0),
        }
        super().__init__(num_rules, slot_dim, rule_dim, action)
        self.hidden_dim = hidden_dim
        self.kernel_size = kernel_size

    def forward(
        self,
        primary: Float[Tensor, "T C H W"],
        context: Float[Tensor, "T C H W"],
        choice: Float[Tensor, "T N"],
    ) -> Float[Tensor, "T C H W"]:
        tensors = (primary, context, choice, *self.parameters())
        # Elsewhere the rules of the blocks cannot be read without stalling the device.
        if not self.training and primary.device.type == "cpu" and only_fired(*tensors):
            return self._fired(primary, context, choice)
        outputs = self.outputs(primary, context)
        return (choice[:, :, None, None, None].to(outputs.dtype) * outputs).sum(1)

    def _fired(self, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor:
        """What the chosen rules do, and nothing else."""
        weights = [self.tensor(name) for name in ACTION]

        def act(x: Float[Tensor, "1 size 2*C H W"], rule: Int[Tensor, "1"]) -> Tensor:
            chosen = [w[int(rule)] for w in weights]
            x = x[0].to(chosen[0].dtype)
            return _two_layers(x, chosen, self.kernel_size // 2).unsqueeze(0)

        return Blocks.of(choice, CONV_BLOCK, static=False).run(primary, context, act, at_once=1)

    def outputs(
        self, primary: Float[Tensor, "T C H W"], context: Float[Tensor, "T C H W"]
    ) -> Float[Tensor, "T N C H W"]:
        """What every rule would do: in training the rules are the groups of one convolution."""
        n, pad = len(self), self.kernel_size // 2
        weight_in, bias_in = self.tensor("weight_in"), self.tensor("bias_in")
        weight_out, bias_out = self.tensor("weight_out"), self.tensor("bias_out")
        x = torch.cat([primary, context], 1).to(weight_in.dtype)
        if not self.training:  # one by one: a grouped convolution rounds by the number of groups
            rules = zip(weight_in, bias_in, weight_out, bias_out, strict=True)
            return torch.stack([_two_layers(x, rule, pad) for rule in rules], 1)
        hidden = F.conv2d(x, weight_in.flatten(0, 1), bias_in.flatten(), padding=pad).relu()
        out = F.conv2d(hidden, weight_out.flatten(0, 1), bias_out.flatten(), padding=pad, groups=n)
        per_rule: Tensor = out.unflatten(1, (n, self.slot_dim))
        return per_rule


def _two_layers(x: Tensor, rule: Sequence[Tensor], pad: int) -> Tensor:
    weight_in, bias_in, weight_out, bias_out = rule
    hidden = F.conv2d(x, weight_in, bias_in, padding=pad).relu()
    return F.conv2d(hidden, weight_out, bias_out, padding=pad)
