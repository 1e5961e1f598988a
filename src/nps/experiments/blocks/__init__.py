"""Section 4.3, physics environment: world models of blocks that push one another.

C-SWM with its GNN, against the same with NPS in the GNN's place. Presets with "slots" encode images
as the paper does, with four convolutions and slot attention; the others with C-SWM's extractors, as
the study that the paper's setup is from (Ke et al. 2021). Paper: NPS with one rule and one stage is
better than the GNN after 1, 5 and 10 steps (a figure without numbers). C-SWM's 2D shapes check the
pipeline: the published H@1 is 100, 100 and 99.9 %.
"""

from __future__ import annotations

from dataclasses import replace

from nps.experiments.blocks import look
from nps.experiments.blocks.config import Config
from nps.experiments.blocks.report import write_report
from nps.experiments.blocks.task import BlocksTask, elsewhere
from nps.experiments.experiment import Experiment, Look, Preset
from nps.experiments.world_models.report import MAIN

FIXED = Config(mode="fixed-palette", extractor="small", slot_dim=8)
"""Only positions differ between episodes, so that dynamics are all there is to learn."""

SLOTS = Config(extractor="slot-attention", width=64, clip_norm=10.0)
"""The paper's perception. Clipped for the GNN's sake, whose first gradients are in the hundreds."""
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
    alone_until=0.05,
    maps="contrast",
    null_handicap=1e6,
    rule_layers=2,
    hidden_dim=64,
    batch_size=256,
    epochs=80,
    learning_rate=2e-3,
    final_learning_rate=1e-5,
)
"""Pushes are 3 % of the data and take many epochs. What each part does: docs/pushes.md."""

STAGES = (2, 3, 5)
"""The paper's comparison; one stage is the setting without a number."""

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
    "blocks-gnn": Preset("The GNN, told of actions as NPS is.", Config(transition="gnn")),
    "blocks-gnn-factored": Preset(
        "The GNN as C-SWM has it: only the block that moves is told.",
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
        "The same world and the GNN as C-SWM has it.",
        replace(FIXED, transition="gnn", action="factored"),
    ),
    "blocks-slots-nps": Preset("The paper's setting, seen as the paper sees it.", SLOTS),
    "blocks-slots-gnn": Preset(
        "The GNN, seen as the paper sees it.", replace(SLOTS, transition="gnn")
    ),
    "blocks-fixed-slots-nps": Preset(
        "Blocks that look alike in every episode, seen as the paper sees them.", FIXED_SLOTS
    ),
    "blocks-fixed-slots-gnn": Preset(
        "The same world and the GNN.", replace(FIXED_SLOTS, transition="gnn")
    ),
    "blocks-best": Preset("Ours: a push changes two slots, and the trace tells who pushed.", BEST),
}

QUICK = {
    "epochs": 20,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "hidden_dim": 64,
    "train_episodes": 200,
    "test_episodes": 1_000,
    "validation_episodes": 200,
}

EXPERIMENT = Experiment(
    name="blocks",
    about="World models of blocks that push one another: NPS against a GNN (section 4.3).",
    config=Config,
    presets=PRESETS,
    make_task=BlocksTask,
    write_report=write_report,
    look=Look(look.look),
    threads=None,
    main=MAIN,
    quick=dict.fromkeys(("shapes-gnn", "blocks-fixed-nps", "blocks-fixed-gnn"), QUICK),
    heavy=True,
    elsewhere=elsewhere,
)
