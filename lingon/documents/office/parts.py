"""The files of an archive that have texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lingon.documents.office.paragraphs import XmlFile
from lingon.documents.office.vocabularies import Vocabulary


class Part(Protocol):
    """A file of an archive that has texts."""

    @property
    def texts(self) -> Sequence[str]:
        """To translate."""

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with translations of its texts."""


class OfficePart:
    """A file of paragraphs."""

    def __init__(self, content: bytes, vocabulary: Vocabulary) -> None:
        """Raises UnreadableDocument."""
        self._file = XmlFile(content, vocabulary)
        self.texts = [paragraph.inline.text for paragraph in self._file.paragraphs]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with translations of its texts."""
        return self._file.written(dict(zip(map(id, self._file.paragraphs), translations, strict=True)))


class Parts:
    """Several files, by their names, that are translated one after the other."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts

    @property
    def texts(self) -> list[str]:
        """To translate, of all files."""
        return [text for part in self._parts.values() for text in part.texts]

    def written(self, translations: Sequence[str]) -> dict[str, bytes]:
        """Return the files with translations of their texts."""
        found, begin = dict[str, bytes](), 0
        for name, part in self._parts.items():
            found[name] = part.written(translations[begin : begin + len(part.texts)])
            begin += len(part.texts)
        return found
