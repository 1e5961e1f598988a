"""Run code of ours at the steps of one rule layer, for a while, and leave it as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from nps.rules import RuleLayer


@contextmanager
def wrapped(layer: RuleLayer, name: str, wrapper: Callable[..., Any]) -> Iterator[None]:
    """Inside, `layer.name(*args)` is `wrapper(method, *args)`; other layers are not affected."""
    own = vars(layer).get(name)  # of another wrapper, around this one
    method = getattr(layer, name)

    def call(*args: Any, **options: Any) -> Any:
        return wrapper(method, *args, **options)

    object.__setattr__(layer, name, call)
    try:
        yield
    finally:
        if own is None:
            object.__delattr__(layer, name)
        else:
            object.__setattr__(layer, name, own)


@contextmanager
def once_a_call(
    layer: RuleLayer, begin: Callable[[Tensor, dict[str, Any]], None]
) -> Iterator[None]:
    """Inside, `begin(slots, options)` runs before every call of the layer."""

    def hook(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        begin(args[0] if args else options["slots"], options)

    handle = layer.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
