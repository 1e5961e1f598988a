"""The metric log: one JSON line an epoch, always; TensorBoard on request.

No times in it: the log of a resumed run equals that of an uninterrupted one byte for byte. On
resume it is cut back to the length the checkpoint remembers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nps.errors import UserError, extra
from nps.files import told_in_one_line


class MetricLog:
    """Appends to metrics.jsonl from a given length on."""

    def __init__(self, path: Path, length: int, tensorboard: Path | None = None) -> None:
        self.path = path
        with told_in_one_line(f"cannot write {path}"):
            self._file = path.open("ab")
            self._file.truncate(length)
            self._file.seek(0, os.SEEK_END)
        self._board = _board(tensorboard) if tensorboard else None

    @property
    def length(self) -> int:
        return self._file.tell()

    def write(self, row: dict[str, Any]) -> None:
        with told_in_one_line(f"cannot write {self.path}"):
            self._file.write((json.dumps(row) + "\n").encode())
            self._file.flush()
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, float):
                    self._board.add_scalar(name, value, row["step"])

    def sync(self) -> None:
        """Before a checkpoint refers to the log's length, the log must be on disk."""
        with told_in_one_line(f"cannot write {self.path}"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(f"--tensorboard needs the extra: {extra('tensorboard')}") from None
    return SummaryWriter(str(folder))
