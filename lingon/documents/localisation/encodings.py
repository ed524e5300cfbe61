"""The encodings of localisation files: UTF-8, and UTF-16 with or without its mark."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable

from lingon.documents.bounds import check_size
from lingon.documents.errors import UnreadableDocument

_MARKS = {BOM_UTF8: "utf-8", BOM_UTF16_LE: "utf-16-le", BOM_UTF16_BE: "utf-16-be"}
_LOOKED_AT = 1024  # bytes in which zeros tell UTF-16 without a mark


def text_and_encoder(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Return the text of a file and what encodes one in its place, with the mark that the file has.

    Raises UnreadableDocument.
    """
    check_size(len(content), "the file has")
    mark, encoding = next(((mark, name) for mark, name in _MARKS.items() if content.startswith(mark)), (b"", "utf-8"))
    if not mark and (start := content[:_LOOKED_AT]).count(0) * 3 > len(start):
        encoding = "utf-16-be" if start[0] == 0 else "utf-16-le"
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeDecodeError as error:
        place = error.start + len(mark)
        raise UnreadableDocument(f"the file is not {encoding.upper()}: {error.reason} at byte {place}") from None
    return text, lambda written: mark + written.encode(encoding)
