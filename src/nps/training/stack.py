"""S models of one architecture as one: every parameter with a leading dimension for the seed.

All trainable numbers lie in one long vector, parameter by parameter, and within a parameter seed by
seed; the models compute with views of it. An optimiser step, an average over processes, the copy
of the best model are then one operation instead of one a parameter, and launches are what a step
costs at these sizes.

A stack of one computes with the model's own parameters, without vmap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from nps.training.checkpoint import Tensors

ALIGNMENT = 16
"""Each parameter starts at a multiple of this many floats, one cache line."""


class Stack:
    """The models of S seeds, built alike."""

    vector: Float[Tensor, "numbers"]
    """All that is trained, of all seeds."""
    seed_of: Int[Tensor, "numbers"]
    """Whose number it is; padding counts as the first seed's and is always zero."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.size = len(models)
        self.model = models[0]
        """Lends its structure to all; its own numbers are scratch when there are several."""
        trained = [name for name, p in self.model.named_parameters() if p.requires_grad]
        tensors = [dict(m.named_parameters()) | dict(m.named_buffers()) for m in models]
        self.shapes = {name: tensors[0][name].shape for name in trained}
        self._starts, length = _layout(self.shapes, self.size)
        first = tensors[0][trained[0]].detach()
        self.vector = first.new_zeros(length)
        self.seed_of = torch.zeros(length, dtype=torch.int32, device=first.device)
        self._padding = first.new_zeros(ALIGNMENT)
        mine = torch.arange(self.size, dtype=torch.int32, device=first.device)
        for name, part in self.parts(self.vector).items():
            part.copy_(torch.stack([t[name].detach() for t in tensors]))
        for part in self.parts(self.seed_of).values():
            part.copy_(mine.view(-1, *[1] * (part.dim() - 1)).expand_as(part))
        self.parameters: dict[str, Tensor] = {}
        """What the models compute with: views of the vector."""
        for name, part in self.parts(self.vector).items():
            if self.size == 1:
                parameter = tensors[0][name]
                parameter.data = part[0]
            else:
                parameter = part.detach().requires_grad_()
            self.parameters[name] = parameter
        rest = [name for name in tensors[0] if name not in self.parameters]
        self.constants: dict[str, Tensor] = {}
        """Buffers and parameters that are not trained."""
        for name in rest:
            values = [t[name].detach() for t in tensors]
            self.constants[name] = values[0] if self.size == 1 else torch.stack(values)

    # -- computing ----------------------------------------------------------------------------

    def each(
        self, function: Callable[..., Any], *arguments: Tensor, chunk: int | None = None
    ) -> Any:
        """`function(model, *arguments)` of every seed, the results stacked.

        Args:
            function: of a model and one seed's arguments; gives tensors.
            arguments: a row for each seed.
            chunk: compute at most so many seeds at the same time.
        """
        if self.size == 1:
            result = function(self.model, *(argument[0] for argument in arguments))
            return torch.utils._pytree.tree_map(lambda x: x.unsqueeze(0), result)
        call = _Call(self.model, function)
        state = {f"model.{k}": v for k, v in (self.parameters | self.constants).items()}

        def one(state: dict[str, Tensor], *arguments: Tensor) -> Any:
            return functional_call(call, state, arguments)

        return vmap(one, randomness="different", chunk_size=chunk)(state, *arguments)

    def gradient(self, losses: Float[Tensor, "S"]) -> Float[Tensor, "numbers"]:
        """The gradient of each seed's loss, laid out as the vector.

        Seeds share no numbers, so the gradient of the sum is that of each.
        """
        parameters = list(self.parameters.values())
        gradients = torch.autograd.grad(losses.sum(), parameters, materialize_grads=True)
        pieces: list[Tensor] = []
        for gradient in gradients:
            pieces += [gradient.reshape(-1), self._padding[: -gradient.numel() % ALIGNMENT]]
        return torch.cat(pieces)

    def norms(self, gradient: Float[Tensor, "numbers"]) -> Float[Tensor, "S"]:
        """The norm of each seed's gradient."""
        rows = [part.reshape(self.size, -1) for part in self.parts(gradient).values()]
        norms: Tensor = torch.linalg.vector_norm(torch.cat(rows, 1), dim=1)
        return norms

    def spread(self, values: Float[Tensor, "S"]) -> Float[Tensor, "numbers"]:
        """A value a seed, for each of its numbers."""
        return values if self.size == 1 else values.index_select(0, self.seed_of)

    def parts(self, vector: Float[Tensor, "numbers"]) -> dict[str, Float[Tensor, "S *shape"]]:
        """A vector laid out as ours, seen as stacked parameters."""
        return {
            name: vector[start : start + self.size * shape.numel()].view(self.size, *shape)
            for (name, shape), start in zip(self.shapes.items(), self._starts, strict=True)
        }

    # -- one seed's own -----------------------------------------------------------------------

    @torch.no_grad()
    def state_dict(self, s: int, vector: Tensor, constants: Tensors) -> Tensors:
        """What seed s's model would save, had it these numbers; on the CPU."""
        own = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        kept = {name: tensor.detach().clone() for name, tensor in own.items()}
        for name, part in self.parts(vector).items():
            own[name].copy_(part[s])
        for name, constant in constants.items():
            own[name].copy_(constant if self.size == 1 else constant[s])
        saved = {name: tensor.cpu().clone() for name, tensor in self.model.state_dict().items()}
        for name, tensor in kept.items():
            own[name].copy_(tensor)
        return saved

    @torch.no_grad()
    def load_state_dict(self, s: int, saved: Tensors) -> None:
        """Give seed s the numbers of a saved model."""
        self.model.load_state_dict(saved)
        if self.size == 1:  # the model computes with the vector already
            return
        own = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        for name, part in self.parts(self.vector).items():
            part[s].copy_(own[name])
        for name, constant in self.constants.items():
            constant[s].copy_(own[name])


class _Call(nn.Module):
    """A function of a model as a module, so that `functional_call` can lend it other numbers."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(self.model, *arguments)


def _layout(shapes: dict[str, torch.Size], size: int) -> tuple[list[int], int]:
    """Where each parameter starts in the vector, and how long that is."""
    starts, end = [], 0
    for shape in shapes.values():
        starts.append(end)
        end += math.ceil(size * shape.numel() / ALIGNMENT) * ALIGNMENT
    return starts, end
