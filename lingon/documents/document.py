"""A document as texts to translate."""

from __future__ import annotations

import html
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lingon.documents.errors import UnreadableDocument
from lingon.translation.v1 import translation_pb2 as pb

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


def decoded(content: bytes) -> str:
    """Return the text of a file in UTF-8, without its byte order mark; raises UnreadableDocument."""
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
