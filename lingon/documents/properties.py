"""Files of Java (.properties): the values are translated where they are.

The syntax is that of `java.util.Properties.load`. No library that reads such files keeps the positions of values. A
file in UTF-8 stays so. All others are in ISO-8859-1, where characters beyond it, and beyond ASCII if the file has none,
are written as `\u00e9`: each version of Java reads them.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping

from lingon.documents.document import Document, check_size
from lingon.documents.edits import TextEntry, broken, document_of, replacing
from lingon.documents.messages import Message, Style

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
    """Return a .properties file. Raises UnreadableDocument.

    target: the language to translate to, empty if not known
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

    def entries() -> Iterator[TextEntry]:
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


# Escapes with a backslash, as files of Java and of Apple write them.

_SURROGATES = re.compile("[\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
BEYOND = re.compile(r"[^\x00-\x7f]")


def joined(text: str) -> str:
    """Return a text in which two halves of a character, which two escapes have written, are that character."""
    if _SURROGATES.search(text) is None:
        return text
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)


def as_escapes(character: str, letter: str = "u", *, big: bool = False) -> str:
    """Return the escapes of a character, one for each of its units of UTF-16; big: with big figures."""
    units = character.encode("utf-16-be")
    codes = (units[position : position + 2].hex() for position in range(0, len(units), 2))
    return "".join(f"\\{letter}{code.upper() if big else code}" for code in codes)


def needless(literal: str, escape: re.Pattern[str]) -> dict[str, str]:
    """Return the ASCII signs that a literal escapes, each with its escape. Letters, figures and blanks are none.

    escape: finds an escape that stands for the character behind its backslash
    """
    signs = {found[0][1:]: found[0] for found in escape.finditer(literal)}
    return {sign: written for sign, written in signs.items() if len(sign) == 1 and sign.isascii() and _is_sign(sign)}


def _is_sign(character: str) -> bool:
    return character.isprintable() and not character.isalnum() and character != " "


def escaping(signs: Mapping[str, str]) -> Callable[[str], str]:
    """Return what writes a text with the escapes of these characters."""
    pattern = re.compile(f"[{re.escape(''.join(signs))}]")
    return lambda text: pattern.sub(lambda found: signs[found[0]], text)
