"""SCOFF, SCOFF++ and SCOFF++ with rules: the models of bouncing balls (paper, section 4.2).

Object files (slots) read a frame, move by a network that all of them share, and interact; what they
have become then is drawn, and should be the next frame:

    frame t ──► encoder ──► read ──► + move ──► interaction ──► decoder ──► frame t + 1
                             ▲                       │
                             └────── slots of t ◄────┘

SCOFF and SCOFF++ interact by attention between all pairs; the paper replaces that by sequential or
parallel NPS. Only reading, moving and interacting are recurrent: frames are encoded, and
predictions drawn, all at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nps.interactions import GNN, Attention
from nps.perception.frames import BroadcastDecoder, Drawing, FrameEncoder
from nps.perception.object_files import SchemaReader, SlotReader
from nps.perception.slot_attention import Inputs
from nps.rules import GatedNPS, ParallelNPS, RuleConfig, RuleLayer, SequentialNPS, Trace

if TYPE_CHECKING:
    from jaxtyping import Float, UInt8

Kind = Literal["attention", "snps", "pnps", "gnn", "none"]
"""What takes place between the slots."""


class Prediction(NamedTuple):
    """Frames 1 to T, each predicted from those before it."""

    images: Float[Tensor, "B T 3 H W"]
    masks: Float[Tensor, "B T K H W"]
    """Share of each component in a pixel: the slots and, last, the background."""
    slots: Float[Tensor, "B T M D"]
    """After the interaction: what is drawn."""
    before: Float[Tensor, "B T M D"]
    """Before the interaction."""
    read: Float[Tensor, "B S M D"]
    """After reading each of the frames that were seen: what stands for that frame itself."""
    trace: Trace | None
    """What fired, with T behind B, if it was asked for and rules are what interacts."""


class Scoff(nn.Module):
    """A recurrent model of video with slots.

    Args:
        encoder: frames to features.
        reader: how slots read a frame.
        interaction: what takes place between slots; None: nothing.
        decoder: slots to frames.
        hidden_dim: hidden units of the network that moves each slot by itself.

    Shapes: frames (B, S, H, W, 3) of bytes -> predictions of frames 1 to `steps`.
    """

    def __init__(
        self,
        encoder: FrameEncoder,
        reader: SlotReader | SchemaReader,
        interaction: nn.Module | None,
        decoder: BroadcastDecoder,
        *,
        hidden_dim: int = 128,
    ) -> None:
        super().__init__()
        d = reader.slot_dim
        self.encoder, self.reader, self.decoder = encoder, reader, decoder
        self.interaction = interaction
        self.move = nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, d)
        )
        start_at_zero(self.move[-1])
        self.alone = False
        """Leave the interaction out (an optional first phase of training)."""

    def forward(
        self,
        frames: UInt8[Tensor, "B S H W 3"],
        *,
        steps: int | None = None,
        noise: Float[Tensor, "B M D"] | None = None,
        return_trace: bool = False,
    ) -> Prediction:
        """
        Args:
            frames: what the model sees.
            steps: T, how many frames to predict; from frame S + 1 on without having seen the frame
                before. Default: S.
            noise: normal numbers from which the slots start, one row for each slot, so that its M
                is the number of slots; drawn if not given.
            return_trace: also record what fired.
        """
        seen = frames.shape[1]
        inputs = self._inputs(frames)
        slots = self.reader.initial_slots(len(frames), noise)
        read, moved, predicted, traces = [], [], [], []
        for t in range(steps or seen):
            if t < seen:
                slots = self.reader.read(inputs[t], slots, first=t == 0)
                read.append(slots)
            with torch.autocast(slots.device.type, enabled=False):
                slots = slots + self.move(slots)
                moved.append(slots)
                slots, trace = self._interact(slots, return_trace)
            predicted.append(slots)
            traces += [] if trace is None else [trace]
        files = torch.stack(predicted, 1)
        trace = Trace(*(torch.stack(x, 1) for x in zip(*traces, strict=True))) if traces else None
        moved_files, read_files = torch.stack(moved, 1), torch.stack(read, 1)
        return Prediction(*self.draw(files), files, moved_files, read_files, trace)

    def _inputs(self, frames: UInt8[Tensor, "B S H W 3"]) -> list[Inputs]:
        """What slots read of each frame. Time comes first, so that a frame is contiguous."""
        time_first = frames.transpose(0, 1)
        features = self.encoder(time_first.flatten(0, 1))
        all_frames, key, value = self.reader.prepare(features)
        each = all_frames.view(*time_first.shape[:2], *all_frames.shape[1:]).unbind(0)
        return [Inputs(frame, key, value) for frame in each]

    def _interact(
        self, slots: Float[Tensor, "B M D"], traced: bool
    ) -> tuple[Float[Tensor, "B M D"], Trace | None]:
        if self.interaction is None or self.alone:
            return slots, None
        if traced and isinstance(self.interaction, RuleLayer):
            return self.interaction(slots, return_trace=True)
        new: Tensor = self.interaction(slots)
        return new, None

    def fade_background(self, logit: Float[Tensor, ""]) -> None:
        """Set the mask logit of the background: a negative number, or 0 when it has faded in."""
        self.decoder.background_logit.copy_(logit.detach().clamp(max=0.0))

    def draw(
        self, slots: Float[Tensor, "B T M D"]
    ) -> tuple[Float[Tensor, "B T 3 H W"], Float[Tensor, "B T K H W"]]:
        """The frames that slots stand for, and the masks of the components."""
        if torch.is_grad_enabled():
            drawn: Drawing = self.decoder(slots.flatten(0, 1))
            images, masks = (x.unflatten(0, slots.shape[:2]) for x in drawn)
            return images, masks
        # Without a gradient videos may be long: one frame at a time needs little memory.
        parts = [self.decoder(part) for part in slots.unbind(1)]
        return torch.stack([p.images for p in parts], 1), torch.stack([p.masks for p in parts], 1)


def make_interaction(
    kind: Kind, slot_dim: int, rules: RuleConfig, *, hidden_dim: int = 128, gate: bool = False
) -> nn.Module | None:
    """The layer between slots.

    Args:
        kind: its name.
        slot_dim: D.
        rules: settings of the rule layers. `zero_start` holds for all kinds: a comparison in which
            only the rules begin by changing nothing would not be one of interactions.
        hidden_dim: width of the GNN.
        gate: whether a stage of sequential NPS may fire no rule (`GatedNPS`).
    """
    match kind:
        case "attention":
            attention = Attention(slot_dim)
            if rules.zero_start:
                start_at_zero(attention.attention.out_proj)
            return attention
        case "gnn":
            gnn = GNN(slot_dim, hidden_dim=hidden_dim)
            if rules.zero_start:
                start_at_zero(gnn.node[-1])
            return gnn
        case "snps":
            return (GatedNPS if gate else SequentialNPS).from_config(rules, slot_dim)
        case "pnps":
            return ParallelNPS.from_config(rules, slot_dim)
        case "none":
            return None


def start_at_zero(last: nn.Module) -> None:
    """Let a residual network begin by changing nothing; `last` is its linear output layer."""
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
