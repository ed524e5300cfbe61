"""A translation memory made of a file for the length of a run.

The command imports it by its name, because the base install lacks the packages that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lingon.memories.adaptation import adapted_matches
from lingon.memories.building import build
from lingon.memories.files import read_segments
from lingon.memories.keys import EXACT
from lingon.memories.memory import Memory
from lingon.memories.segment import MOST_TEXT, Segment
from lingon.segments.layout import Split, TextLayout
from lingon.text import normalise

FUZZY = 70  # lowest score of a similar segment


class LocalMemory:
    """A memory whose exact matches answer texts, and whose other matches are given to requests."""

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

    def segments_for(self, text: str, language: str, *, fuzzy: bool = False) -> list[Segment]:
        """Return the segments that the translation of a text without markup may need: the best one for the text and for
        each of its sentences between their neighbours.

        language: of the text, BCP-47, or empty; fuzzy: whether similar ones count
        """
        layout = TextLayout.of(text, Split.SENTENCES, language)
        sentences = [layout.segment(index) for index in range(len(layout.segments))]
        least = FUZZY if fuzzy else EXACT
        found = adapted_matches(self._memory, text.strip(), min_score=EXACT) if len(sentences) > 1 else []
        for before, sentence, after in zip(["", *sentences], sentences, [*sentences[1:], ""], strict=False):
            if len(sentence) <= MOST_TEXT:
                found += adapted_matches(self._memory, sentence, before, after, min_score=least)
        return [match.segment for match in found]


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
