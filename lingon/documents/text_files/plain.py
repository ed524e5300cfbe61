"""Text files and web pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lingon.documents.document import Document
from lingon.documents.encodings import read_encoded
from lingon.documents.languages import NO_LANGUAGES, Languages, page_in
from lingon.translation.v1 import translation_pb2 as pb

BLOCK_LINES = 64  # lines of a text file that are one text
_CHARSET = re.compile(
    rb"""<(?:meta\b|\?xml\b)[^<>]{0,500}?\b(?:charset|encoding)\s{0,9}=\s{0,9}["']?([\w:.-]{1,40})""", re.IGNORECASE
)
STATED_BYTES = 4096  # of a page, in which it may say its encoding
MOST_LINES = 256  # of a block that would else end within braces


def read_text(content: bytes) -> Document:
    """Return a text file, in blocks of lines whose line breaks stay; raises UnreadableDocument."""
    text, encoding = read_encoded(content)
    blocks, notes = list(_blocks(text.splitlines(keepends=True))), list[str]()

    def write(translations: Sequence[str]) -> bytes:
        left = iter(translations)
        return encoding.written("".join(next(left) if _has_text(block) else block for block in blocks), notes)

    return Document(list(filter(_has_text, blocks)), pb.TextOptions(), write, notes)


def read_page(content: bytes, languages: Languages = NO_LANGUAGES) -> Document:
    """Return an HTML file, as a whole; raises UnreadableDocument.

    It is written in the encoding that it has, with references for the characters which that lacks.
    """
    text, encoding = read_encoded(content, charset_of(content))
    notes = list[str]()

    def write(translations: Sequence[str]) -> bytes:
        return encoding.written(page_in("".join(translations), languages), notes, references=True)

    return Document([text], pb.TextOptions(format=pb.TEXT_FORMAT_HTML), write, notes)


def charset_of(content: bytes) -> str:
    """Return the encoding that a page says; empty if it says none."""
    found = _CHARSET.search(content, 0, STATED_BYTES)
    return found[1].decode() if found else ""


def _has_text(block: str) -> bool:
    return bool(block.strip())


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """Yield blocks of lines; none ends within braces, such as those of a message with a plural, unless it is long."""
    block, depth = list[str](), 0
    for line in lines:
        block.append(line)
        depth = max(depth + line.count("{") - line.count("}"), 0)
        if len(block) >= BLOCK_LINES and (depth == 0 or len(block) >= MOST_LINES):
            yield "".join(block)
            block, depth = [], 0
    if block:
        yield "".join(block)
