"""Section 4.1, MNIST transformation: a rule for each of four operations on images of digits.

The model is shown a digit and told the operation; NPS with 4 rules should use one for each. Paper:
a perfectly diagonal table of operations and rules, MSE 0.02 (an all-black picture has 0.018).
The published program trains every pair of a chain of four operations, 200 pairs a step; here a
batch of 50 is 50 pairs, as the text says, each from a random place of such a chain.
"""

from __future__ import annotations

from nps.experiments.experiment import Experiment, Look, Preset
from nps.experiments.mnist import report
from nps.experiments.mnist.config import Config
from nps.experiments.mnist.look import LookOptions, look
from nps.experiments.mnist.task import MnistTask

PRESETS = {
    "mnist": Preset("The paper's settings: 4 rules.", Config()),
    "mnist-balanced": Preset(
        "Ours: no rule is left behind at first; the operation asks, and the image is changed.",
        Config(balance=0.01, image_asks=False, self_context=False),
    ),
    "mnist-mlp": Preset(
        "Without rules: one MLP, as large as the four rules, is fed the operation.",
        Config(model="mlp"),
    ),
    "mnist-fifth": Preset(
        "Rule surgery: a fifth operation and rule are added to trained models, all else frozen.",
        Config(
            flip=True,
            image_asks=False,
            self_context=False,
            epochs=10,
            learning_rate=1e-3,
            validate_every=2,
        ),
        after="mnist-balanced",
    ),
}

QUICK = {
    "epochs": 2,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-4,
    "explore_until": 0.3,
    "validate_every": 1,
    "validation_examples": 500,
    "test_examples": 1_000,
}

EXPERIMENT = Experiment(
    name="mnist",
    about="MNIST transformation: a rule for each operation on images of digits (section 4.1).",
    config=Config,
    presets=PRESETS,
    make_task=MnistTask,
    write_report=report.write_report,
    look=Look(look, LookOptions),
    compare=MnistTask.compare,
    threads=None,
    quick=dict.fromkeys(("mnist-balanced", "mnist-mlp"), QUICK),
    heavy=True,
)
