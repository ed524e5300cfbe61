"""How much the callers of a server have stored, as its metrics show it: counted again every few seconds.

Other servers may change the same folder, so that a count of the changes of one server would be wrong. A file that has
not changed since the last count is not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lingon.errors import NotStored, StoredDamaged
from lingon.serving.observability.metrics import STORED, Metrics
from lingon.serving.stores.data_dir import DataDir
from lingon.serving.stores.glossary_file import SUFFIX as GLOSSARY
from lingon.serving.stores.glossary_file import open_glossary
from lingon.serving.stores.loaded import Stamp, stamp_of
from lingon.serving.stores.memory_file import KIND as MEMORIES
from lingon.serving.stores.memory_file import SUFFIX as MEMORY
from lingon.serving.stores.memory_file import read_header
from lingon.serving.stores.owners import bytes_in

INTERVAL: Final = 10.0  # seconds between two counts
_GLOSSARIES = "glossaries"

log = logging.getLogger(__name__)


class Figures(NamedTuple):
    """What is stored of a kind, for all owners; entries: terms or segments."""

    stored: int = 0
    entries: int = 0
    size_bytes: int = 0


class StoredFigures:
    """A count of the glossaries and memories of a folder. Belongs to the event loop."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._known: dict[Path, tuple[Stamp, Figures]] = {}

    async def watch(self, metrics: Metrics) -> None:
        """Show the figures now and every INTERVAL, until cancelled."""
        while True:
            try:
                for kind, figures in zip(STORED, await self.count(), strict=True):
                    metrics.stored.labels(kind).set(figures.stored)
                    metrics.stored_entries.labels(kind).set(figures.entries)
                    metrics.stored_bytes.labels(kind).set(figures.size_bytes)
            except OSError as error:  # a disk may come back
                log.warning("what is stored cannot be counted: %s", error)
            await asyncio.sleep(INTERVAL)

    async def count(self) -> tuple[Figures, Figures]:
        """Return the figures of glossaries and those of memories. Raises OSError."""
        return await self._data_dir.run(self._counted)

    def _counted(self) -> tuple[Figures, Figures]:
        owners = [path for path in self._data_dir.path.iterdir() if path.is_dir()]
        known, self._known = self._known, {}
        sums = list[Figures]()
        for kind, suffix, read in ((_GLOSSARIES, GLOSSARY, _of_glossary), (MEMORIES, MEMORY, _of_memory)):
            found = list[Figures]()
            for path in (path for owner in owners for path in _files(owner / kind, suffix)):
                stamp = stamp_of(path)
                if stamp is None:  # removed meanwhile
                    continue
                before = known.get(path)
                figures = before[1] if before is not None and before[0] == stamp else read(path)
                self._known[path] = stamp, figures
                found.append(figures)
            sums.append(Figures(*map(sum, zip(*found, strict=True))) if found else Figures())
        glossaries, memories = sums
        return glossaries, memories


def _files(folder: Path, suffix: str) -> Iterator[Path]:
    try:
        yield from (path for path in folder.iterdir() if path.name.endswith(suffix))
    except FileNotFoundError:  # nothing was stored yet
        return


def _of_glossary(path: Path) -> Figures:
    """Return the figures of one glossary. A damaged one has no terms."""
    try:
        with open_glossary(path, path.name) as file:
            return Figures(1, sum(each.terms for each in file.header.dictionaries), path.stat().st_size)
    except (StoredDamaged, NotStored, FileNotFoundError):
        return Figures(1)


def _of_memory(path: Path) -> Figures:
    """Return the figures of one memory. A damaged one has no segments."""
    try:
        header = read_header(path, path.name)
        return Figures(1, header.segments, path.stat().st_size + bytes_in(path.parent / header.folder))
    except (StoredDamaged, NotStored, FileNotFoundError):
        return Figures(1)
