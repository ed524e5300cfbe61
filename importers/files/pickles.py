"""Pickles of tensors, looked through before they are loaded.

PyTorch loads tensors and plain values alone from a pickle, so that none runs code. But a tuple whose two parts are one
tuple, and so on for some dozens of levels, is 200 bytes as a pickle and takes years to hash as a key.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from lingon.importers.files.fields import MOST_JSON_BYTES

ZIP = b"PK\x03\x04"  # how an archive of PyTorch begins
BEFORE_ARCHIVES = 5  # pickles at the beginning of a file of PyTorch before 1.6
TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
KEPT, TAKEN = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}


def uses_a_tuple_twice(path: Path) -> bool:
    """Whether a pickle in a file of PyTorch does so; PyTorch itself writes none. Raises ValueError for no such file."""
    with path.open("rb") as file, ExitStack() as opening:
        return any(_uses_a_tuple_twice(each) for each in _pickles(file, opening))


def _pickles(file: IO[bytes], opening: ExitStack) -> Iterator[IO[bytes]]:
    """Yield the file at the beginning of each pickle in it; an archive is closed by `opening`."""
    if file.read(len(ZIP)) != ZIP:
        file.seek(0)
        for _ in range(BEFORE_ARCHIVES):
            yield file
        return
    archive = opening.enter_context(zipfile.ZipFile(file))
    for entry in archive.infolist():
        if entry.filename.endswith(".pkl"):
            if entry.file_size > MOST_JSON_BYTES:
                raise ValueError(f"{entry.filename} has {entry.file_size:,} bytes")
            yield opening.enter_context(archive.open(entry))


def _uses_a_tuple_twice(file: IO[bytes]) -> bool:
    tuples, last = set[object](), ""
    for opcode, argument, _ in pickletools.genops(file):
        if opcode.name in KEPT:
            if last in TUPLES:
                tuples.add(argument)
            continue
        if opcode.name in TAKEN and argument in tuples:
            return True
        last = opcode.name
    return False
