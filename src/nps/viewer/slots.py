"""What the page calls slots: by what their keys move, where the workbench only counts them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nps.inspect.workbench import Workbench

COUNTED = re.compile(r"slot \d+")


def slot_names(bench: Workbench, names: Sequence[str]) -> tuple[str, ...]:
    """Of "slot 0" whose keys do "block 2 north", "block 2": a slot may show any object."""
    own = next((keys for keys in bench.keys.values() if len(keys) == len(names) > 1), None)
    if own is None or not all(map(COUNTED.fullmatch, names)):
        return tuple(names)
    found = tuple(bench.actions[action].rpartition(" ")[0] for action in own)
    return found if len(set(found)) == len(names) else tuple(names)
