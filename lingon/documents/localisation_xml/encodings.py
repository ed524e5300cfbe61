"""Files of XML in UTF-16, and in the encodings of eight bits that their declarations name, are read as UTF-8.

They are written in their own encoding, in which a character that it lacks becomes a reference.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from lingon.documents.document import Document
from lingon.documents.errors import UnreadableDocument

_DECLARED = re.compile(rb"""<\?xml\s[^<>]{0,200}?\bencoding\s{0,20}=\s{0,20}["']([A-Za-z0-9._-]{1,40})["']""")
_UTF_8 = frozenset(["utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be"])
"""What is read as UTF-8 if the file has no bytes of UTF-16: some programs change a file and not its declaration."""
_OF_EIGHT_BITS = re.compile(r"iso8859-\d{1,2}|cp125\d|koi8-[ru]|mac-\w{1,20}")
_BEGINS = {  # of a file in UTF-16, and how many of the bytes are no text
    codecs.BOM_UTF16_LE: ("utf-16-le", 2),
    codecs.BOM_UTF16_BE: ("utf-16-be", 2),
    b"<\x00": ("utf-16-le", 0),
    b"\x00<": ("utf-16-be", 0),
}
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


def read_recoded(content: bytes, read: Callable[[bytes], Document]) -> Document:
    """Return the document of a file in any of these encodings; raises UnreadableDocument.

    read: returns that of a file in UTF-8
    """
    encoding, begin = _encoding_of(content)
    if not encoding:
        return read(content)
    text = _recoded(content[begin:], encoding)
    document = read(text.encode())

    def write(translations: Sequence[str]) -> bytes:
        written = document.write(translations).decode()
        return content[:begin] + _encoded(written, encoding)

    return replace(document, write=write)


def _encoding_of(content: bytes) -> tuple[str, int]:
    """Return the name of an encoding, empty for UTF-8, and how many bytes of the file are a byte order mark of it."""
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise UnreadableDocument("the XML in the file is UTF-32; it must be UTF-8 or UTF-16")
    if (found := _BEGINS.get(content[:2])) is not None:
        return found
    declared = _DECLARED.match(content)
    if declared is None:
        return "", 0
    name = declared[1].decode()
    try:
        encoding = codecs.lookup(name).name
    except LookupError:
        encoding = ""
    if encoding in _UTF_8:
        return "", 0
    if not _OF_EIGHT_BITS.fullmatch(encoding):
        raise UnreadableDocument(f"the XML in the file declares the encoding {name}; it must be UTF-8 or UTF-16")
    return encoding, 0


def _recoded(content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"the XML in the file is not {encoding.upper()}: {error.reason} at byte {error.start}"
        raise UnreadableDocument(message) from None


def _encoded(text: str, encoding: str) -> bytes:
    """Return a text in an encoding, in which a character that it lacks is a reference, which CDATA cannot have."""
    found, at = list[bytes](), 0
    while (begin := text.find(_CDATA, at)) >= 0 and (end := text.find(_CDATA_END, begin)) >= 0:
        found.append(text[at:begin].encode(encoding, "xmlcharrefreplace"))
        found += [_encoded_in_cdata(text[begin:end], encoding)]
        at = end
    return b"".join([*found, text[at:].encode(encoding, "xmlcharrefreplace")])


def _encoded_in_cdata(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        parts = (_with_border(each, encoding) for each in text)
        return "".join(parts).encode(encoding)


def _with_border(character: str, encoding: str) -> str:
    """Return a character of CDATA, or a reference to it between the end of CDATA and a new begin."""
    if character.encode(encoding, "ignore"):
        return character
    return f"{_CDATA_END}&#{ord(character)};{_CDATA}"
