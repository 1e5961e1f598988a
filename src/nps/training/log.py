"""The metric log: one JSON line for each epoch; TensorBoard on request.

The log holds no times, so that the log of a resumed run equals that of an uninterrupted one byte
for byte. On resume it is cut back to the length that the checkpoint remembers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nps.errors import UserError, extra
from nps.files import told_in_one_line


class MetricLog:
    """Appends to metrics.jsonl.

    Args:
        path: the log.
        length: bytes to keep of it.
        tensorboard: folder of the TensorBoard log, if one is wanted.
        step: steps done; what TensorBoard holds after it is replaced.
    """

    def __init__(
        self, path: Path, length: int, tensorboard: Path | None = None, step: int = 0
    ) -> None:
        self.path = path
        with told_in_one_line(f"cannot write {path}"):
            self._file = path.open("ab")
            self._file.truncate(length)
            self._file.seek(0, os.SEEK_END)
        self._board = _open_board(tensorboard, step) if tensorboard else None

    @property
    def length(self) -> int:
        return self._file.tell()

    def write(self, row: Mapping[str, Any]) -> None:
        """One epoch: `epoch`, `step`, means by name, and `validation` if there was one."""
        with told_in_one_line(f"cannot write {self.path}"):
            self._file.write((json.dumps(row) + "\n").encode())
            self._file.flush()
        if self._board is not None:
            scalars = {name: row[name] for name in row if name not in ("epoch", "step")}
            for name, value in _numbers(scalars):
                self._board.add_scalar(name, value, row["step"])

    def write_picture(self, name: str, png: bytes, step: int) -> None:
        """A picture for TensorBoard, which is given the PNG as it is."""
        if self._board is None:
            return
        from tensorboard.compat.proto.summary_pb2 import Summary

        width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
        image = Summary.Image(height=height, width=width, encoded_image_string=png)
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self._board._get_file_writer().add_summary(summary, step)

    def sync(self) -> None:
        """Bring the log to disk, before a checkpoint refers to its length."""
        with told_in_one_line(f"cannot write {self.path}"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in nested dictionaries, named `validation/mse`; tables are left out."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield prefix + name, float(value)


def _open_board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(f"--tensorboard needs the extra: {extra('tensorboard')}") from None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
