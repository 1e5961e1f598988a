"""What a run writes while it trains: the metric log, pictures, TensorBoard on request.

The metric log has one JSON line for each epoch. It holds no times, so that the log of a resumed run
equals that of an uninterrupted one byte for byte; on resume it is cut back to the length that the
checkpoint remembers. Pictures are PNG files in figures/.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nps.errors import UserError, extra
from nps.files import os_errors_in_one_line, own_file, replace_file, write_all

if TYPE_CHECKING:
    from jaxtyping import UInt8
    from numpy import ndarray

    Picture = UInt8[ndarray, "H W"] | UInt8[ndarray, "H W 3"] | bytes

PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a PNG file."""


class MetricLog:
    """Appends to metrics.jsonl, and draws into figures/ beside it.

    Args:
        path: the log.
        length: bytes to keep of it.
        tensorboard: folder of the TensorBoard log, if one is wanted.
        step: steps done; TensorBoard entries after it are replaced.
    """

    def __init__(
        self, path: Path, length: int, tensorboard: Path | None = None, step: int = 0
    ) -> None:
        self.path = path
        with os_errors_in_one_line(f"cannot write {path}"):
            # Unbuffered: what a full disk refuses must not be written again on closing.
            self._file = open(path, "ab", buffering=0, opener=own_file)  # noqa: SIM115
            self._file.truncate(min(length, self.length))
            self._file.seek(0, os.SEEK_END)
        self._board = _open_board(tensorboard, step) if tensorboard else None

    @property
    def length(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def write(self, row: Mapping[str, Any]) -> None:
        """One epoch: `epoch`, `step`, means by name, and `validation` if there was one."""
        with os_errors_in_one_line(f"cannot write {self.path}"):
            write_all(self._file, (json.dumps(row) + "\n").encode())
        if self._board is not None:
            scalars = {name: row[name] for name in row if name not in ("epoch", "step")}
            for name, value in _numbers(scalars):
                self._board.add_scalar(name, value, row["step"])

    def write_picture(self, name: str, picture: Picture, epoch: int, step: int) -> None:
        """figures/<name>-epoch-<epoch>.png, and the same in TensorBoard."""
        data = png(picture)
        path = self.path.parent / "figures" / f"{name}-epoch-{epoch:04d}.png"
        with os_errors_in_one_line(f"cannot write {path}"):
            path.parent.mkdir(exist_ok=True)
            replace_file(path, data)
        if self._board is not None:
            _add_image(self._board, name, data, step)

    def sync(self) -> None:
        """Flush the log to disk, before a checkpoint refers to its length."""
        with os_errors_in_one_line(f"cannot write {self.path}"):
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


def _add_image(board: Any, name: str, data: bytes, step: int) -> None:
    """A PNG as it is; `SummaryWriter.add_image` would need pillow to encode one."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    width, height = (int.from_bytes(data[i : i + 4], "big") for i in (16, 20))
    image = Summary.Image(height=height, width=width, encoded_image_string=data)
    summary = Summary(value=[Summary.Value(tag=name, image=image)])
    board._get_file_writer().add_summary(summary, step)


def png(picture: Picture) -> bytes:
    """A picture as PNG: grey (H, W) or colour (H, W, 3), or PNG already."""
    if isinstance(picture, bytes):
        if not picture.startswith(PNG):
            raise ValueError("picture: got bytes that are not a PNG")
        return picture
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.shape[2:] not in ((), (3,)) or pixels.ndim < 2:
        got = f"{pixels.dtype} {pixels.shape}"
        raise ValueError(f"picture: got {got}, expected uint8 (H, W) or (H, W, 3)")
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    filtered = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1)  # 0: rows as they are
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    body = zlib.compress(filtered.tobytes(), 6)
    return PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
