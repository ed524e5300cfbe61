"""Files of Apple (.strings): the values are translated where they are.

The syntax is that of property lists before XML, as in the Property List Programming Guide, "Old-Style ASCII Property
Lists". No library that reads such files keeps the places of values. A file in UTF-16 stays so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from lingon.documents.document import Document, Edit
from lingon.documents.localisation.catalogues import SIGNS
from lingon.documents.localisation.edits import Entry, broken, document_of, replacing, text_and_encoder
from lingon.documents.localisation.escapes import BEYOND, as_escapes, escaping, joined, needless
from lingon.documents.localisation.messages import Message

_BETWEEN = re.compile(r"(?:\s++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\r\n]*+)*+")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"|\'(?:[^\'\\]++|\\.)*+\'|[\w.\-$:/]++', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[Uu]([0-9A-Fa-f]{4})|([0-7]{1,3})|(.))", re.DOTALL)
_SIGN = re.compile(r"\\.", re.DOTALL)
_CODE = re.compile(r"\\([Uu])([0-9A-Fa-f]{4})")
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _CHARACTERS.items()} | {"\\": "\\\\"}
_LAST_OCTAL = 0x7F  # later ones are of an encoding of their own


def read_apple_strings(content: bytes) -> Document:
    """Return a .strings file; raises UnreadableDocument."""
    text, encode = text_and_encoder(content)
    return document_of(text, _entries(text), encode)


def _entries(text: str) -> Iterator[Entry]:
    code = _CODE.search(text) if text.isascii() else None
    at = _past(text, 0)
    while at < len(text):
        key = begin, end = _string(text, at)
        at = _past(text, end)
        alone = not text.startswith("=", at)
        if not alone:
            begin, end = _string(text, _past(text, at + 1))
            at = _past(text, end)
        if not text.startswith(";", at):
            raise broken(text, at, "text", "a semicolon is missing" if not alone else "an equal sign is missing")
        value, written = _value(text, begin, end), _writer(text[begin:end], code)
        entry = replacing(Message(value, SIGNS), begin, end, value, written)
        yield _after_key(entry, key[1]) if alone else entry
        at = _past(text, at + 1)


def _after_key(entry: Entry, end: int) -> Entry:
    """Return the entry of a key without a value, which is its own value, with the value written after it."""

    def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
        for edit in entry.edits(translations):
            yield Edit(end, end, f" = {edit.content}")

    return Entry(entry.messages, edits)


def _past(text: str, begin: int) -> int:
    """Return the place after blanks and comments; raises UnreadableDocument for a comment without an end."""
    found = _BETWEEN.match(text, begin)
    assert found is not None
    if text.startswith("/*", found.end()):
        raise broken(text, found.end(), "text", "a comment has no end")
    return found.end()


def _string(text: str, begin: int) -> tuple[int, int]:
    found = _STRING.match(text, begin)
    if found is None:
        raise broken(text, begin, "text", "a string is missing or has no end")
    return found.span()


def _value(text: str, begin: int, end: int) -> str:
    """Return what a string says."""
    if text[begin] not in "\"'":
        return text[begin:end]

    def character(escape: re.Match[str]) -> str:
        code, octal, sign = escape.groups()
        if octal and int(octal, 8) > _LAST_OCTAL:
            raise broken(
                text, begin + 1 + escape.start(), "text", f"the escape \\{octal} is not read; write \\U and 4 figures"
            )
        if sign:
            return _CHARACTERS.get(sign, "" if sign == "\n" else sign)
        return chr(int(code, 16) if code else int(octal, 8))

    return joined(_ESCAPE.sub(character, text[begin + 1 : end - 1]))


def _writer(literal: str, code: re.Match[str] | None) -> Callable[[str], str]:
    """Return what writes a string like a literal; code: an escape of a file that has no character beyond ASCII."""
    quote = literal[0] if literal[0] in "\"'" else '"'
    signs = {**needless(literal, _SIGN), **_ESCAPES, quote: f"\\{quote}"}
    if "\n" in literal or "\r" in literal:
        del signs["\n"], signs["\r"]
    escaped = escaping(signs)

    def written(text: str) -> str:
        found = escaped(text)
        if code is not None:
            found = BEYOND.sub(lambda each: as_escapes(each[0], code[1], big=code[2].upper() == code[2]), found)
        return f"{quote}{found}{quote}"

    return written
