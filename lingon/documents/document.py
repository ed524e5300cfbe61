"""A document as texts to translate: its bounds, its error, and the edits that write its translations."""

from __future__ import annotations

import html
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lingon.errors import LingonError
from lingon.translation.v1 import translation_pb2 as pb


class UnreadableDocument(LingonError):
    """A file is not a document of its kind, or is too large."""


# How much text and markup a document may have: what it takes in memory is bounded by that.

MOST_TEXT_BYTES = 32 << 20  # of the files that are translated
MOST_REPLY_BYTES = 32 << 20  # of the texts of a file, or of a translated file: twice the largest file over HTTP
MOST_TAGS = 250_000  # of the files that are translated, and of the marks in texts of other files
MOST_FORMAT = 4096  # bytes of the format of a text that is translated: each part of the text is written with it


def check_marks(marks: int) -> None:
    """Raise UnreadableDocument if the texts of a file have too many tags and line breaks."""
    if marks > MOST_TAGS:
        raise UnreadableDocument(f"the texts in the file have {marks:,} tags and line breaks; at most {MOST_TAGS:,}")


def check_size(size: int, subject: str = "the text files in it have") -> None:
    """Raise UnreadableDocument if files with text have too many bytes."""
    if size > MOST_TEXT_BYTES:
        raise UnreadableDocument(f"{subject} {size:,} bytes; at most {MOST_TEXT_BYTES:,}")


def check_reply(size: int, subject: str) -> None:
    """Raise UnreadableDocument if what the process of a document returns has too many bytes."""
    if size > MOST_REPLY_BYTES:
        raise UnreadableDocument(f"{subject} {size:,} bytes; at most {MOST_REPLY_BYTES:,}")


def check_tags(tags: int, subject: str = "the text files in it have") -> None:
    """Raise UnreadableDocument if files with text have too many tags."""
    if tags > MOST_TAGS:
        raise UnreadableDocument(f"{subject} {tags:,} tags; at most {MOST_TAGS:,}")


Characters = TypeVar("Characters", str, bytes)
_TAG = re.compile(r"<[^<>]*+>")
_LONG_NUMBER = re.compile(r"&#([0-9]{8,})")  # of no character, unless it begins with zeros


@dataclass(frozen=True, slots=True)
class Document:
    """A document.

    texts: to translate, in their order
    options: how they are to be read
    write: returns the document with their translations
    notes: lines for people about the file, such as its encoding; `write` adds what it could not do
    """

    texts: Sequence[str]
    options: pb.TextOptions
    write: Callable[[Sequence[str]], bytes]
    notes: list[str] = field(default_factory=list)

    @property
    def characters(self) -> int:
        """Characters of its texts; those of an HTML file with its tags, of others without."""
        if self.options.format != pb.TEXT_FORMAT_XML:
            return sum(map(len, self.texts))
        return sum(len(html.unescape(_TAG.sub("", text))) for text in self.texts)


@dataclass(frozen=True, slots=True)
class Edit(Generic[Characters]):
    """What is written from `begin` to `end` of a file, in characters or bytes; an insertion if these are equal."""

    begin: int
    end: int
    content: Characters

    def moved(self, positions: int) -> Edit[Characters]:
        """Return the same edit of a part of the file, or of a whole with it."""
        return Edit(self.begin + positions, self.end + positions, self.content)


def edited(content: Characters, edits: Iterable[Edit[Characters]]) -> Characters:
    """Return a file with edits, which do not overlap. Those at one position stay in their order."""
    found: list[Characters] = []
    at = 0
    for edit in sorted(edits, key=lambda edit: edit.begin):
        found += [content[at : edit.begin], edit.content]
        at = edit.end
    found.append(content[at:])
    return content[:0].join(found)


def decoded(content: bytes) -> str:
    """Return the text of a file in UTF-8, without its byte order mark. Raises UnreadableDocument."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableDocument(f"the file is not UTF-8: {error.reason} at byte {error.start}") from None


def unescaped(text: str) -> str:
    """Return a text with the characters that references of HTML stand for, whatever numbers these have."""
    return html.unescape(_LONG_NUMBER.sub(lambda number: f"&#{number[1].lstrip('0')[:8] or 0}", text))


def encoded(text: str, original: bytes) -> bytes:
    """Return a text in UTF-8, with a byte order mark if the file that it replaces has one."""
    return text.encode("utf-8-sig" if original.startswith(BOM_UTF8) else "utf-8")
