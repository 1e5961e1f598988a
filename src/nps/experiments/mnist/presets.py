"""The presets of MNIST transformation: the paper's settings, ours, and the ablations."""

from __future__ import annotations

from nps.experiments.experiment import Preset
from nps.experiments.mnist.config import Config

PRESETS = {
    "mnist": Preset("The paper's settings: 4 rules.", Config()),
    "mnist-balanced": Preset(
        "Ours: an entropy bonus keeps all rules in use early; only the operation slot selects, and "
        "the image slot is updated.",
        Config(balance=0.01, image_selects=False, self_context=False),
    ),
    "mnist-energy": Preset(
        "Ours: the free energy over every rule, with the regret as its temperature; no bonus.",
        Config(
            objective="free-energy",
            energy_unit="regret",
            energy_temperature=1.0,
            image_selects=False,
            self_context=False,
        ),
    ),
    "mnist-authors": Preset(
        "The authors' program: its rule layer, and all four pairs of each digit's chain.",
        Config(model="authors", whole_chains=True, validate_every=2),
    ),
    "mnist-mlp": Preset(
        "No rules: one MLP, as large as the four rules together, gets the operation as input.",
        Config(model="mlp"),
    ),
    "mnist-fifth": Preset(
        "Rule surgery: a fifth operation and rule are added to trained models; the rest is frozen.",
        Config(
            flip=True,
            image_selects=False,
            self_context=False,
            epochs=10,
            learning_rate=1e-3,
            validate_every=2,
        ),
        starts_from="mnist-balanced",
    ),
}

_CHANGES = {
    "epochs": 2,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-4,
    "explore_until": 0.3,
    "validate_every": 1,
    "validation_examples": 500,
    "test_examples": 1_000,
}
QUICK = dict.fromkeys(("mnist-balanced", "mnist-mlp"), _CHANGES)
