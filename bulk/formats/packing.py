"""Packed files, .gz and .zst: what is written is the same in every run, without a time or a name in it."""

from __future__ import annotations

import gzip
import io
from typing import IO

import pyarrow as pa

PACKINGS = (".gz", ".zst")


def is_packed(name: str) -> bool:
    """Whether the name of a file says that it is packed."""
    return name.endswith(PACKINGS)


def unpacked(name: str, file: IO[bytes]) -> IO[bytes]:
    """The content of a file, unpacked as its name says."""
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=file, mode="rb")  # type: ignore[return-value]
    if name.endswith(".zst"):
        return io.BufferedReader(pa.CompressedInputStream(file, "zstd"))
    return file


def packed(name: str, content: bytes) -> bytes:
    """The content, packed as the name of its file says."""
    if name.endswith(".gz"):
        return gzip.compress(content, 6, mtime=0)
    if name.endswith(".zst"):
        return bytes(pa.Codec("zstd").compress(content, asbytes=True))
    return content
