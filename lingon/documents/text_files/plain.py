"""Text files and web pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lingon.documents.document import Document, decoded, encoded
from lingon.documents.languages import NO_LANGUAGES, Languages, page_in
from lingon.translation.v1 import translation_pb2 as pb

BLOCK_LINES = 64  # lines of a text file that are one text
MOST_LINES = 256  # of a block that would else end within braces


def read_text(content: bytes) -> Document:
    """Return a text file, in blocks of lines whose line breaks stay; raises UnreadableDocument."""
    blocks = list(_blocks(decoded(content).splitlines(keepends=True)))

    def write(translations: Sequence[str]) -> bytes:
        left = iter(translations)
        return encoded("".join(next(left) if _has_text(block) else block for block in blocks), content)

    return Document(list(filter(_has_text, blocks)), pb.TextOptions(), write)


def read_page(content: bytes, languages: Languages = NO_LANGUAGES) -> Document:
    """Return an HTML file, as a whole; raises UnreadableDocument."""

    def write(translations: Sequence[str]) -> bytes:
        return encoded(page_in("".join(translations), languages), content)

    return Document([decoded(content)], pb.TextOptions(format=pb.TEXT_FORMAT_HTML), write)


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
