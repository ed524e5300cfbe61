"""A translation memory made of a file for the length of a run.

The command imports it by its name, because the base install lacks the packages that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lingon.memories.building import build
from lingon.memories.files import read_segments
from lingon.memories.memory import EXACT, Memory
from lingon.memories.segment import Segment
from lingon.text import normalise


class LocalMemory:
    """A memory that answers with exact matches."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __len__(self) -> int:
        """How many segments it has."""
        return len(self._memory)

    @property
    def digest(self) -> str:
        """See `Memory`."""
        return self._memory.digest

    def exact(self, text: str, before: str = "", after: str = "") -> Segment | None:
        """Return the segment of this text, in the same case, or None: the one with these neighbours if there is one,
        else the last one changed.

        before, after: the neighbours of the text in its document; empty if they are not known
        """
        found = self._memory.find(text, before, after, min_score=EXACT)
        if found and normalise(found[0].segment.source) == normalise(text):
            return found[0].segment
        return None


@contextmanager
def folder_of(path: Path, source: str, target: str) -> Iterator[Path]:
    """Give a temporary folder with the memory of a file, see `read_segments`, which is removed when the block ends.

    Raises CorpusError for a bad file. A million segments take half a minute and 700 MB of the folder.
    """
    with TemporaryDirectory(prefix="lingon-memory-") as folder:
        build(Path(folder) / "memory", read_segments(path, source, target))
        yield Path(folder) / "memory"


def open_folder(folder: Path) -> LocalMemory:
    """Return the memory of a folder. Raises DamagedMemory."""
    return LocalMemory(Memory.open(folder))
