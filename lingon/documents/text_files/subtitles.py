"""Subtitles (SubRip and WebVTT): sentences are translated whole, and given back to the cues that they were in.

Numbers, times, settings and all else are copied. A sentence that goes on in the next cue is one text, in which the
border of the cues is a point; the translation is divided where the point is.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lingon.documents.bounds import check_marks, check_size
from lingon.documents.document import Document, decoded, encoded, unescaped
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import Inline, Node, Piece, Point, text_options, write
from lingon.documents.marks import named_tag, paired
from lingon.segments.protection import find_protected

_START = r"(?:\d{1,4}:)?\d\d:\d\d[,.]\d{1,3}[ \t]*+-->"
_TIME = r"(?:(\d{1,4}):)?(\d\d):(\d\d)[,.](\d{1,3})"
_HEAD = re.compile(rf"{_TIME}[ \t]*+-->[ \t]*+{_TIME}")
_BEGIN = re.compile(rf"[ \t]*+{_START}")  # of a line that is no text, also without a blank line before it
_NUMBER = re.compile(r"[ \t]*+\d++[ \t]*+")
_LINE = re.compile(r"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_MARK = re.compile(r"</?[A-Za-z][^<>\x00\x01]*+>|<[\d:.]++>|\{\\[^{}\x00\x01]*+\}")
_UNTAGGED = re.compile(r"[^<>]++(>?)")  # in which lines may end, unless it is in a tag
_ENDS = re.compile(r"""[.!?:\u2026\u3002\uff01\uff1f\u266a][)\]"'\u201d\u2019\u00bb]*\s*\Z""")
_SPEAKER = re.compile(r"\s*[-\u2010-\u2015]\s*")  # begins what another one says
BORDER = b"\x00"
LINE = b"\x01"
MOST_CUES = 8  # of one text: subtitles without punctuation have no other end
LONGEST_PAUSE = 2.0  # seconds between two cues of a sentence
LINE_CHARACTERS = 42  # of a line, as is usual for subtitles


@dataclass(frozen=True, slots=True)
class Cue:
    """The text of a cue, without its last line break; begin, end: its place in the file."""

    text: str
    begin: int
    end: int
    start: float
    stop: float

    @property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.splitlines()

    @property
    def plain(self) -> str:
        """Its text without marks and references to characters."""
        return unescaped(_unmarked(self.text))


def read_subtitles(content: bytes) -> Document:
    """Return subtitles; raises UnreadableDocument."""
    check_size(len(content), "the file has")
    text = decoded(content)
    check_marks(sum(map(text.count, "<{\r\n")))
    cues, web = _cues(text), text.startswith("WEBVTT")
    if not cues and not web and text.strip():
        raise UnreadableDocument("the file has no subtitles")
    groups = [_Group(each, references=web) for each in _groups(cues)]
    groups = [group for group in groups if group.inline.text]

    def write_all(translations: Sequence[str]) -> bytes:
        found, at = list[str](), 0
        for group, translation in zip(groups, translations, strict=True):
            for cue, translated in zip(group.cues, group.translated(translation), strict=True):
                found += [text[at : cue.begin], translated]
                at = cue.end
        return encoded("".join([*found, text[at:]]), content)

    return Document([group.inline.text for group in groups], text_options(), write_all)


def _cues(text: str) -> list[Cue]:
    found: list[Cue] = []
    lines = [line for line in _LINE.finditer(text) if line[0]]
    last = 0  # line of the text of the cue before
    for number, line in enumerate(lines):
        head = _HEAD.search(line[1]) if number >= last and line[2] else None
        if head is None:
            continue
        last = number + 1
        while last < len(lines) and not lines[last][1].isspace() and lines[last][1] and not _begins(lines, last):
            last += 1
        begin, end = line.end(), lines[last - 1].end()
        start, stop = _seconds(*head.groups()[:4]), _seconds(*head.groups()[4:])
        content = text[begin:end].rstrip()
        found.append(Cue(content, begin, begin + len(content), start, stop))
    return found


def _begins(lines: Sequence[re.Match[str]], number: int) -> bool:
    """Whether a cue begins at a line, with its number or its times."""
    more = number + 1 < len(lines) and bool(lines[number][2])
    times = lines[number + 1] if more and _NUMBER.fullmatch(lines[number][1]) else lines[number]
    return bool(_BEGIN.match(times[1]))


def _seconds(hours: str, minutes: str, seconds: str, parts: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(parts.ljust(3, "0")) / 1000


def _groups(cues: Sequence[Cue]) -> list[list[Cue]]:
    """Return the cues in groups that whole sentences are in."""
    found: list[list[Cue]] = []
    for cue in cues:
        last = found[-1][-1] if found else None
        goes_on = (
            last is not None
            and len(found[-1]) < MOST_CUES
            and last.plain.strip()
            and not _ENDS.search(last.plain)
            and not _SPEAKER.match(cue.text)
            and 0 <= cue.start - last.stop <= LONGEST_PAUSE
        )
        if goes_on:
            found[-1].append(cue)
        else:
            found.append([cue])
    return found


class _Group:
    """The cues of one text; references: whether &amp; and the like stand for characters, as in WebVTT."""

    def __init__(self, cues: Sequence[Cue], *, references: bool) -> None:
        self.cues, self._references = cues, references
        nodes: list[Node[bytes]] = []
        for place, cue in enumerate(cues):
            nodes += [Piece(" "), Point(BORDER)] if place else []
            nodes += _nodes(cue)
        if references:
            nodes = [Piece(unescaped(node.text)) if isinstance(node, Piece) else node for node in nodes]
        self.inline = Inline(paired(nodes, lambda point: named_tag(point.content.decode())))

    def translated(self, translation: str) -> list[str]:
        """Return the text of each cue."""
        nodes = self.inline.translated(translation)
        written = write(nodes, self._text, bytes).decode()
        parts = [part.strip() for part in written.split(BORDER.decode())]
        if any(_words(cue.text) and not _words(part) for part, cue in zip(parts, self.cues, strict=True)):
            parts = _divided(" ".join(_unmarked(written).replace("\0", " ").split()), self.cues)
        return [_wrapped(part, cue) for part, cue in zip(parts, self.cues, strict=True)]

    def _text(self, piece: Piece) -> bytes:
        return (html.escape(piece.text, quote=False) if self._references else piece.text).encode()


def _nodes(cue: Cue) -> list[Node[bytes]]:
    """Return the text of a cue; a line of another speaker is a sentence of its own, other line breaks are spaces."""
    found: list[Node[bytes]] = []
    for place, line in enumerate(cue.lines):
        speaker = _SPEAKER.match(line)
        if place:
            found.append(Point(LINE, splits=True) if speaker else Piece(" "))
        at = 0
        if speaker:
            found.append(Point(speaker[0].encode(), splits=True))
            at = speaker.end()
        for mark in _MARK.finditer(line):
            found += [Piece(line[at : mark.start()]), Point(mark[0].encode())]
            at = mark.end()
        found.append(Piece(line[at:]))
    return found


def _words(text: str) -> bool:
    return any(map(str.isalnum, _unmarked(text)))


def _divided(text: str, cues: Sequence[Cue]) -> list[str]:
    """Return a translation in as many parts as there are cues, between words, as long as the cues are."""
    words = text.split(" ")
    ends = list(accumulate(len(word) + 1 for word in words))  # of each word, with the blank after it
    lengths = [max(len(cue.plain), 1) for cue in cues]
    found, first = list[str](), 0
    for place, length in enumerate(lengths):
        left = len(lengths) - place - 1
        begin = ends[first - 1] if first else 0
        share = (ends[-1] - begin - 1) * length / sum(lengths[place:])
        count = len(words) - first
        if left:
            nearest = min(range(first, len(words)), key=lambda word: abs(ends[word] - begin - 1 - share), default=-1)
            count = max(min(nearest + 1 - first, count - left), 1)
        found.append(" ".join(words[first : first + count]))
        first = min(first + count, len(words))
    return found


def _wrapped(text: str, cue: Cue) -> str:
    """Return the text of a cue in lines, as many as it had, or as few more as keep lines as short as they were."""
    end = "\r\n" if "\r\n" in cue.text else "\n"
    parts = text.split(LINE.decode())
    if len(parts) > 1:
        return end.join(part.strip() for part in parts)
    count, longest = len(cue.lines), max(map(len, map(_unmarked, cue.lines)), default=0)
    if longest <= LINE_CHARACTERS < len(_unmarked(text)):
        count = max(count, 2)
    return end.join(_balanced(text, count))


def _balanced(text: str, count: int) -> list[str]:
    """Return a text in so many lines of similar lengths at most; marks have no length."""
    blanks, lengths = _blanks(text)
    found, length = list[str](), len(_unmarked(text))
    at, done, first = 0, 0, 0  # where the next line begins, the characters before it, and the first blank in it
    for left in range(count, 1, -1):
        if first == len(blanks):
            break
        wanted = done + (length - done) / left
        place = bisect_left(lengths, wanted, first)
        if place == len(blanks) or (place > first and wanted - lengths[place - 1] <= lengths[place] - wanted):
            place -= 1
        found.append(text[at : blanks[place]])
        at, done, first = blanks[place] + 1, lengths[place] + 1, place + 1
    return [*found, text[at:]]


def _blanks(text: str) -> tuple[list[int], list[int]]:
    """Return the places of the blanks outside of marks, and the characters before each without marks.

    What a translation keeps is one word, with its blanks.
    """
    blanks, lengths = list[int](), list[int]()
    kept = {place for begin, end, _ in find_protected(text) for place in range(begin, end)}
    at, marked = 0, 0
    for mark in [*_MARK.finditer(text), None]:
        for part in _UNTAGGED.finditer(text, at, mark.start() if mark else len(text)):
            spaces = (part.start() + found.start() for found in re.finditer(" ", part[0])) if not part[1] else ()
            places = [place for place in spaces if place not in kept]
            blanks += places
            lengths += [place - marked for place in places]
        if mark:
            at, marked = mark.end(), marked + len(mark[0])
    return blanks, lengths


def _unmarked(text: str) -> str:
    return _MARK.sub("", text)
