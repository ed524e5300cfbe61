"""Subtitles (SubRip and WebVTT): numbers, times, settings, notes and all else but the texts of cues are copied.

The text of a cue ends where the next cue begins, or a note, a style or a region of WebVTT: some programs leave blank
lines inside of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lingon.documents.bounds import check_marks, check_size
from lingon.documents.document import Document
from lingon.documents.encodings import UTF_8, Encoding, read_encoded
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import text_options
from lingon.documents.marks import named_tag
from lingon.documents.text_files.cues import PATH, Cue, Syntax, groups_of, replaced

_START = r"(?:\d{1,4}:)?\d\d:\d\d[,.]\d{1,3}[ \t]*+-->"
_TIME = r"(?:(\d{1,4}):)?(\d\d):(\d\d)[,.](\d{1,3})"
_HEAD = re.compile(rf"{_TIME}[ \t]*+-->[ \t]*+{_TIME}")
_BEGIN = re.compile(rf"[ \t]*+{_START}|[^\r\n]*?\d[ \t]*+-->[ \t]*+\d")  # of a line that is no text, in any form
_NUMBER = re.compile(r"[ \t]*+\d++[ \t]*+")
_LINE = re.compile(r"([^\r\n]*+)(\r\n|\r|\n|\Z)")
_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION)(?![^ \t])")  # begins what is no cue, in WebVTT
_TAGS = re.compile(r"</?[A-Za-z][^<>\x00\x01]*+>|<[\d:.]++>|\{\\[^{}\x00\x01]*+\}|[\u266a\u266b]++")
_OVERRIDE = re.compile(r"\{\\([ibus])([01])\}")  # of other kinds of subtitles, which programs leave in these


def override(tag: str) -> tuple[str, bool] | None:
    """Return what the start and the end of a format have in common, such as a letter; None for another tag."""
    found = _OVERRIDE.fullmatch(tag)
    return (f"\\{found[1]}", found[2] == "1") if found else None


def _pair(tag: str) -> tuple[str, bool] | None:
    return named_tag(tag) or override(tag)


_BREAKS, _HARD_BLANK = re.compile(r"\r\n|\r|\n|\\N"), re.compile(rf"{PATH}|\\h")
_SUBRIP = Syntax(_TAGS, _BREAKS, _pair, blank=_HARD_BLANK)
_WEB = Syntax(_TAGS, _BREAKS, _pair, voice=re.compile(r"<v\b"), blank=_HARD_BLANK, references=True)


def read_subtitles(content: bytes) -> Document:
    """Return subtitles; raises UnreadableDocument."""
    check_size(len(content), "the file has")
    text, encoding = read_encoded(content)
    check_marks(sum(map(text.count, "<{\r\n")))
    web = text.startswith("WEBVTT")
    cues = _cues(text, web=web)
    if not cues and not web and text.strip():
        raise UnreadableDocument("the file has no subtitles")
    groups = groups_of(cues, _WEB if web else _SUBRIP, "\r\n" if "\r\n" in text else "\n")
    notes = list[str]()

    def write(translations: Sequence[str]) -> bytes:
        written = replaced(text, groups, translations)
        if web and not encoding.is_utf_8:
            notes.append(f"the file is in {encoding.name}; its translation is in UTF-8, as WebVTT demands")
            return Encoding(UTF_8).written(written, notes)
        return encoding.written(written, notes)

    return Document([group.inline.text for group in groups], text_options(), write, notes)


def _cues(text: str, *, web: bool) -> list[Cue]:
    found: list[Cue] = []
    lines = [line for line in _LINE.finditer(text) if line[0]]
    last = 0  # line after the text of the cue before
    for number, line in enumerate(lines):
        head = _HEAD.search(line[1]) if number >= last and line[2] else None
        if head is None:
            continue
        last = number + 1
        while last < len(lines) and not _ends(lines, last, web=web):
            last += 1
        begin, end = line.end(), lines[last - 1].end()
        start, stop = _seconds(*head.groups()[:4]), _seconds(*head.groups()[4:])
        content = text[begin:end].rstrip()
        found.append(Cue(content, begin, begin + len(content), start, stop))
    return found


def _ends(lines: Sequence[re.Match[str]], number: int, *, web: bool) -> bool:
    """Whether the text of a cue ends before a line: at the number, the name or the times of another one, or a note."""
    line = lines[number][1]
    if _BEGIN.match(line):
        return True
    after_blank = not lines[number - 1][1].strip()
    if web and after_blank and _BLOCK.match(line):
        return True
    named = bool(_NUMBER.fullmatch(line)) or (web and after_blank and bool(line.strip()))
    return named and number + 1 < len(lines) and bool(_BEGIN.match(lines[number + 1][1]))


def _seconds(hours: str, minutes: str, seconds: str, parts: str) -> float:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + int(parts.ljust(3, "0")) / 1000
