"""The files of a translation memory: JSON that describes it, and a folder with the segments of its version.

    NAME.memory                     {"format": 1, "name": "site", ..., "folder": "NAME.1796025600000.segments"}
    NAME.1796025600000.segments/    see `lingon.memories.memory`

A change makes a new folder, and then replaces the JSON. A folder that no JSON names is a left-over.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from lingon.errors import StoredDamaged
from lingon.files import replacing_file
from lingon.memories.memory import Memory
from lingon.memories.segment import DamagedMemory
from lingon.serving.stores.owners import PRIVATE_FILE, file_name, not_stored
from lingon.translation.v1 import stores_pb2 as pb

FORMAT = 1
KIND = "memories"  # name of the folder of all
SUFFIX = ".memory"
SEGMENTS = ".segments"  # end of the names of the folders of segments
MOST_BYTES = 1 << 16  # bytes of the JSON
TRIES = 5  # of opening a memory that other processes change at the same time


@dataclass(frozen=True, slots=True)
class MemoryHeader:
    """What is known of a memory without its segments.

    source, target: canonical tags; segments: their number; created, changed: milliseconds since 1970
    folder: the name of the one with the segments
    """

    name: str
    label: str
    source: str
    target: str
    segments: int
    version: int
    created: int
    changed: int
    folder: str

    def message(self) -> pb.Memory:
        """Return the message of the API."""
        return pb.Memory(
            name=self.name,
            label=self.label,
            source_language_code=self.source,
            target_language_code=self.target,
            segments=self.segments,
            version=self.version,
            created=self.created,
            changed=self.changed,
        )


def read_header(path: Path, name: str) -> MemoryHeader:
    """Return the header of a memory. Raises NotStored or StoredDamaged."""
    try:
        with path.open("rb") as file:
            values = json.loads(file.read(MOST_BYTES))
        form = values.pop("format")
        header = MemoryHeader(**values)
    except FileNotFoundError:
        raise not_stored("memory", name) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _damaged(name, "its description cannot be read") from None
    if form != FORMAT:
        raise _damaged(name, f"its format is {form}, and this version reads {FORMAT}")
    return header


def write_header(path: Path, header: MemoryHeader) -> None:
    """Write the header of a memory in place of an earlier one, atomically."""
    with replacing_file(path, PRIVATE_FILE) as file:
        file.write(json.dumps({"format": FORMAT, **asdict(header)}, ensure_ascii=False).encode())
        file.flush()
        # Two versions never have the same stamp, even if the clock of the file system is coarse.
        os.utime(file.fileno(), ns=(header.version * 1_000_000,) * 2)


def folder_name(name: str, version: int) -> str:
    """Return the name of the folder with the segments of a version."""
    return f"{file_name(name)}.{version}{SEGMENTS}"


def open_memory(path: Path, name: str) -> tuple[MemoryHeader, Memory]:
    """Open a memory, whose folder another process may remove meanwhile for that of a new version.

    Raises NotStored or StoredDamaged.
    """
    for _ in range(TRIES):
        header = read_header(path, name)
        try:
            return header, Memory.open(path.parent / header.folder)
        except DamagedMemory:
            if read_header(path, name) == header:
                raise _damaged(name, "its segments cannot be read") from None
    raise _damaged(name, "its segments are replaced all the time")


def remove_unnamed(folder: Path) -> None:
    """Remove the folders of segments that no memory has. Only for the process that has the lock of the owner."""
    named = {_folder_of(path) for path in folder.iterdir() if path.name.endswith(SUFFIX)}
    if None in named:  # of a damaged one: all stay
        return
    for path in folder.iterdir():
        if path.name.endswith(SEGMENTS) and path.name not in named:
            shutil.rmtree(path, ignore_errors=True)


def _folder_of(path: Path) -> str | None:
    try:
        return read_header(path, path.name).folder
    except StoredDamaged:
        return None


def _damaged(name: str, why: str) -> StoredDamaged:
    return StoredDamaged(f"the stored memory {name} is damaged: {why}; remove it, and store it again")
