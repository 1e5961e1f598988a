"""See what a model has learned: what fires, why, what if, and rules in words.

::

    run = nps.load("runs/sharp")
    play = run.workbench.play(0)
    nps.inspect.explain(run, play, step=3, slot=1)    # why this rule, and what would flip it
    nps.inspect.what_if(run, disable=[2])             # the same episode without rule 2
    nps.inspect.describe(run, rule=2)                 # when it fires, and what it does
    nps.inspect.animate(play)                         # a film

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nps.inspect.counterfactual import WhatIf, what_if
    from nps.inspect.description import Description
    from nps.inspect.descriptions import describe, describe_all
    from nps.inspect.edits import Acted, Added, Edits, Forced, Placed, Scaled
    from nps.inspect.explanation import Explanation
    from nps.inspect.explanations import explain
    from nps.inspect.films import Animation, animate
    from nps.inspect.intervene import intervened
    from nps.inspect.playback import Playback, Record
    from nps.inspect.recording import recorded
    from nps.inspect.uses import usage

_HOME = {
    "Acted": "edits",
    "Added": "edits",
    "Edits": "edits",
    "Forced": "edits",
    "Placed": "edits",
    "Scaled": "edits",
    "Explanation": "explanation",
    "Description": "description",
    "describe": "descriptions",
    "describe_all": "descriptions",
    "WhatIf": "counterfactual",
    "what_if": "counterfactual",
    "explain": "explanations",
    "Animation": "films",
    "animate": "films",
    "usage": "uses",
    "intervened": "intervene",
    "Playback": "playback",
    "Record": "playback",
    "recorded": "recording",
}

__all__ = [
    "Acted",
    "Added",
    "Animation",
    "Description",
    "Edits",
    "Explanation",
    "Forced",
    "Placed",
    "Playback",
    "Record",
    "Scaled",
    "WhatIf",
    "animate",
    "describe",
    "describe_all",
    "explain",
    "intervened",
    "recorded",
    "usage",
    "what_if",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module 'nps.inspect' has no attribute {name!r}")
    return getattr(importlib.import_module(f"nps.inspect.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
