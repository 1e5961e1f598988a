"""Neural Production Systems: sparse, readable rules between the slots of a model.

Public names only, imported on first use, so that `import nps` loads nothing heavy besides torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nps.version import __version__

if TYPE_CHECKING:
    from nps import inspect as inspect
    from nps import interactions as interactions
    from nps import metrics as metrics
    from nps import models as models
    from nps import recipes as recipes
    from nps import rules as rules
    from nps import training as training
    from nps import worlds as worlds
    from nps.experiments.loaded import LoadedRun, load
    from nps.experiments.train import presets, train
    from nps.rollouts import Rollout, rollout
    from nps.rules import (
        ConvRules,
        MLPRules,
        ParallelNPS,
        RuleConfig,
        RuleSet,
        SequentialNPS,
        Trace,
    )

_HOME = {
    "SequentialNPS": "nps.rules",
    "ParallelNPS": "nps.rules",
    "Trace": "nps.rules",
    "RuleConfig": "nps.rules",
    "RuleSet": "nps.rules",
    "MLPRules": "nps.rules",
    "ConvRules": "nps.rules",
    "load": "nps.experiments.loaded",
    "LoadedRun": "nps.experiments.loaded",
    "presets": "nps.experiments.train",
    "train": "nps.experiments.train",
    "rollout": "nps.rollouts",
    "Rollout": "nps.rollouts",
}
_PACKAGES = {
    "rules",
    "recipes",
    "interactions",
    "models",
    "worlds",
    "metrics",
    "inspect",
    "training",
}

__all__ = [
    "ConvRules",
    "LoadedRun",
    "MLPRules",
    "ParallelNPS",
    "Rollout",
    "RuleConfig",
    "RuleSet",
    "SequentialNPS",
    "Trace",
    "__version__",
    "load",
    "presets",
    "rollout",
    "train",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"nps.{name}")
    raise AttributeError(f"module 'nps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
