"""The presets of the world models of blocks: C-SWM's check, the paper's settings, and ours."""

from __future__ import annotations

from dataclasses import replace

from nps.experiments.blocks.config import Config
from nps.experiments.experiment import Preset

FIXED = Config(mode="fixed-palette", extractor="small", slot_dim=8)
"""Episodes differ in positions only, so dynamics are all there is to learn."""

SLOTS = Config(extractor="slot-attention", width=64, clip_norm=10.0)
"""The paper's encoder. Clipped because the GNN's first gradients have norms in the hundreds."""
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
    "blocks-nps": Preset("The paper's setting: 1 rule, 1 stage.", Config()),
    "blocks-gnn": Preset(
        "The GNN, with the action given to every slot, as in NPS.", Config(transition="gnn")
    ),
    "blocks-gnn-factored": Preset(
        "The GNN as in C-SWM: only the block that moves gets the action.",
        Config(transition="gnn", action="factored"),
    ),
    "blocks-nps-episode": Preset(
        "The paper's setting, with half of the negatives from the same episode.",
        Config(negatives="episode"),
    ),
    "blocks-gnn-episode": Preset(
        "The GNN, with half of the negatives from the same episode.",
        Config(transition="gnn", negatives="episode"),
    ),
    "blocks-fixed-nps": Preset("Blocks that look alike in every episode: 1 rule, 1 stage.", FIXED),
    "blocks-fixed-nps-linear": Preset(
        "The same with the paper's linear selection, which cannot see the action.",
        replace(FIXED, selection="linear"),
    ),
    **{
        f"{name}-{stages}": Preset(f"{about}, {stages} stages.", replace(config, stages=stages))
        for name, about, config in (
            ("blocks-nps", "The paper's setting", Config()),
            ("blocks-fixed-nps", "Blocks that look alike in every episode", FIXED),
        )
        for stages in STAGES
    },
    "blocks-fixed-gnn": Preset("The same world and the GNN.", replace(FIXED, transition="gnn")),
    "blocks-fixed-gnn-factored": Preset(
        "The same world and the GNN as in C-SWM.",
        replace(FIXED, transition="gnn", action="factored"),
    ),
    "blocks-slots-nps": Preset("The paper's setting, with its slot-attention encoder.", SLOTS),
    "blocks-slots-gnn": Preset(
        "The GNN, with the paper's slot-attention encoder.", replace(SLOTS, transition="gnn")
    ),
    "blocks-fixed-slots-nps": Preset(
        "Blocks that look alike in every episode, slot-attention encoder.", FIXED_SLOTS
    ),
    "blocks-fixed-slots-gnn": Preset(
        "The same world and the GNN.", replace(FIXED_SLOTS, transition="gnn")
    ),
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
