"""The entries of a file of gettext, by the lines that they have, so that all others are copied byte for byte."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lingon.documents.errors import UnreadableDocument

_KEYWORD = re.compile(r"(?P<name>msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,2}\])?)[ \t]*(?=\"|\Z)")
# They give nothing back, see xml_tree. Strings beside each other are one, as in C.
_STRINGS = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"\s*+)++\Z')
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"')
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\\"'?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2}))")
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = {chr(code): f"\\{code:03o}" for code in range(32)}
_ESCAPES |= {character: f"\\{letter}" for letter, character in _CHARACTERS.items()} | {'"': '\\"', "\\": "\\\\"}
LINE_CHARACTERS = 76  # of the text in a line, as gettext writes it


@dataclass(slots=True)
class Entry:
    """An entry, by the numbers of its lines.

    begin: that of its first line that is no comment for people: of flags, of an earlier message, or of a string
    flags: by the numbers of the lines that have them
    references: the places that it is from
    lines: of its strings, by the names of their keywords, such as msgstr[1], with their escapes resolved
    start: that of the first line with a translation
    last: that of the line after it
    """

    begin: int
    flags: dict[int, list[str]] = field(default_factory=dict)
    references: str = ""
    lines: dict[str, list[str]] = field(default_factory=dict)
    start: int = 0
    last: int = 0

    def string(self, name: str) -> str:
        """Return a string; empty if the entry has none of this name."""
        return "".join(self.lines.get(name, ()))

    @property
    def translations(self) -> list[str]:
        """Its translations."""
        return [self.string(name) for name in self.lines if name.startswith("msgstr")]

    @property
    def is_header(self) -> bool:
        """Whether it is the header, which has no message."""
        return "msgid" in self.lines and not self.string("msgid") and "msgctxt" not in self.lines

    @property
    def waits(self) -> bool:
        """Whether it has no translation."""
        return bool(self.string("msgid")) and bool(self.translations) and not any(self.translations)

    @property
    def has_plural(self) -> bool:
        """Whether it has a plural."""
        return "msgid_plural" in self.lines

    @property
    def flag_names(self) -> set[str]:
        """Its flags."""
        return {flag for flags in self.flags.values() for flag in flags}


def entries_of(lines: Sequence[str]) -> list[Entry]:
    """Return the entries of a file; obsolete ones are comments. Raises UnreadableDocument."""
    found: list[Entry] = []
    name, begin, flags, references = "", -1, dict[int, list[str]](), list[str]()
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith("#") or not text:
            if text.startswith("#~"):
                begin, flags, references = -1, {}, []
            elif text.startswith(("#,", "#|")):
                begin = number if begin < 0 else begin
            if text.startswith("#:"):
                references.append(text[2:])
            if text.startswith("#,"):
                flags[number] = [flag.strip() for flag in text[2:].split(",")]
            name = ""
            continue
        keyword = _KEYWORD.match(text)
        if keyword is not None:
            starts = keyword["name"] == "msgctxt" or (keyword["name"] == "msgid" and name != "msgctxt")
            if starts:
                found.append(Entry(number if begin < 0 else begin, flags, " ".join(references)))
                begin, flags, references = -1, {}, []
            name = keyword["name"]
        _add(found, name, text[keyword.end() if keyword else 0 :], number, begins=keyword is not None)
    return found


def _add(entries: list[Entry], name: str, text: str, number: int, *, begins: bool) -> None:
    """Add a line to the last entry."""
    readable = _STRINGS.match(text) or (begins and not text)
    if not entries or not name or not readable or (begins and name in entries[-1].lines):
        raise UnreadableDocument(f"line {number + 1} of the file is no line of a message of gettext")
    entry = entries[-1]
    strings = (_ESCAPE.sub(_character, string) for string in _STRING.findall(text))
    entry.lines.setdefault(name, []).append("".join(strings))
    if name.startswith("msgstr"):
        entry.start = entry.start or number
    entry.last = number + 1


def _character(escape: re.Match[str]) -> str:
    letter, octal, hexadecimal = escape.groups()
    if letter:
        return _CHARACTERS.get(letter, letter)
    return chr(int(octal, 8) if octal else int(hexadecimal, 16))


def string_lines(name: str, text: str, end: str) -> Iterator[str]:
    """Yield the lines of a string; a long one, or one of several lines, begins below its keyword as gettext does it."""
    parts = [part for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text) for part in _wrapped(line)]
    yield f'{name} "{"".join(parts) if len(parts) < 2 else ""}"{end}'
    if len(parts) > 1:
        yield from (f'"{part}"{end}' for part in parts)


def escaped(text: str) -> str:
    """Return a text as it is between quotation marks."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def _wrapped(line: str) -> Iterator[str]:
    """Yield the parts of a line that lines of a file hold."""
    part = ""
    for word in re.findall(r"[^ ]* *", escaped(line)):
        if part and len(part) + len(word.rstrip()) > LINE_CHARACTERS:
            yield part
            part = ""
        part += word
    yield part
