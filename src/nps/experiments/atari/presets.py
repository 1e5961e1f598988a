"""The presets of the world models of Atari games: C-SWM's slots, the paper's, and variants.

The paper takes C-SWM's model, and says of Atari only that the setup is that of its physics
environment: five slots of 64, from slot attention. C-SWM has three slots of 4. So there are three
rows of presets: C-SWM's program with its own slots (no mark), with slots of 64 (`3x64`, `5x64`),
and the paper's physics setup (`slots`). docs/notes/atari.md says where each setting comes from.
"""

from __future__ import annotations

from dataclasses import replace

from nps.experiments.atari.config import Config
from nps.experiments.experiment import Preset

NPS, GNN = Config(), Config(transition="gnn")
WIDE = {slots: Config(slots=slots, slot_dim=64) for slots in (3, 5)}
"""C-SWM's program with slots of the paper's size."""
SLOTS = Config(
    extractor="slot-attention",
    width=64,
    slots=5,
    slot_dim=64,
    epochs=100,
    batch_size=512,
    clip_norm=10.0,
)
"""The paper's physics setup: its encoder, slots and epochs. The batch is that of Ke et al., whose
setup it follows there; clipping is ours, as in blocks."""
CSWM = Config(
    statistics="running",
    separate_encoding=True,
    validation_episodes=0,
    validate_every=1,
    batch_size=1000,
)
"""C-SWM's program to the letter: no episodes held out, the epoch of lowest training loss is kept,
ten batches an epoch. Its batches are nine of 1,024 and one of the 784 left; ours are equal."""

PRESETS = {
    "atari-nps": Preset("C-SWM's slots, the paper's rules: 1 rule, 1 stage.", NPS),
    "atari-nps-5": Preset("5 rules, as in a comment of the paper's source.", Config(rules=5)),
    "atari-gnn": Preset("C-SWM: the same with its GNN.", GNN),
    **{
        name: preset
        for slots, wide in WIDE.items()
        for name, preset in {
            f"atari-{slots}x64-nps": Preset(f"{slots} slots of 64, 1 rule.", wide),
            f"atari-{slots}x64-nps-5": Preset(
                f"{slots} slots of 64, 5 rules.", replace(wide, rules=5)
            ),
            f"atari-{slots}x64-gnn": Preset(
                f"{slots} slots of 64 and the GNN.", replace(wide, transition="gnn")
            ),
        }.items()
    },
    "atari-slots-nps": Preset(
        "The paper's physics setup: slot attention, 5 slots of 64, 1 rule.", SLOTS
    ),
    "atari-slots-gnn": Preset(
        "The GNN in the paper's physics setup.", replace(SLOTS, transition="gnn")
    ),
    "atari-cswm-nps": Preset("NPS in C-SWM's program to the letter.", CSWM),
    "atari-cswm-gnn": Preset("C-SWM to the letter, with its GNN.", replace(CSWM, transition="gnn")),
    "atari-nps-aligned": Preset(
        "NPS, with negatives from the same time of other episodes.",
        replace(NPS, negatives="time-aligned"),
    ),
    "atari-gnn-aligned": Preset(
        "The GNN, with negatives from the same time of other episodes.",
        replace(GNN, negatives="time-aligned"),
    ),
    "atari-parallel-aligned": Preset(
        "Parallel NPS, with negatives from the same time of other episodes.",
        replace(NPS, transition="pnps", negatives="time-aligned"),
    ),
    "atari-nps-running": Preset(
        "NPS, evaluated with running statistics of batch normalisation, as C-SWM does.",
        replace(NPS, statistics="running"),
    ),
    "atari-gnn-running": Preset(
        "The GNN, evaluated with running statistics of batch normalisation, as C-SWM does.",
        replace(GNN, statistics="running"),
    ),
}

_CHANGES = {
    "epochs": 30,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "extractor": "small",  # the medium one takes ten times as long on a CPU
    "hidden_dim": 256,
}
QUICK = dict.fromkeys(
    ("atari-nps", "atari-gnn", "atari-nps-aligned", "atari-gnn-aligned"), _CHANGES
)
