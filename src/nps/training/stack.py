"""S models of one architecture as one: every parameter with a leading dimension for the seed.

All trainable parameters lie in one long vector, parameter by parameter, and within a parameter seed
by seed; the models compute with views of it. An optimiser step, an average over processes and the
copy of the best model are then one operation instead of one for each parameter, and launches are
what a step costs at these sizes.

A stack of one is an ordinary module: it computes with its own parameters, without `vmap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_map

from nps.training.checkpoint import Tensors, load_weights

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ALIGNMENT = 16
"""Each parameter starts at a multiple of this many floats, one cache line."""


class Stack:
    """The models of S seeds, built alike."""

    vector: Float[Tensor, "P"]
    """The trained parameters of all seeds."""
    seed_of: Int[Tensor, "P"]
    """The seed that an entry belongs to; padding counts as the first seed's and is always zero."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.size = len(models)
        self.model = models[0]
        """Lends its structure to all; if there are several, its own tensors are scratch space."""
        trained = [name for name, p in self.model.named_parameters() if p.requires_grad]
        tensors = [dict(m.named_parameters()) | dict(m.named_buffers()) for m in models]
        self.shapes = {name: tensors[0][name].shape for name in trained}
        self._starts, length = _layout(self.shapes, self.size)
        first = tensors[0][trained[0]].detach()
        self.vector = first.new_zeros(length)
        self.seed_of = torch.zeros(length, dtype=torch.int32, device=first.device)
        self._padding = first.new_zeros(ALIGNMENT)
        seeds = torch.arange(self.size, dtype=torch.int32, device=first.device)
        for name, part in self.parts(self.vector).items():
            part.copy_(torch.stack([t[name].detach() for t in tensors]))
        for part in self.parts(self.seed_of).values():
            part.copy_(seeds.view(-1, *[1] * (part.dim() - 1)).expand_as(part))
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

    def each(self, function: Callable[..., Any], *arguments: Any, chunk: int | None = None) -> Any:
        """`function(model, *arguments)` for every seed, with the results stacked.

        Args:
            function: of a model and one seed's arguments; returns tensors.
            arguments: tensors, or dictionaries of tensors, with a row for each seed.
            chunk: how many seeds to compute at the same time; None for all.
        """
        if self.size == 1:
            result = function(self.model, *tree_map(lambda x: x[0], arguments))
            return tree_map(lambda x: x.unsqueeze(0), result)
        call = _Call(self.model, function)
        state = {f"model.{k}": v for k, v in (self.parameters | self.constants).items()}

        def one(state: dict[str, Tensor], *arguments: Any) -> Any:
            return functional_call(call, state, arguments)

        return vmap(one, randomness="different", chunk_size=chunk)(state, *arguments)

    def gradient(self, losses: Float[Tensor, "S"]) -> Float[Tensor, "P"]:
        """The gradient of each seed's loss, laid out like the vector.

        Seeds share no parameters, so the gradient of the sum holds the gradient of each.
        """
        parameters = list(self.parameters.values())
        gradients = torch.autograd.grad(losses.sum(), parameters, materialize_grads=True)
        pieces: list[Tensor] = []
        for gradient in gradients:
            pieces += [gradient.reshape(-1), self._padding[: -gradient.numel() % ALIGNMENT]]
        return torch.cat(pieces)

    def norms(self, gradient: Float[Tensor, "P"]) -> Float[Tensor, "S"]:
        """The norm of each seed's gradient."""
        rows = [part.reshape(self.size, -1) for part in self.parts(gradient).values()]
        norms: Tensor = torch.linalg.vector_norm(torch.cat(rows, 1), dim=1)
        return norms

    def spread(self, values: Float[Tensor, "S"]) -> Float[Tensor, "P"]:
        """One value for each seed, repeated for each of its parameters."""
        return values if self.size == 1 else values.index_select(0, self.seed_of)

    def parts(self, vector: Float[Tensor, "P"]) -> dict[str, Float[Tensor, "S *shape"]]:
        """Views of a vector that is laid out like ours, as stacked parameters by name."""
        return {
            name: vector[start : start + self.size * shape.numel()].view(self.size, *shape)
            for (name, shape), start in zip(self.shapes.items(), self._starts, strict=True)
        }

    @contextmanager
    def using(self, vector: Float[Tensor, "P"] | None) -> Iterator[None]:
        """Compute with other parameters inside, e.g. their moving average; None changes nothing."""
        if vector is None:
            yield
            return
        own = self.vector.clone()
        self.vector.copy_(vector)
        try:
            yield
        finally:
            self.vector.copy_(own)

    # -- one seed's model ---------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """The model's own parameters and buffers, by name."""
        return dict(self.model.named_parameters()) | dict(self.model.named_buffers())

    @torch.no_grad()
    def model_of(self, s: int) -> nn.Module:
        """Seed s's model as an ordinary module, valid until the next call."""
        if self.size > 1:
            self._lend(s, self.vector, self.constants)
        return self.model

    @torch.no_grad()
    def state_dict(self, s: int, vector: Tensor, constants: Tensors) -> Tensors:
        """What seed s's model would save if it had these parameters and buffers; on the CPU."""
        kept = {name: tensor.detach().clone() for name, tensor in self.tensors().items()}
        self._lend(s, vector, constants)
        saved = {name: tensor.cpu().clone() for name, tensor in self.model.state_dict().items()}
        for name, tensor in self.tensors().items():
            tensor.copy_(kept[name])
        return saved

    @torch.no_grad()
    def load_state_dict(self, s: int, saved: Tensors) -> None:
        """Give seed s the parameters and buffers of a saved model."""
        load_weights(self.model, saved)
        if self.size == 1:  # the model's own tensors are the stack's
            return
        own = self.tensors()
        for name, part in self.parts(self.vector).items():
            part[s].copy_(own[name])
        for name, constant in self.constants.items():
            constant[s].copy_(own[name])

    def _lend(self, s: int, vector: Tensor, constants: Tensors) -> None:
        """Copy seed s's row into the model's own tensors."""
        own = self.tensors()
        for name, part in self.parts(vector).items():
            own[name].copy_(part[s])
        for name, constant in constants.items():
            own[name].copy_(constant if self.size == 1 else constant[s])


class _Call(nn.Module):
    """A function of a model as a module, so that `functional_call` can replace its parameters."""

    def __init__(self, model: nn.Module, function: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self.function = function

    def forward(self, *arguments: Tensor) -> Any:
        return self.function(self.model, *arguments)


def _layout(shapes: dict[str, torch.Size], size: int) -> tuple[list[int], int]:
    """Where each parameter starts in the vector, and the length of the vector."""
    starts, end = [], 0
    for shape in shapes.values():
        starts.append(end)
        end += math.ceil(size * shape.numel() / ALIGNMENT) * ALIGNMENT
    return starts, end
