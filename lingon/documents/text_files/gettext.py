"""Files of GNU gettext (.po): messages without a translation are translated, and marked as fuzzy.

All other lines are copied byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lingon.documents.bounds import check_marks, check_size
from lingon.documents.document import Document, decoded, encoded
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import Inline, Node, Point, text_options, write
from lingon.documents.marks import TAG, marks_in, named_tag, paired, with_breaks, without_marks

_KEYWORD = re.compile(r"(?P<name>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<number>\d{1,2})\])?)[ \t]*(?=\")")
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"\s*\Z')  # gives nothing back, see xml_tree
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\\"'?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2}))")
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = {chr(code): f"\\{code:03o}" for code in range(32)}
_ESCAPES |= {character: f"\\{letter}" for letter, character in _CHARACTERS.items()} | {'"': '\\"', "\\": "\\\\"}
_FORMS = re.compile(r"^Plural-Forms:.*\bnplurals\s*=\s*(\d{1,2})\s*;", re.MULTILINE)
_ENCODING = re.compile(r"^Content-Type:.*\bcharset=([^\s;]+)", re.MULTILINE)
FORMS = 2  # of a plural, if the header does not say it
MOST_FORMS = 10
MOST_ENTRIES = 50_000
LINE_CHARACTERS = 76  # of the text in a line, as gettext writes it


@dataclass(slots=True)
class _Entry:
    """An entry, by the numbers of its lines.

    begin: that of its flags, or of its first string
    flagged: whether it has flags
    lines: of its strings, by the names of their keywords, such as msgstr[1], with their escapes resolved
    start: that of the first line with a translation
    last: that of the line after it
    """

    begin: int
    flagged: bool = False
    lines: dict[str, list[str]] = field(default_factory=dict)
    start: int = 0
    last: int = 0

    def string(self, name: str) -> str:
        """Return a string; empty if the entry has none of this name."""
        return "".join(self.lines.get(name, ()))

    @property
    def waits(self) -> bool:
        """Whether it has no translation; the header, which has no message, is none."""
        translations = [self.string(name) for name in self.lines if name.startswith("msgstr")]
        return bool(self.string("msgid")) and bool(translations) and not any(translations)


class _Text:
    """A message to translate; blank characters and line breaks at its ends stay, as msgfmt demands."""

    def __init__(self, message: str) -> None:
        nodes: list[Node[bytes]] = []
        at = 0
        for tag in TAG.finditer(message):
            nodes += [*with_breaks(message[at : tag.start()], str.encode), Point(tag[0].encode())]
            at = tag.end()
        nodes += with_breaks(message[at:], str.encode)
        self.inline = Inline(paired(nodes, lambda point: named_tag(point.content.decode())))

    def translated(self, translation: str) -> str:
        """Return the message of a translation."""
        nodes = self.inline.translated(translation)
        return without_marks(write(nodes, lambda piece: piece.text.encode(), bytes).decode())


def read_gettext(content: bytes) -> Document:
    """Return a file of gettext; raises UnreadableDocument."""
    check_size(len(content), "the file has")
    if (count := content.count(b"msgid")) > MOST_ENTRIES:
        raise UnreadableDocument(f"the file has {count:,} messages; at most {MOST_ENTRIES:,}")
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", decoded(content))
    entries = _entries(lines)
    header = next((entry for entry in entries if "msgid" in entry.lines and not entry.string("msgid")), _Entry(0))
    forms = _forms(header.string("msgstr"))
    messages = [(entry, _messages(entry, forms)) for entry in entries if entry.waits]
    check_marks(sum(marks_in(message) for _, each in messages for message in each))
    waiting = [(entry, list(map(_Text, each))) for entry, each in messages]
    waiting = [(entry, texts) for entry, texts in waiting if all(text.inline.text for text in texts)]

    def write_all(translations: Sequence[str]) -> bytes:
        each, written, at = iter(translations), list[str](), 0
        for entry, texts in waiting:
            messages = [text.translated(next(each)) for text in texts]
            written += [*lines[at : entry.begin], *_lines(entry, lines, messages, forms)]
            at = entry.last
        return encoded("".join([*written, *lines[at:]]), content)

    return Document([text.inline.text for _, texts in waiting for text in texts], text_options(), write_all)


def _forms(header: str) -> int:
    """Return how many forms a plural has; raises UnreadableDocument for a file whose translations cannot be UTF-8."""
    encoding = _ENCODING.search(header)
    if encoding and encoding[1].lower() not in ("utf-8", "utf8"):
        raise UnreadableDocument(f"the header of the file must say charset=UTF-8, got charset={encoding[1][:40]}")
    forms = _FORMS.search(header)
    return min(max(int(forms[1]), 1), MOST_FORMS) if forms else FORMS


def _messages(entry: _Entry, forms: int) -> list[str]:
    """Return the messages of an entry: with a plural both, or that of the plural if the language has one form."""
    names = ["msgid", "msgid_plural"] if "msgid_plural" in entry.lines else ["msgid"]
    return [entry.string(name) for name in (names[-1:] if forms == 1 else names)]


def _entries(lines: Sequence[str]) -> list[_Entry]:
    """Return the entries of a file; obsolete ones are comments."""
    found: list[_Entry] = []
    name, flags = "", None
    for number, line in enumerate(lines):
        text = line.strip()
        keyword = _KEYWORD.match(text)
        if text.startswith("#") or not text:
            flags = number if text.startswith("#,") else None if text.startswith("#~") else flags
            name = ""
            continue
        if keyword is not None:
            starts = keyword["name"] == "msgctxt" or (keyword["name"] == "msgid" and name != "msgctxt")
            if starts:
                found.append(_Entry(number if flags is None else flags, flags is not None))
                flags = None
            name = keyword["name"]
        _add(found, name, text[keyword.end() if keyword else 0 :], number, begins=keyword is not None)
    return found


def _add(entries: list[_Entry], name: str, text: str, number: int, *, begins: bool) -> None:
    """Add a line to the last entry."""
    string = _STRING.match(text)
    if not entries or not name or string is None or (begins and name in entries[-1].lines):
        raise UnreadableDocument(f"line {number + 1} of the file is no line of a message of gettext")
    entry = entries[-1]
    entry.lines.setdefault(name, []).append(_ESCAPE.sub(_character, string[1]))
    if name.startswith("msgstr"):
        entry.start = entry.start or number
    entry.last = number + 1


def _character(escape: re.Match[str]) -> str:
    letter, octal, hexadecimal = escape.groups()
    if letter:
        return _CHARACTERS.get(letter, letter)
    return chr(int(octal, 8) if octal else int(hexadecimal, 16))


def _lines(entry: _Entry, lines: Sequence[str], messages: Sequence[str], forms: int) -> Iterator[str]:
    """Yield the lines of an entry with its translations."""
    end = "\r\n" if lines[entry.start].endswith("\r\n") else "\n"
    first, *more = lines[entry.begin : entry.start]
    if not entry.flagged:
        yield f"#, fuzzy{end}{first}"
    else:
        yield first if "fuzzy" in first else first.replace("#,", "#, fuzzy,", 1)
    yield from more
    if "msgid_plural" not in entry.lines:
        yield from _string("msgstr", messages[0], end)
        return
    for form in range(forms):
        yield from _string(f"msgstr[{form}]", messages[min(form, len(messages) - 1)], end)


def _string(name: str, text: str, end: str) -> Iterator[str]:
    """Yield the lines of a string; a long one, or one of several lines, begins below its keyword as gettext does it."""
    parts = [part for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text) for part in _wrapped(line)]
    yield f'{name} "{"".join(parts) if len(parts) < 2 else ""}"{end}'
    if len(parts) > 1:
        yield from (f'"{part}"{end}' for part in parts)


def _wrapped(line: str) -> Iterator[str]:
    """Yield the parts of a line that lines of a file hold."""
    part = ""
    for word in re.findall(r"[^ ]* *", "".join(_ESCAPES.get(character, character) for character in line)):
        if part and len(part) + len(word.rstrip()) > LINE_CHARACTERS:
            yield part
            part = ""
        part += word
    yield part
