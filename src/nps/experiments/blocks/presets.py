"""The presets of the world models of blocks: C-SWM's check, the text's rules, controls, and ours.

No preset is the paper's setting: the text's rules have a matrix per slot position here, and 25
actions (docs/notes/blocks.md). Without `slots` in its name a preset has C-SWM's perception.
"""

from __future__ import annotations

from dataclasses import replace

from nps.experiments.blocks.config import Config
from nps.experiments.experiment import Preset

FIXED = Config(mode="fixed-palette", extractor="small", slot_dim=8)
"""Episodes differ in positions only, so dynamics are all there is to learn."""

SLOTS = Config(extractor="slot-attention", width=64, clip_norm=10.0)
"""The text's encoder. Clipped because the GNN's first gradients have norms in the hundreds."""
FIXED_SLOTS = replace(SLOTS, mode="fixed-palette")
BEST = replace(
    FIXED,
    transition="pnps",
    rules=2,
    action="numbered",
    selection="mlp",
    self_context=False,
    context_gradient="update",
    context_dropout=0.35,
    context_from=0.05,
    maps="contrast",
    null_handicap=1e6,
    rule_layers=2,
    hidden_dim=64,
    batch_size=256,
    epochs=80,
    learning_rate=2e-3,
    final_learning_rate=1e-5,
)
"""Pushes are 3 % of the data and take many epochs. docs/notes/pushes.md has the ablations."""

STAGES = (2, 3, 5)
"""The paper's comparison; the presets without a number have one stage."""

GNN = Config(transition="gnn")
MODES = ("observed", "fixed-unobserved")
"""Ke et al.'s other modes of training."""
HALF = 50
"""Epochs with negatives from the episode, and then with negatives from the batch."""

CONTROLS = {
    **{
        f"blocks-{mode}-{name}": Preset(f"{about}, in the mode {mode}.", replace(config, mode=mode))
        for mode in MODES
        for name, about, config in (
            ("nps", "The text's rules, C-SWM's perception", Config()),
            ("gnn", "The GNN", GNN),
        )
    },
    "blocks-nps-four-directions": Preset(
        "The text's rules, C-SWM's perception; 20 actions: no block has one to stay.",
        Config(stay=False),
    ),
    "blocks-gnn-four-directions": Preset(
        "The GNN; 20 actions: no block has one to stay.", replace(GNN, stay=False)
    ),
    "blocks-nps-episode-first": Preset(
        f"The first {HALF} epochs of blocks-nps-batch-after: half of the negatives from the "
        "same episode.",
        Config(negatives="episode", epochs=HALF),
    ),
    "blocks-nps-batch-after": Preset(
        f"Another {HALF} epochs, with negatives from the batch: is what was learned forgotten?",
        Config(epochs=HALF),
        starts_from="blocks-nps-episode-first",
    ),
    "blocks-gnn-episode-first": Preset(
        f"The first {HALF} epochs of blocks-gnn-batch-after.",
        replace(GNN, negatives="episode", epochs=HALF),
    ),
    "blocks-gnn-batch-after": Preset(
        f"The GNN for another {HALF} epochs, with negatives from the batch.",
        replace(GNN, epochs=HALF),
        starts_from="blocks-gnn-episode-first",
    ),
}
"""What the main comparison depends on: mode, actions, and which negatives came last."""

PRESETS = {
    "shapes-gnn": Preset(
        "C-SWM on its 2D shapes, where nothing pushes: a check of the pipeline.",
        Config(
            mode="shapes",
            stay=False,
            extractor="small",
            slot_dim=2,
            transition="gnn",
            action="factored",
            batch_size=1024,
        ),
    ),
    "blocks-nps": Preset("The text's rules, C-SWM's perception: 1 rule, 1 stage.", Config()),
    "blocks-gnn": Preset("The GNN, with the action given to every slot, as in NPS.", GNN),
    "blocks-gnn-factored": Preset(
        "The GNN as in C-SWM: only the block that moves gets the action.",
        replace(GNN, action="factored"),
    ),
    "blocks-nps-episode": Preset(
        "The text's rules, C-SWM's perception, half of the negatives from the same episode.",
        Config(negatives="episode"),
    ),
    "blocks-gnn-episode": Preset(
        "The GNN, with half of the negatives from the same episode.",
        replace(GNN, negatives="episode"),
    ),
    "blocks-fixed-nps": Preset("Blocks that look alike in every episode: 1 rule, 1 stage.", FIXED),
    "blocks-fixed-nps-linear": Preset(
        "The same with the paper's linear selection, which cannot see the action.",
        replace(FIXED, selection="linear"),
    ),
    **{
        f"{name}-{stages}": Preset(f"{about}, {stages} stages.", replace(config, stages=stages))
        for name, about, config in (
            ("blocks-nps", "The text's rules, C-SWM's perception", Config()),
            ("blocks-fixed-nps", "Blocks that look alike in every episode", FIXED),
        )
        for stages in STAGES
    },
    "blocks-fixed-gnn": Preset("The same world and the GNN.", replace(FIXED, transition="gnn")),
    "blocks-fixed-gnn-factored": Preset(
        "The same world and the GNN as in C-SWM.",
        replace(FIXED, transition="gnn", action="factored"),
    ),
    "blocks-slots-nps": Preset("The text's rules and its slot-attention encoder.", SLOTS),
    "blocks-slots-gnn": Preset(
        "The GNN, with the text's slot-attention encoder.", replace(SLOTS, transition="gnn")
    ),
    "blocks-fixed-slots-nps": Preset(
        "Blocks that look alike in every episode, slot-attention encoder.", FIXED_SLOTS
    ),
    "blocks-fixed-slots-gnn": Preset(
        "The same world and the GNN.", replace(FIXED_SLOTS, transition="gnn")
    ),
    **CONTROLS,
    "blocks-best": Preset("Ours: a push changes two slots, and the trace shows who pushed.", BEST),
}

_CHANGES = {
    "epochs": 20,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "hidden_dim": 64,
    "train_episodes": 200,
    "test_episodes": 1_000,
    "validation_episodes": 200,
}
QUICK = dict.fromkeys(("shapes-gnn", "blocks-fixed-nps", "blocks-fixed-gnn"), _CHANGES)
