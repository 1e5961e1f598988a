"""Playbacks as JSON: arrays are base64 of little-endian numbers, frames have sheets of their own.

JSON has no NaN: an unknown number is null.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.inspect.playback import Playback, Record
from nps.viewer.sheets import PER_SHEET

if TYPE_CHECKING:
    from jaxtyping import Shaped
    from numpy import ndarray

MOST_FEATURES = 8_000_000
"""Bytes of features that are sent; of more, the first features of every slot."""


def of_playback(playback: Playback) -> dict[str, Any]:
    """What /api/play answers, but for the id, the title and the comparison with no edits."""
    record = playback.record
    frames, slots = playback.slots.shape[:2]
    stages, rules = (0, 0) if record is None else (record.sizes[1], record.sizes[3])
    masks, right, actions = playback.masks, playback.right, playback.actions
    kept = max(1, MOST_FEATURES // (4 * frames * slots))
    return {
        "steps": playback.steps,
        "stages": stages,
        "slots": slots,
        "rules": rules,
        "slot_names": list(playback.slot_names),
        "height": playback.true.shape[1],
        "width": playback.true.shape[2],
        "mask": None if masks is None else list(masks.shape[2:]),
        "per_sheet": PER_SHEET,
        "error": numbers(playback.error),
        "error_name": playback.error_name,
        "right": None if right is None else [bool(x) for x in right],
        "events": list(playback.events) or [""] * playback.steps,
        "actions": None if actions is None else [int(x) for x in actions],
        "rule": None if record is None else packed(record.rule, "<i2"),
        "context": None if record is None else packed(record.context, "<i2"),
        "empty": None if record is None else empty_slots(record),
        "places": None if playback.places is None else packed(playback.places, "<f4"),
        "features": packed(playback.features[..., :kept], "<f4"),
        "feature_names": list(playback.feature_names[:kept]),
        "predicted": playback.predicted is not None,
    }


def empty_slots(record: Record) -> list[list[int]] | None:
    """The slots that each step leaves out; None if there are none."""
    masks = [call.slot_mask for call in record.calls]
    if all(mask is None for mask in masks):
        return None
    slots = record.sizes[2]
    every: list[Any] = [
        [] if m is None else (~m.reshape(-1, slots)[0]).nonzero().flatten() for m in masks
    ]
    return [[int(slot) for slot in empty] for empty in every]


def packed(values: Shaped[ndarray, "*shape"], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def numbers(values: Any) -> list[float | None]:
    """As JSON numbers of six digits, null where they are not finite."""
    return [number(x) for x in np.asarray(values, dtype=float).tolist()]


def number(value: float | None) -> float | None:
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Nested values with numpy's numbers and arrays as JSON's, and no NaN."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return number(float(value))
    return value


def size(playback: Playback) -> int:
    """Bytes of all arrays."""
    values = [*vars(playback).values()]
    if playback.record is not None:
        values += vars(playback.record).values()
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


def frames_hash(playback: Playback) -> str:
    """Equal of two playbacks if they show the same true frames."""
    found = hashlib.blake2b(repr(playback.true.shape).encode(), digest_size=12)
    found.update(np.ascontiguousarray(playback.true).data)
    return found.hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces, character by character as JavaScript writes it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(k)}:{canonical(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    return json.dumps(value) if not isinstance(value, str) else _text(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    """JavaScript has one kind of number, and writes exponents from 1e21 and below 1e-6."""
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    digits = repr(value)
    if "e" not in digits:
        return digits
    if 1e-6 <= abs(value) < 1e21:
        return format(Decimal(digits), "f")
    mantissa, exponent = digits.split("e")
    return f"{mantissa}e{int(exponent):+d}"
