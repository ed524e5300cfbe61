"""The file of a glossary: its terms by pair of languages, then JSON that describes it, and the length of the JSON.

    messages TermList of one pair, then of another one, ...
    {"format": 1, "name": "legal", ..., "dictionaries": [{"source": "en", "target": "de", "terms": 2, ...}]}
    4 bytes of length, and END

A glossary is one file, so that a change of any parts of it is one rename. The terms of other pairs are copied as bytes.
The description is at the end, because the sizes and checksums of the terms are known only when they are written.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from lingon.errors import StoredDamaged
from lingon.message_batches import batches_of
from lingon.serving.stores.messages_file import LENGTH_BYTES, Damaged, read_messages, write_message
from lingon.serving.stores.owners import not_stored
from lingon.terms.term import Term
from lingon.translation.v1 import stores_pb2 as pb

FORMAT = 1
SUFFIX = ".glossary"
END = b"glossary"
COPY_BYTES = 1 << 20  # bytes in one read of terms that are copied
HEADER_BYTES = 1 << 24  # bytes of the JSON at most; a pair of languages takes about 120


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The terms of one pair of languages, as canonical tags.

    terms: their number; offset: bytes from the begin of the file; size: bytes; checksum: CRC-32 of them
    """

    source: str
    target: str
    terms: int
    offset: int
    size: int
    checksum: int

    @property
    def pair(self) -> tuple[str, str]:
        """Both tags."""
        return self.source, self.target


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of a glossary without its terms; created, changed: milliseconds since 1970."""

    name: str
    label: str
    version: int
    created: int
    changed: int
    dictionaries: tuple[Dictionary, ...]

    def dictionary(self, source: str, target: str) -> Dictionary | None:
        """Return the one of a pair, or None."""
        return next((each for each in self.dictionaries if each.pair == (source, target)), None)

    def message(self) -> pb.Glossary:
        """Return the message of the API."""
        return pb.Glossary(
            name=self.name,
            label=self.label,
            dictionaries=[
                pb.GlossaryDictionary(
                    source_language_code=each.source, target_language_code=each.target, terms=each.terms
                )
                for each in self.dictionaries
            ],
            version=self.version,
            created=self.created,
            changed=self.changed,
        )


class GlossaryFile:
    """An open file of a glossary. What it holds does not change, even if the glossary is replaced or removed."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        """Read the header. Raises StoredDamaged."""
        self._file, self._name = file, name
        with self._damage():
            self.header = _read_header(file)

    def messages(self, dictionary: Dictionary) -> Iterator[pb.TermList]:
        """Yield the terms of a pair in batches. Raises StoredDamaged, at the latest at the end."""
        self._file.seek(dictionary.offset)
        with self._damage():
            yield from read_messages(self._file, pb.TermList, dictionary.size, dictionary.checksum)

    def terms(self, dictionary: Dictionary) -> Iterator[Term]:
        """Yield the terms of a pair. Raises StoredDamaged."""
        for message in self.messages(dictionary):
            yield from map(Term.of, message.terms)

    def copy(self, dictionary: Dictionary, file: IO[bytes]) -> None:
        """Append the bytes of a pair to another file."""
        self._file.seek(dictionary.offset)
        left = dictionary.size
        while left:
            content = self._file.read(min(left, COPY_BYTES))
            if not content:
                raise damaged(self._name, "it ends early")
            file.write(content)
            left -= len(content)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except Damaged as error:
            raise damaged(self._name, str(error)) from None


def damaged(name: str, why: str) -> StoredDamaged:
    """Return the error of a file that cannot be read."""
    return StoredDamaged(f"the stored glossary {name} is damaged: {why}; remove it, and store it again")


@contextmanager
def open_glossary(path: Path, name: str) -> Iterator[GlossaryFile]:
    """Open the file of a glossary. Raises NotStored or StoredDamaged."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise not_stored("glossary", name) from None
    with file:
        yield GlossaryFile(file, name)


def write_glossary(
    file: IO[bytes],
    header: Header,
    earlier: GlossaryFile | None,
    changes: Iterable[tuple[tuple[str, str], Sequence[Term] | None]],
) -> Header:
    """Write a glossary to an empty file, and return its header, which has the places of its dictionaries.

    header: the new one, without the dictionaries; earlier: the glossary before, for the terms of the other pairs
    changes: pairs with their new terms, or with None to leave a pair out; read once, so that those of one pair alone
    are in memory
    """
    kept = {each.pair: each for each in earlier.header.dictionaries} if earlier is not None else {}
    dictionaries = []
    for pair, terms in changes:
        kept.pop(pair, None)
        if terms is not None:
            dictionaries.append(_write_terms(file, pair, terms))
    for each in kept.values():
        assert earlier is not None, "it has the terms of the other pairs"
        dictionaries.append(replace(each, offset=file.tell()))
        earlier.copy(each, file)
    written = replace(header, dictionaries=tuple(sorted(dictionaries, key=lambda each: each.pair)))
    content = json.dumps({"format": FORMAT, **asdict(written)}, ensure_ascii=False).encode()
    file.write(content + len(content).to_bytes(LENGTH_BYTES, "big") + END)
    return written


def _write_terms(file: IO[bytes], pair: tuple[str, str], terms: Sequence[Term]) -> Dictionary:
    begin, checksum = file.tell(), 0
    for batch in batches_of(term.message() for term in terms):
        checksum = zlib.crc32(write_message(file, pb.TermList(terms=batch)), checksum)
    return Dictionary(*pair, len(terms), begin, file.tell() - begin, checksum)


def _read_header(file: IO[bytes]) -> Header:
    """Return the header at the end of a file. Raises Damaged."""
    size = file.seek(0, os.SEEK_END)
    tail = len(END) + LENGTH_BYTES
    file.seek(max(size - tail, 0))
    last = file.read(tail)
    length = int.from_bytes(last[:LENGTH_BYTES], "big")
    if last[LENGTH_BYTES:] != END or length > min(size - tail, HEADER_BYTES):
        raise Damaged("it ends early")
    file.seek(size - tail - length)
    try:
        values = json.loads(file.read(length))
        form = values.pop("format")
        dictionaries = tuple(Dictionary(**each) for each in values.pop("dictionaries"))
        header = Header(**values, dictionaries=dictionaries)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Damaged("its description cannot be read") from None
    if form != FORMAT:
        raise Damaged(f"its format is {form}, and this version reads {FORMAT}")
    return header
