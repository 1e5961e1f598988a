"""The only way to the accelerated forms in `nps.kernels`, which give the same results.

Both functions return None where the accelerated form does not apply; the caller then takes the
plain one. Nothing else in `nps.rules` knows that there is another form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nps.rules.allowed import Allowed
from nps.rules.trace import Trace

if TYPE_CHECKING:
    from jaxtyping import Float

    from nps.rules.layer import RuleLayer
    from nps.rules.ruleset import RuleSet


def run(
    layer: RuleLayer,
    slots: Float[Tensor, "*batch M *slot"],
    features: Callable[[Tensor], Tensor] | Tensor | None,
    allowed: Allowed,
    uniform: Float[Tensor, "*batch K U"] | None,
    traced: bool,
) -> tuple[Tensor, list[Trace]] | None:
    """All stages of a training call: the new slots and, if `traced`, a trace of each stage.

    `features` is what selection sees: a tensor, a function of the slots, or None for the slots.
    """
    if uniform is None or torch.compiler.is_compiling():  # compilers trace the plain form
        return None
    accelerated = _accelerated()
    if not accelerated.supported(layer, slots):
        return None
    found: tuple[Tensor, list[Trace]] = accelerated.run(
        layer, slots, features, allowed, uniform, traced
    )
    return found


def only_fired(rules: RuleSet, primary: Tensor, context: Tensor, choice: Tensor) -> Tensor | None:
    """The actions of the rules that fire, without computing the others (evaluation only)."""
    if rules.training or torch.compiler.is_compiling():
        return None
    update: Tensor | None = _accelerated().only_fired(rules, primary, context, choice)
    return update


@cache
def _accelerated() -> Any:
    from nps.kernels import rules  # at the first call: it needs the layers to be defined

    return rules
