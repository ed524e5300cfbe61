"""The values of a JSON file with their places in it, so that all else is copied byte for byte.

The json package of Python keeps no places of values, and its keys are without order among equal ones; it reads the
strings, and this file what is around them, in one pass without recursion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # what json itself uses
from typing import NoReturn

from lingon.documents.errors import UnreadableDocument
from lingon.documents.localisation.edits import broken

MOST_DEPTH = 64  # of objects and arrays inside each other
MOST_VALUES = 500_000  # of a file: each takes 150 bytes of memory
_BLANKS = re.compile(r"[ \t\r\n]*+")
_OTHER = re.compile(r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|true|false|null")
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_CONTROL = '"\\\\\\x00-\\x1f'
_CONTROLS = re.compile(f"[{_CONTROL}]")
_BEYOND = re.compile(r"[^\x00-\x7f]")
_FIGURE = re.compile(r"\\u[0-9]{0,3}([A-Fa-f])")  # the first letter of an escape
_FOREIGN = re.compile(r"\\u(?!00[0-7])[0-9A-Fa-f]{4}")  # an escape of a character beyond ASCII


@dataclass(slots=True)
class Value:
    """A value; one of an object has a key.

    kind: object, array, string, or other for numbers, booleans and null
    begin, end: in the text of the file, quotation marks and brackets included
    key, key_begin, key_end: that of a value of an object and its place
    text: of a string
    members: of an object or an array
    """

    kind: str
    begin: int
    end: int = 0
    key: str = ""
    key_begin: int = 0
    key_end: int = 0
    text: str = ""
    members: Sequence[Value] = ()

    def member(self, key: str) -> Value | None:
        """Return the value of a key in an object, the last one if there are several, as JSON parsers do."""
        if self.kind != "object":
            return None
        return next((each for each in reversed(self.members) if each.key == key), None)

    def string(self, key: str) -> str | None:
        """Return the string of a key in an object; None if there is none."""
        found = self.member(key)
        return found.text if found is not None and found.kind == "string" else None


def read_value(text: str) -> Value:
    """Return the value of a file; raises UnreadableDocument that names line and column."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._open: list[tuple[Value, list[Value]]] = []
        self._count = 0

    def read(self) -> Value:
        """Return the value."""
        root = self._value()
        while self._open:
            container, members = self._open[-1]
            closing = "}" if container.kind == "object" else "]"
            if self._peek() == closing:
                self._at += 1
                container.end = self._at
                self._open.pop()
                continue
            if members:
                self._expect(",")
            members.append(self._value(*(self._key() if container.kind == "object" else ())))
        self._peek()
        if self._at < len(self._text):
            self._fail("a value is followed by something else")
        return root

    def _value(self, key: str = "", key_begin: int = 0, key_end: int = 0) -> Value:
        first = self._peek()
        found = Value("other", self._at, 0, key, key_begin, key_end)
        self._count += 1
        if self._count > MOST_VALUES:
            raise UnreadableDocument(f"the file has more than {MOST_VALUES:,} values")
        if first == '"':
            found.kind, found.text = "string", self._string()
        elif first in ("{", "["):
            if len(self._open) >= MOST_DEPTH:
                self._fail(f"values are in more than {MOST_DEPTH} others")
            found.kind = "object" if first == "{" else "array"
            members: list[Value] = []
            found.members = members
            self._open.append((found, members))
            self._at += 1
        else:
            other = _OTHER.match(self._text, self._at)
            if other is None:
                self._fail("a value is missing")
            self._at = other.end()
        found.end = self._at
        return found

    def _key(self) -> tuple[str, int, int]:
        if self._peek() != '"':
            self._fail("a key in quotation marks is missing")
        begin = self._at
        key = self._string()
        end = self._at
        self._expect(":")
        return key, begin, end

    def _string(self) -> str:
        found: str
        try:
            found, self._at = scanstring(self._text, self._at + 1, True)
        except json.JSONDecodeError as error:
            self._at = error.pos
            self._fail("a string has no end" if "Unterminated" in error.msg else "a string has a wrong character")
        return found

    def _peek(self) -> str:
        blanks = _BLANKS.match(self._text, self._at)
        assert blanks is not None
        self._at = blanks.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            self._fail("a colon is missing" if sign == ":" else "a comma is missing")
        self._at += 1

    def _fail(self, problem: str) -> NoReturn:
        raise broken(self._text, self._at, "JSON", problem)


def leaves(root: Value) -> Iterator[tuple[tuple[str, ...], Value]]:
    """Yield the strings of a value, each with the keys around it; those of an array have none."""
    waiting: list[tuple[tuple[str, ...], Iterator[Value]]] = [((), iter([root]))]
    while waiting:
        keys, members = waiting[-1]
        each = next(members, None)
        if each is None:
            waiting.pop()
            continue
        path = (*keys, each.key) if each is not root else ()
        if each.kind == "string":
            yield path, each
        elif each.members:
            waiting.append((path, iter(each.members)))


class StringStyle:
    """How the strings of a file are written: characters beyond ASCII as such or as escapes, with small or big figures.

    A file with neither has them as such.
    """

    def __init__(self, text: str) -> None:
        self._escapes = text.isascii() and _FOREIGN.search(text) is not None
        letter = _FIGURE.search(text) if self._escapes else None
        self._big = letter is not None and letter[1].isupper()

    def like(self, literal: str) -> Callable[[str], str]:
        """Return what writes a string like a literal: a sign that it escapes without need is escaped too."""
        own = dict(map(_escaped_sign, _ESCAPE.finditer(literal)))
        own = {sign: escape for sign, escape in own.items() if sign.isascii() and sign.isprintable()}
        own = {sign: escape for sign, escape in own.items() if not sign.isalnum()}  # as the n of a line break

        def written(text: str) -> str:
            def escaped(found: re.Match[str]) -> str:
                return own.get(found[0]) or json.dumps(found[0])[1:-1]

            pattern = re.compile(f"[{re.escape(''.join(own))}{_CONTROL}]") if own else _CONTROLS
            text = pattern.sub(escaped, text)
            return f'"{_BEYOND.sub(self._escape, text) if self._escapes else text}"'

        return written

    def _escape(self, found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be")
        codes = (units[place : place + 2].hex() for place in range(0, len(units), 2))
        return "".join(f"\\u{code.upper() if self._big else code}" for code in codes)


def _escaped_sign(escape: re.Match[str]) -> tuple[str, str]:
    """Return what an escape stands for, and the escape."""
    return (chr(int(escape[1], 16)) if escape[1] else escape[2]), escape[0]
