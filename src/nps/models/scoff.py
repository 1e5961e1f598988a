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

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nps.interactions import GNN, Attention
from nps.perception.frames import BroadcastDecoder, Drawing, FrameEncoder
from nps.perception.object_files import SchemaReader, SlotReader
from nps.perception.places import PLACE, PlacedReader, Read, drift, in_radii, motion, push
from nps.rules import (
    GatedNPS,
    GatedParallelNPS,
    ParallelNPS,
    RuleConfig,
    RuleLayer,
    SequentialNPS,
    Trace,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, UInt8

Kind = Literal["attention", "snps", "pnps", "gnn", "none"]
"""What takes place between the slots."""
SelectBy = Literal["slot", "motion"]
"""What rules and contexts are chosen by."""


LIMIT = 10.0
"""The numbers of a slot stay within ± this. Those of a slot that shows a ball stay below 4. A slot
that shows nothing is held back by nothing in the loss: without a limit it grows by a factor in each
frame, until it overflows in a roll-out."""


class Prediction(NamedTuple):
    """Frames 1 to T, each predicted from those before it."""

    images: Float[Tensor, "B T 3 H W"]
    masks: Float[Tensor, "B T K H W"]
    """Share of each component in a pixel: the slots and, last, the background."""
    slots: Float[Tensor, "B T M D"]
    """After the interaction: what is drawn."""
    before: Float[Tensor, "B T M D"]
    """Before the interaction."""
    read: Float[Tensor, "B T M D"]
    """After reading the frame before, seen or predicted: what stands for that frame itself."""
    disagreement: Float[Tensor, "B T H W"]
    """Of the components of a pixel about its colour (`Drawing`)."""
    trace: Trace | None
    """What fired, with T behind B, if it was asked for and rules are what interacts."""
    present: Bool[Tensor, "B T M"] | None = None
    """Which slots interact; None: all."""


class Scoff(nn.Module):
    """A recurrent model of video with slots.

    Args:
        encoder: frames to features.
        reader: how slots read a frame.
        interaction: what takes place between slots; None: nothing.
        decoder: slots to frames.
        select_by: what rules and contexts are chosen by: "slot", or "motion", of slots with a place
            their place and velocity alone.
        radius: about that of an object, where half of the image's side is 1: the unit in which
            slots with a place move and interact; None for others.
        presence: only slots that see something interact, if the reader knows which these are. A
            slot that shows nothing is otherwise where rules can do no harm, and every choice goes
            there. Without input, a slot is present if it last was.
        hidden_dim: hidden units of the network that moves each slot by itself: it changes the
            velocity of a slot with a place, and all numbers of one without.

    Shapes: frames (B, S, H, W, 3) of bytes -> predictions of frames 1 to `steps`.
    """

    def __init__(
        self,
        encoder: FrameEncoder,
        reader: PlacedReader | SlotReader | SchemaReader,
        interaction: nn.Module | None,
        decoder: BroadcastDecoder,
        *,
        select_by: SelectBy = "slot",
        radius: float | None = None,
        presence: bool = True,
        hidden_dim: int = 128,
    ) -> None:
        super().__init__()
        d = reader.slot_dim
        self.encoder, self.reader, self.decoder = encoder, reader, decoder
        self.interaction = interaction
        self.select_by = select_by
        self.placed = isinstance(reader, PlacedReader)
        self.radius, self.presence = radius, presence
        changed = PLACE if self.placed else d
        self.move = nn.Sequential(
            nn.Linear(d, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, changed)
        )
        start_at_zero(self.move[-1])
        self.alone = False
        """Leave the interaction out (an optional first phase of training)."""

    def forward(
        self,
        frames: UInt8[Tensor, "B S H W 3"],
        *,
        steps: int | None = None,
        slots: int | None = None,
        noise: Float[Tensor, "B M D"] | None = None,
        return_trace: bool = False,
    ) -> Prediction:
        """
        Args:
            frames: what the model sees.
            steps: T, how many frames to predict. After the S-th, the model sees the frames that it
                has predicted itself. Default: S.
            slots: M, how many slots; by default as many as in training.
            noise: normal numbers from which slots without a place start; drawn if not given.
            return_trace: also record what fired.
        """
        seen = frames.shape[1]
        # Time comes first, so that a frame is contiguous.
        features = self.encoder(frames.transpose(0, 1).flatten(0, 1))
        inputs: list[Any] = self.reader.look_at(features.unflatten(0, (seen, len(frames))))
        files = self.reader.begin(inputs[0], slots or self.reader.slots, noise)
        read, moved, predicted, traces, presents = [], [], [], [], []
        for t in range(steps or seen):
            shown = inputs[t] if t < seen else self._own_view(files)
            files, present = self.read(shown, files, first=t == 0)
            presents += [] if present is None else [present]
            read.append(files)
            files, before, trace = self.step(files, present, return_trace=return_trace)
            moved.append(before)
            predicted.append(files)
            traces += [] if trace is None else [trace]
        files = torch.stack(predicted, 1)
        trace = Trace(*(torch.stack(x, 1) for x in zip(*traces, strict=True))) if traces else None
        images, masks, disagreement = self.draw(files)
        before, read_files = torch.stack(moved, 1), torch.stack(read, 1)
        present = torch.stack(presents, 1) if presents else None
        return Prediction(images, masks, files, before, read_files, disagreement, trace, present)

    def read(self, shown: Any, files: Float[Tensor, "B M D"], *, first: bool) -> Read:
        """Slots that have read a frame, and which of them interact."""
        read = self.reader.read(shown, files, first=first)
        return read if self.presence else Read(read.slots, None)

    def step(
        self,
        files: Float[Tensor, "B M D"],
        present: Bool[Tensor, "B M"] | None,
        *,
        return_trace: bool = False,
    ) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B M D"], Trace | None]:
        """The slots of the next frame, those before the interaction, and what fired."""
        with torch.autocast(files.device.type, enabled=False):
            moved = self._move(files).clamp(-LIMIT, LIMIT)
            new, trace = self._interact(moved, present, return_trace)
            new = new.clamp(-LIMIT, LIMIT)
            return drift(new, files) if self.placed else new, moved, trace

    def _own_view(self, slots: Float[Tensor, "B M D"]) -> Any:
        """What slots can see of the frame that they predict: a roll-out reads its own frames.

        Slots that only moved and interacted from frame to frame were lost within four of them.
        Reading is part of what holds a slot to its object, and of what it knows of walls.
        """
        return self.view_of(self.draw(slots.detach().unsqueeze(1)).images.squeeze(1))

    def view_of(self, images: Float[Tensor, "B 3 H W"]) -> Any:
        """What slots can see of frames that they have drawn."""
        frame = (255.0 * images.clamp(0.0, 1.0)).round().to(torch.uint8).permute(0, 2, 3, 1)
        return self.reader.look_at(self.encoder(frame).unsqueeze(0))[0]

    def in_units(self, slots: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Slots as the networks between and within them see them."""
        return slots if self.radius is None else in_radii(slots, self.radius)

    def _move(self, slots: Float[Tensor, "B M D"]) -> Float[Tensor, "B M D"]:
        """Each slot by itself: its velocity if it has one, else all of it."""
        if self.radius is None:
            new: Tensor = slots + self.move(slots)
            return new
        return push(slots, self.radius * self.move(self.in_units(slots)))

    def _interact(
        self,
        slots: Float[Tensor, "B M D"],
        present: Bool[Tensor, "B M"] | None,
        traced: bool,
    ) -> tuple[Float[Tensor, "B M D"], Trace | None]:
        if self.interaction is None or self.alone:
            return slots, None
        options: dict[str, Any] = {"slot_mask": present}
        if isinstance(self.interaction, RuleLayer):
            options["selection"] = motion if self.select_by == "motion" else None
            options["return_trace"] = traced
        new = self.interaction(self.in_units(slots), **options)
        new, trace = new if isinstance(new, tuple) else (new, None)
        new = new if self.radius is None else in_radii(new, 1.0 / self.radius)
        return new, trace

    def change(self, predicted: Prediction) -> Float[Tensor, "B T M"]:
        """How much the interaction changed each slot: of a slot with a place, its velocity, since
        nothing else of a change shows in where it goes."""
        change = predicted.slots - predicted.before
        change = change[..., PLACE : 2 * PLACE] if self.placed else change
        size: Tensor = torch.linalg.vector_norm(change, dim=-1)
        return size

    def draw(self, slots: Float[Tensor, "B T M D"]) -> Drawing:
        """The frames that slots stand for, and the masks of the components; T stands behind B."""
        if torch.is_grad_enabled():
            drawn: Drawing = self.decoder(slots.flatten(0, 1))
            return Drawing(*(x.unflatten(0, slots.shape[:2]) for x in drawn))
        # Without a gradient videos may be long: one frame at a time needs little memory.
        parts = [self.decoder(part) for part in slots.unbind(1)]
        return Drawing(*(torch.stack(x, 1) for x in zip(*parts, strict=True)))


def make_interaction(
    kind: Kind,
    slot_dim: int,
    rules: RuleConfig,
    *,
    hidden_dim: int = 128,
    gate: bool = False,
    select_by: SelectBy = "slot",
) -> nn.Module | None:
    """The layer between slots.

    Args:
        kind: its name.
        slot_dim: D.
        rules: settings of the rule layers. `zero_start` holds for all kinds: a comparison in which
            only the rules begin by changing nothing would not be one of interactions.
        hidden_dim: width of the GNN.
        gate: whether a stage of sequential NPS may fire no rule (`GatedNPS`).
        select_by: as for `Scoff`.
    """
    selection_dim = 2 * PLACE if select_by == "motion" else None
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
            sequential = GatedNPS if gate else SequentialNPS
            return sequential.from_config(rules, slot_dim, selection_dim=selection_dim)
        case "pnps":
            parallel = GatedParallelNPS if gate else ParallelNPS
            return parallel.from_config(rules, slot_dim, selection_dim=selection_dim)
        case "none":
            return None


def start_at_zero(last: nn.Module) -> None:
    """Let a residual network begin by changing nothing; `last` is its linear output layer."""
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
