"""The two files that Marian saves a model in: a NumPy archive, or a binary file, whose matrices may be 8-bit integers.

Both hold the options of the model, in YAML, beside the tensors. A matrix is (in, out), a vector is (1, n).
"""

from __future__ import annotations

import gzip
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lingon.errors import SourceModelError
from lingon.importers.files.fields import first_twice, most_unpacked
from lingon.importers.files.tensors import Tensors
from lingon.importers.readers.marian.options import MOST_OPTIONS

OPTIONS = "special:model.yml"
EMBEDDING = "Wemb"  # in the names of the tables of pieces
VERSION = 1
FLOAT32, FLOAT16, INT8 = 0x0404, 0x0402, 0x0101
INTGEMM8 = (0x4101, 0x10001)  # in browsermt/marian-dev and in marian-nmt/marian-dev
MOST_ITEMS, MOST_DIMENSIONS, MOST_NAME = 100_000, 8, 1024
MOST_UNPACKED = 8 * 2**30  # bytes of a model that is compressed
MOST_SHOWN = 100  # characters of an error of zipfile, which repeats the bytes that are damaged

Bytes = NDArray[np.uint8]
_NOT_AN_ARCHIVE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)


def open_model(path: Path) -> tuple[Tensors, str]:
    """Open a file NAME.npz, NAME.bin or NAME.bin.gz; return its tensors and the text of its options.

    Raises SourceModelError.
    """
    readers, options = _archive(path) if path.name.endswith(".npz") else _binary(path)
    if options is None:
        raise SourceModelError(f"{path}: has no {OPTIONS}, the options of the model")
    try:
        return Tensors(path, readers), options.rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        raise SourceModelError(f"{path}: {OPTIONS} must be UTF-8") from None


def unpacked(path: Path, most: int = MOST_UNPACKED) -> Bytes:
    """Return the content of a file, which may be compressed by gzip, as read-only bytes. Raises SourceModelError."""
    try:
        if path.suffix != ".gz":
            return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        most = min(most, most_unpacked(path))
        with gzip.open(path) as opened:
            content = opened.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceModelError(f"{path}: cannot be read ({error})") from None
    if len(content) > most:
        raise SourceModelError(f"{path}: must have at most {most:,} bytes when unpacked")
    return np.frombuffer(content, np.uint8)


def _archive(path: Path) -> tuple[dict[str, Callable[[], Tensor]], bytes | None]:
    """Read the names of an archive, which stays open as long as a reader of its tensors is there.

    To open it again for each tensor would take the square of their number.
    """
    try:
        archive = zipfile.ZipFile(path)
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        if len(sizes) > MOST_ITEMS:
            raise SourceModelError(f"{path}: must have at most {MOST_ITEMS:,} arrays, has {len(sizes):,}")
        size, most = sum(sizes.values()), min(MOST_UNPACKED, most_unpacked(path))
        if size > most:
            raise SourceModelError(f"{path}: must have at most {most:,} bytes when unpacked, has {size:,}")
        options = None
        if OPTIONS in sizes:
            _check_options(path, sizes.pop(OPTIONS))
            options = _numbers(archive, OPTIONS).tobytes()
    except _NOT_AN_ARCHIVE as error:
        raise SourceModelError(f"{path}: not a NumPy archive ({str(error)[:MOST_SHOWN]})") from None
    return {name: partial(_array, path, archive, name) for name in sizes}, options


def _numbers(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as opened:
        found: NDArray[Any] = np.lib.format.read_array(opened)  # which reads no pickle
        return found


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> Tensor:
    """Read an array of an archive."""
    try:
        return torch.from_numpy(_numbers(archive, name))
    except (*_NOT_AN_ARCHIVE, TypeError) as error:
        raise SourceModelError(f"{path}: {name} cannot be read ({str(error)[:MOST_SHOWN]})") from None


def _check_options(path: Path, size: int) -> None:
    if size > MOST_OPTIONS:
        raise SourceModelError(f"{path}: {OPTIONS} must have at most {MOST_OPTIONS:,} bytes, has {size:,}")


@dataclass(frozen=True, slots=True)
class _Item:
    """An array of a binary file: its data begin at `start`, and are `size` bytes."""

    name: str
    kind: int
    shape: tuple[int, ...]
    start: int
    size: int


class _Cursor:
    """Reads a binary file from its beginning; what is beyond its end is an error."""

    def __init__(self, path: Path, content: Bytes) -> None:
        self.path, self.content, self.place = path, content, 0

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes."""
        return self.content[self.skip(count, what) : self.place].tobytes()

    def skip(self, count: int, what: str) -> int:
        """Return the place of the next bytes, and go on behind them."""
        begin = self.place
        if count > len(self.content) - begin:
            raise SourceModelError(
                f"{self.path}: ends within {what}: {count:,} bytes at {begin:,}, the file has {len(self.content):,}"
            )
        self.place += count
        return begin

    def numbers(self, count: int, what: str) -> tuple[int, ...]:
        """Return the next unsigned 64-bit numbers."""
        return struct.unpack(f"<{count}Q", self.take(8 * count, what))


def _binary(path: Path) -> tuple[dict[str, Callable[[], Tensor]], bytes | None]:
    content = unpacked(path)
    items = _items(path, content)
    if (twice := first_twice([item.name for item in items])) is not None:
        raise SourceModelError(f"{path}: has {twice} twice")
    options = next((content[i.start : i.start + i.size].tobytes() for i in items if i.name == OPTIONS), None)
    _check_options(path, len(options or b""))
    return {item.name: _reader(path, content, item) for item in items if item.name != OPTIONS}, options


def _items(path: Path, content: Bytes) -> list[_Item]:
    """Return the arrays of a binary file, as its head lists them."""
    cursor = _Cursor(path, content)
    version, count = cursor.numbers(2, "the head")
    if version != VERSION:
        raise SourceModelError(f"{path}: the version of the format must be {VERSION}, is {version:,}")
    if count > MOST_ITEMS:
        raise SourceModelError(f"{path}: must have at most {MOST_ITEMS:,} arrays, has {count:,}")
    heads = [cursor.numbers(4, "the head") for _ in range(count)]
    names = [_name(cursor, length) for length, *_ in heads]
    shapes = [_shape(cursor, dimensions, name) for (_, _, dimensions, _), name in zip(heads, names, strict=True)]
    (padding,) = cursor.numbers(1, "the head")
    cursor.skip(padding, "the padding after the head")
    return [
        _Item(name, kind, shape, cursor.skip(size, name), size)
        for (_, kind, _, size), name, shape in zip(heads, names, shapes, strict=True)
    ]


def _name(cursor: _Cursor, length: int) -> str:
    if not 1 <= length <= MOST_NAME:
        raise SourceModelError(f"{cursor.path}: the length of a name must be 1 to {MOST_NAME:,}, is {length:,}")
    try:
        return cursor.take(length, "the names").rstrip(b"\0").decode("utf-8")
    except UnicodeDecodeError:
        raise SourceModelError(f"{cursor.path}: the name of an array must be UTF-8") from None


def _shape(cursor: _Cursor, dimensions: int, name: str) -> tuple[int, ...]:
    if dimensions > MOST_DIMENSIONS:
        raise SourceModelError(
            f"{cursor.path}: {name} must have at most {MOST_DIMENSIONS} dimensions, has {dimensions:,}"
        )
    shape = struct.unpack(f"<{dimensions}i", cursor.take(4 * dimensions, "the shapes"))
    if any(size < 0 for size in shape):
        raise SourceModelError(f"{cursor.path}: {name} has a negative size: {shape}")
    return shape


def _reader(path: Path, content: Bytes, item: _Item) -> Callable[[], Tensor]:
    """Return what reads an array as float32 (in, out)."""
    sizes = {FLOAT32: 4, FLOAT16: 2, INT8: 1, **dict.fromkeys(INTGEMM8, 1)}
    if item.kind not in sizes:
        raise SourceModelError(
            f"{path}: {item.name} has the type 0x{item.kind:x}; Lingon reads float32, float16 and intgemm8, not the "
            "types whose layout is that of one processor"
        )
    count = math.prod(item.shape)
    needed = count * sizes[item.kind] + (4 if item.kind in INTGEMM8 and count else 0)
    if item.size < needed:
        raise SourceModelError(f"{path}: {item.name} of shape {item.shape} needs {needed:,} bytes, has {item.size:,}")
    data = content[item.start : item.start + needed]

    def floats() -> Tensor:
        plain: NDArray[Any] = np.frombuffer(data, np.float32 if item.kind == FLOAT32 else np.float16)
        return torch.from_numpy(plain.reshape(item.shape).astype(np.float32))

    def integers() -> Tensor:
        return torch.from_numpy(np.frombuffer(data, np.int8).reshape(item.shape).copy())

    def quantised() -> Tensor:
        return _dequantised(path, item, data)

    return quantised if item.kind in INTGEMM8 else integers if item.kind == INT8 else floats


def _dequantised(path: Path, item: _Item, data: Bytes) -> Tensor:
    """Return the values of 8-bit integers, which are those times one number for the whole matrix.

    All matrices but tables of pieces are saved as (out, in).
    """
    if not math.prod(item.shape):
        return torch.empty(item.shape)
    scale = float(np.frombuffer(data[-4:].tobytes(), np.float32)[0])
    if not (math.isfinite(scale) and scale > 0):
        raise SourceModelError(f"{path}: the scale of {item.name} must be above 0, is {scale}")
    if len(item.shape) != 2:
        raise SourceModelError(f"{path}: {item.name} must have 2 dimensions, has {len(item.shape)}")
    values = torch.from_numpy(np.frombuffer(data[:-4].tobytes(), np.int8).astype(np.float32) / np.float32(scale))
    rows, columns = item.shape
    return values.view(rows, columns) if EMBEDDING in item.name else values.view(columns, rows).T
