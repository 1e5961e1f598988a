"""How often each rule fired, of whatever has been recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nps.errors import UserError
from nps.inspect.playback import Playback, Record
from nps.rules import Trace, Usage
from nps.rules.usage import count_rules


def usage(recorded: Any, names: Sequence[str] | None = None) -> Usage:
    """How often each rule fired, with the entropy in bits; warns if one takes everything.

    Args:
        recorded: a trace, a playback or its record.
        names: of the rules; default: `rule 0` and so on.
    """
    if isinstance(recorded, Trace):
        return recorded.usage(names)
    record = recorded.record if isinstance(recorded, Playback) else recorded
    if record is None:
        raise UserError("usage: this model has no rules")
    if not isinstance(record, Record):
        got = type(recorded).__name__
        raise UserError(f"usage: got {got}, expected a trace, a playback or a record")
    return count_rules(torch.from_numpy(record.rule).long(), record.sizes[3], names)
