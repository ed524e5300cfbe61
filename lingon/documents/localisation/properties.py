r"""Files of Java (.properties): the values are translated where they are.

The syntax is that of `java.util.Properties.load`. No library that reads such files keeps the places of values. A file
in UTF-8 stays so; all others are in ISO-8859-1, where characters beyond it, and beyond ASCII if the file has none, are
written as `\u00E9`: each version of Java reads them.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator

from lingon.documents.bounds import check_size
from lingon.documents.document import Document
from lingon.documents.localisation.edits import Entry, broken, document_of, replacing
from lingon.documents.localisation.escapes import as_escapes, escaping, joined, needless
from lingon.documents.localisation.messages import Message, Style

_STYLE = Style(doubles=True)
_BETWEEN = re.compile(r"(?:[ \t\f\r\n]++|[#!][^\r\n]*+)*+")
_BLANKS = r"[ \t\f]*+(?:\\(?:\r\n|\r|\n)[ \t\f]*+)*+"
_KEY = re.compile(rf"(?:[^\\=: \t\f\r\n]++|\\(?!\r|\n).)*+{_BLANKS}(?:[=:]{_BLANKS})?+", re.DOTALL)
_VALUE = re.compile(r"(?:[^\\\r\n]++|\\(?:\r\n|.))*+\\?+", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|((?:\r\n|\r|\n)[ \t\f]*+)|(.))|\\\Z", re.DOTALL)
_SIGN = re.compile(r"\\.", re.DOTALL)
_WRONG = re.compile(r"(?<!\\)(?:\\\\)*+\\u(?![0-9A-Fa-f]{4})")
_SMALL = re.compile(r"\\u[0-9A-F]{0,3}[a-f]")
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _CHARACTERS.items()} | {"\\": "\\\\"}


def read_properties(content: bytes, target: str = "") -> Document:
    """Return a .properties file; raises UnreadableDocument.

    target: the language to translate to; empty if not known
    """
    check_size(len(content), "the file has")
    mark = BOM_UTF8 if content.startswith(BOM_UTF8) else b""
    try:
        encoding, text = "utf-8", content.removeprefix(mark).decode()
    except UnicodeDecodeError:
        encoding, text = "latin-1", content.decode("latin-1")
    last = 0x7F if text.isascii() else 0xFF if encoding == "latin-1" else 0x10FFFF
    beyond = re.compile(f"[^\0-{chr(last)}]") if last < 0x10FFFF else re.compile(r"(?!)")
    big = _SMALL.search(text) is None

    def written(literal: str) -> Callable[[str], str]:
        escaped = escaping({**needless(literal, _SIGN), **_ESCAPES})

        def write(value: str) -> str:
            found = beyond.sub(lambda found: as_escapes(found[0], big=big), escaped(value))
            return f"\\{found}" if found.startswith(" ") else found

        return write

    def entries() -> Iterator[Entry]:
        at = 0
        while (at := _end(_BETWEEN, text, at)) < len(text):
            begin = _end(_KEY, text, at)
            at = _end(_VALUE, text, begin)
            literal = text[begin:at]
            if wrong := _WRONG.search(literal):
                raise broken(text, begin + wrong.end() - 2, "text", "\\u needs four hexadecimal figures")
            value = joined(_ESCAPE.sub(_character, literal))
            yield replacing(Message(value, _STYLE, target), begin, at, value, written(literal))

    return document_of(text, entries(), lambda written, _: mark + written.encode(encoding))


def _end(pattern: re.Pattern[str], text: str, begin: int) -> int:
    found = pattern.match(text, begin)
    assert found is not None
    return found.end()


def _character(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return "" if escape[2] or escape[3] is None else _CHARACTERS.get(escape[3], escape[3])
