"""S models of one architecture as one: every parameter with a leading dimension for the seed.

The stack keeps its trainable numbers twice. `parameters` are what the models compute with, one
stacked tensor a parameter. `matrix` has a row for each seed with all its numbers: a gradient norm,
an optimiser step, an average over processes, the copy of the best model are then one operation
instead of one a parameter, and launches are what a step costs at these sizes.

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
    from jaxtyping import Float

    from nps.training.checkpoint import Tensors

ALIGNMENT = 16
"""Each parameter starts at a multiple of this many floats, one cache line, in its row."""


class Stack:
    """The models of S seeds, built alike."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.size = len(models)
        self.model = models[0]
        """Lends its structure to all; its own numbers are scratch when there are several."""
        trained = [name for name, p in self.model.named_parameters() if p.requires_grad]
        tensors = [dict(m.named_parameters()) | dict(m.named_buffers()) for m in models]
        if self.size == 1:
            state = tensors[0]
        else:
            state = {name: torch.stack([t[name].detach() for t in tensors]) for name in tensors[0]}
        self.parameters = {name: state[name].requires_grad_() for name in trained}
        self.constants = {name: state[name] for name in state if name not in self.parameters}
        """Buffers and parameters that are not trained."""
        self.shapes = {name: tensors[0][name].shape for name in trained}
        self._starts, self.width = _layout(self.shapes)
        first = next(iter(self.parameters.values()))
        self.matrix = first.detach().new_zeros(self.size, self.width)
        self._padding = self.matrix.new_zeros(self.size, ALIGNMENT)
        for name, part in self.parts(self.matrix).items():
            part.copy_(self.parameters[name].detach().reshape(part.shape))

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

    def gradient(self, losses: Float[Tensor, "S"]) -> Float[Tensor, "S width"]:
        """The gradient of each seed's loss, laid out as the matrix. Seeds share no numbers, so the
        gradient of the sum is that of each."""
        parameters = list(self.parameters.values())
        gradients = torch.autograd.grad(losses.sum(), parameters, materialize_grads=True)
        rows: list[Tensor] = []
        for gradient in gradients:
            row = gradient.reshape(self.size, -1)
            rows += [row, self._padding[:, : -row.shape[1] % ALIGNMENT]]
        return torch.cat(rows, 1)

    def parts(self, matrix: Float[Tensor, "S width"]) -> dict[str, Float[Tensor, "S *shape"]]:
        """A matrix laid out as ours, seen as stacked parameters."""
        return {
            name: matrix[:, start : start + shape.numel()].unflatten(1, shape or (1,))
            for (name, shape), start in zip(self.shapes.items(), self._starts, strict=True)
        }

    @torch.no_grad()
    def publish(self) -> None:
        """Let the models compute with the matrix's numbers."""
        ours = list(self.parameters.values())
        parts = zip(self.parts(self.matrix).values(), ours, strict=True)
        torch._foreach_copy_(ours, [part.reshape(our.shape) for part, our in parts])

    # -- one seed's own -----------------------------------------------------------------------

    @torch.no_grad()
    def state_dict(self, s: int, matrix: Tensor, constants: Tensors) -> Tensors:
        """What seed s's model would save, had it these numbers; on the CPU."""
        own = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        kept = {name: tensor.detach().clone() for name, tensor in own.items()}
        for name, part in self.parts(matrix).items():
            own[name].copy_(part[s].reshape(own[name].shape))
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
        own = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        for name, part in self.parts(self.matrix).items():
            part[s].copy_(own[name].reshape(part[s].shape))
        if self.size > 1:
            for name, constant in self.constants.items():
                constant[s].copy_(own[name])
        self.publish()


class _Call(nn.Module):
    """A function of a model as a module, so that `functional_call` can lend it other numbers."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(self.model, *arguments)


def _layout(shapes: dict[str, torch.Size]) -> tuple[list[int], int]:
    """Where each parameter starts in a row, and how long a row is."""
    starts, end = [], 0
    for shape in shapes.values():
        starts.append(end)
        end += math.ceil(shape.numel() / ALIGNMENT) * ALIGNMENT
    return starts, end
