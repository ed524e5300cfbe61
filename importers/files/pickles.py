"""Pickles of PyTorch: tensors, plain values, and records in the place of classes. None of them runs code."""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import torch

from lingon.errors import SourceModelError
from lingon.importers.files.fields import MOST_JSON_BYTES

# Pickles are looked through before they are loaded.
# PyTorch loads tensors and plain values alone from a pickle, so that none runs code. But a tuple whose two parts are
# one tuple, and so on for some dozens of levels, is 200 bytes as a pickle and takes years to hash as a key.

ZIP = b"PK\x03\x04"  # how an archive of PyTorch begins
BEFORE_ARCHIVES = 5  # pickles at the beginning of a file of PyTorch before 1.6
TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
KEPT, TAKEN = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}
NAMED = {"GLOBAL", "INST"}  # what names a class or a function; PyTorch loads no pickle that names one otherwise
MOST_CLASSES = 64  # whose objects become records; PyTorch looks through all of them at each object
OF_TENSORS = ("torch.", "collections.", "_codecs.")  # packages that pickles of tensors and plain values name


class Record:
    """An object of a class that is not loaded.

    state: what the pickle says of the object, by name; empty if it says nothing, or no dictionary
    """

    state: dict[str, Any]

    def __new__(cls, *arguments: Any) -> Record:
        """Take the arguments of the class, which say nothing that is read. A pickle may call no `__init__`."""
        made = super().__new__(cls)
        made.state = {}
        return made

    def __setstate__(self, state: Any) -> None:
        """Take what would be the attributes of the object."""
        self.state = state if isinstance(state, dict) else {}


def read_pickle(path: Path, classes: Sequence[str] = ()) -> Any:
    """Return what a file of PyTorch holds. Tensors are mapped, where the file allows it.

    classes: names such as argparse.Namespace, whose objects become records. A name that ends with a dot stands for all
        of a package

    Raises SourceModelError if the file is none, is damaged, or names a class or a function that is neither of tensors
    nor one of these.
    """
    if not path.is_file():
        raise SourceModelError(f"{path}: No such file or directory")
    names = set[str]()
    try:
        if uses_a_tuple_twice(path):
            raise ValueError("a tuple is used twice")
        names = _names(path)
        recorded = [name for name in names if name.startswith((*classes,))]
        if len(recorded) > MOST_CLASSES:
            raise ValueError(f"{len(recorded):,} classes")
        # A class of its own for each name, because PyTorch compares them.
        records: list[Any] = [(type("Record", (Record,), {}), name) for name in recorded]
        with torch.serialization.safe_globals(records):
            # PyTorch before 1.6 saved no archive, and such a file cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch raises many kinds for a file that is none of its own
        # The name or the type alone: torch's message tells how to load such a file nevertheless, which runs its code.
        reason = next((name for name in sorted(names) if not name.startswith((*OF_TENSORS, *classes))), None)
        kinds = "tensors, options and vocabularies" if classes else "tensors"
        raise SourceModelError(f"{path}: not a file of {kinds} alone ({reason or type(error).__name__})") from None


def uses_a_tuple_twice(path: Path) -> bool:
    """Return whether a pickle in a file of PyTorch does so. PyTorch itself writes none. Raises ValueError for no such
    file.
    """
    with path.open("rb") as file, ExitStack() as opening:
        return any(_uses_a_tuple_twice(each) for each in _pickles(file, opening))


def _names(path: Path) -> set[str]:
    """Return the classes and functions that the pickles of a file name, as module.name."""
    with path.open("rb") as file, ExitStack() as opening:
        return {
            str(argument).replace(" ", ".")
            for each in _pickles(file, opening)
            for opcode, argument, _ in pickletools.genops(each)
            if opcode.name in NAMED
        }


def _pickles(file: IO[bytes], opening: ExitStack) -> Iterator[IO[bytes]]:
    """Yield the file at the beginning of each pickle in it. An archive is closed by `opening`."""
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
