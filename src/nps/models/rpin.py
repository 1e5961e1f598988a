"""RPIN, the model of Shapes stack (paper, section 4.2; Qi et al. 2021), and RPIN with rules.

One picture of a tower, and a box around each shape; where are the shapes in the next frames?

    picture ──► hourglass ──► crop each box ──► slots ──┬──► + z_t ──► interaction ──► boxes, masks
                                                        └──────────────────┘   frame after frame

Slots are feature maps. RPIN lets them interact by a convolutional interaction network; the paper
replaces that by parallel or sequential NPS with convolutional rules. What the picture does not tell
is a latent vector, inferred in training from the last frame, and drawn at random in a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from nps.interactions.cin import CIN
from nps.kernels.compiled import compiled_on_gpu
from nps.models.unit import unit
from nps.perception.hourglass import Hourglass, crop
from nps.rules import ParallelNPS, RuleConfig, RuleLayer, SequentialNPS, Trace

if TYPE_CHECKING:
    from jaxtyping import Float

Kind = Literal["cin", "pnps", "snps", "none"]
"""What takes place between the slots."""
SelectBy = Literal["pooled", "flattened"]
"""What of a feature map rules and contexts are chosen by."""
CELLS = 7
"""Side of a slot."""
MASK = 28
LATENT = 8
MASK_HIDDEN = 256


class Prediction(NamedTuple):
    """Frames 1 to T."""

    boxes: Float[Tensor, "B T M 4"]
    """Column and row of the centre, width and height, in sides of the picture."""
    masks: Float[Tensor, "B T M 28 28"]
    """Logits."""
    trace: Trace | None
    """What fired, with T behind B, if it was asked for and rules are what interacts."""


class Latent(NamedTuple):
    """A normal distribution of what the first picture does not tell."""

    mean: Float[Tensor, "B 8"]
    log_variance: Float[Tensor, "B 8"]

    def draw(self, noise: Float[Tensor, "B 8"]) -> Float[Tensor, "B 8"]:
        return self.mean + noise * (0.5 * self.log_variance).exp()

    def divergence(self) -> Float[Tensor, ""]:
        """From the standard normal distribution: the mean over batch and dimensions."""
        spread = self.log_variance.exp()
        return 0.5 * (self.mean.square() + spread - self.log_variance - 1.0).mean()


class Weights(NamedTuple):
    """Of what is done in every frame, cast once."""

    join: Float[Tensor, "C C 1 1"]
    """The part for the slots."""
    predict: Float[Tensor, "C C 1 1"]
    interaction: dict[str, Tensor]


class RPIN(nn.Module):
    """Where shapes go, from one picture.

    Args:
        interaction: what takes place between slots; None: nothing.
        width: C, channels of a slot (RPIN: 256).
        select_by: what rules and contexts are chosen by: the mean of a slot over its cells, or all
            of its numbers.
        coordinates: tell slots where in the picture their cells are (RPIN does not). What is cut
            out of a picture hardly shows that, and in training the latent tells it instead.
        residual: add what is predicted to the slots, instead of replacing them (RPIN).
    """

    def __init__(
        self,
        interaction: nn.Module | None,
        width: int = 256,
        *,
        select_by: SelectBy = "pooled",
        coordinates: bool = False,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.width, self.select_by = width, select_by
        self.coordinates, self.residual = coordinates, residual
        self.backbone = Hourglass(width)
        self.to_slots = nn.Sequential(
            *conv_relu(width + 2 * coordinates, width),
            *conv_relu(width, width),
            *conv_relu(width, width),
        )
        self.posterior = nn.Sequential(
            *conv_relu(2 * width, width, stride=2),
            *conv_relu(width, width, stride=2),
            *conv_relu(width, width, stride=2),
        )
        self.mean, self.log_variance = nn.Linear(width, LATENT), nn.Linear(width, LATENT)
        self.latents = nn.LSTMCell(LATENT, LATENT)
        self.join = nn.Conv2d(width + LATENT, width, 1)
        self.interaction = interaction
        self.predict = nn.Conv2d(width, width, 1)
        numbers = width * CELLS**2
        self.box = nn.Linear(numbers, 4)
        self.mask = nn.Sequential(
            nn.Linear(numbers, MASK_HIDDEN), nn.ReLU(), nn.Linear(MASK_HIDDEN, MASK**2)
        )

    def encode(
        self, features: Float[Tensor, "B C H W"], boxes: Float[Tensor, "B M 4"]
    ) -> Float[Tensor, "B M C 7 7"]:
        """The slots of the first frame; boxes as edges, in sides of the picture."""
        cropped = crop(features, boxes, CELLS)
        if self.coordinates:
            cropped = torch.cat([cropped, 2 * cells(boxes).to(cropped) - 1], 2)
        slots: Tensor = self.to_slots(cropped.flatten(0, 1)).unflatten(0, cropped.shape[:2])
        return slots

    def infer(self, first: Float[Tensor, "B C H W"], last: Float[Tensor, "B C H W"]) -> Latent:
        """What happened, from the features of the first and the last frame."""
        seen = self.posterior(torch.cat([first, last], 1)).mean((-2, -1)).float()
        return Latent(self.mean(seen), self.log_variance(seen))

    def unroll(
        self,
        slots: Float[Tensor, "B M C 7 7"],
        latent: Float[Tensor, "B 8"],
        steps: int,
        *,
        return_trace: bool = False,
    ) -> Prediction:
        """The next frames.

        Args:
            slots: of the first frame.
            latent: what happens.
            steps: T, how many frames.
            return_trace: also record what fires.
        """
        told, weights = self.told(latent, steps), self._weights()
        states, traces = [], []
        for t in range(steps):
            slots, trace = self._frame(slots, told[:, t], weights, return_trace)
            states.append(slots)
            traces += [] if trace is None else [trace]
        flat = torch.stack(states, 1).flatten(3)
        masks = self.mask(flat).float().unflatten(-1, (MASK, MASK))
        trace = Trace(*(torch.stack(x, 1) for x in zip(*traces, strict=True))) if traces else None
        return Prediction(self.box(flat).float(), masks, trace)

    def step(
        self, slots: Float[Tensor, "B M C 7 7"], told: Float[Tensor, "B C"]
    ) -> Float[Tensor, "B M C 7 7"]:
        """The slots of one frame later; `told` is that frame's share of `self.told`."""
        return self._frame(slots, told, self._weights(), False)[0]

    @compiled_on_gpu
    def _frame(
        self,
        slots: Float[Tensor, "B M C 7 7"],
        told: Float[Tensor, "B C"],
        weights: Weights,
        traced: bool,
    ) -> tuple[Float[Tensor, "B M C 7 7"], Trace | None]:
        """The next frame's slots."""
        b, m = slots.shape[:2]
        x = F.conv2d(slots.flatten(0, 1), weights.join).unflatten(0, (b, m))
        x = (x + told[:, None, :, None, None]).relu()
        x, trace = self._interact(unit(x, 2), weights.interaction, traced)
        x = F.conv2d(x.flatten(0, 1), weights.predict, self.predict.bias).unflatten(0, (b, m))
        return (slots + x if self.residual else x).relu(), trace

    def _weights(self) -> Weights:
        layer = self.interaction
        between = {} if layer is None else {k: cast(p) for k, p in layer.named_parameters()}
        return Weights(cast(self.join.weight[:, : self.width]), cast(self.predict.weight), between)

    def told(self, latent: Float[Tensor, "B 8"], steps: int) -> Float[Tensor, "B T C"]:
        """What the latent adds to each cell in each frame: its share of `join`."""
        state = torch.zeros_like(latent), latent
        hidden = []
        with torch.autocast(latent.device.type, enabled=False):
            for _ in range(steps):
                state = self.latents(torch.zeros_like(latent), state)
                hidden.append(state[0])
            weight = self.join.weight[:, self.width :, 0, 0]
            return F.linear(torch.stack(hidden, 1), weight, self.join.bias)

    def _interact(
        self, slots: Float[Tensor, "B M C 7 7"], weights: dict[str, Tensor], traced: bool
    ) -> tuple[Float[Tensor, "B M C 7 7"], Trace | None]:
        if self.interaction is None:
            return slots, None
        if not isinstance(self.interaction, RuleLayer):
            new: Tensor = functional_call(self.interaction, weights, (slots,))
            return new, None
        options = {"selection": self._features, "return_trace": traced}
        changed: Any = functional_call(self.interaction, weights, (slots,), options)
        return changed if traced else (changed, None)

    def _features(self, slots: Float[Tensor, "B M C 7 7"]) -> Float[Tensor, "B M F"]:
        """Scaled, so that a channel is about 1: the slots have length 1 in every cell."""
        features = slots.mean((-2, -1)) if self.select_by == "pooled" else slots.flatten(2)
        scaled: Tensor = self.width**0.5 * features
        return scaled


def cells(boxes: Float[Tensor, "B M 4"]) -> Float[Tensor, "B M 2 7 7"]:
    """Columns and rows of the centres of the cells of boxes, in sides of the picture."""
    share = (torch.arange(CELLS, device=boxes.device) + 0.5) / CELLS
    start, end = boxes[..., :2].unsqueeze(-1), boxes[..., 2:].unsqueeze(-1)
    column, row = torch.lerp(start, end, share).unbind(2)
    return torch.stack(torch.broadcast_tensors(column.unsqueeze(-2), row.unsqueeze(-1)), 2)


def cast(weight: Tensor) -> Tensor:
    """A convolution's weight in the type and layout that autocast and cuDNN would give it in every
    frame anew."""
    device = weight.device.type
    if weight.dim() < 4 or not torch.is_autocast_enabled(device):
        return weight
    last = weight.to(torch.get_autocast_dtype(device)).movedim(-3, -1).contiguous()
    return last.movedim(-1, -3)


def conv_relu(size_in: int, size_out: int, *, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(size_in, size_out, 3, stride=stride, padding=1), nn.ReLU()


def make_interaction(
    kind: Kind, width: int, rules: RuleConfig, *, select_by: SelectBy = "pooled"
) -> nn.Module | None:
    """The layer between slots; rules are convolutions if their config has a `kernel_size`."""
    selection_dim = width if select_by == "pooled" else width * CELLS**2
    match kind:
        case "cin":
            return CIN(width)
        case "pnps":
            return ParallelNPS.from_config(rules, width, selection_dim=selection_dim)
        case "snps":
            return SequentialNPS.from_config(rules, width, selection_dim=selection_dim)
        case "none":
            return None
