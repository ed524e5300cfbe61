"""The input of `lingon live`: WebVTT, SubRip, lines of JSON or plain text as they arrive, as the steps of a speaker."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import Any

from lingon.client.live import split_words
from lingon.client.results import LiveWord
from lingon.errors import LingonError

Span = tuple[int, int]


class Written(StrEnum):
    """How the input is written."""

    VTT = "vtt"
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Said:
    """Words of the input; first: the number of the first one, for a revision, or None to append them."""

    words: tuple[LiveWord, ...]
    first: int | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """A pause that the input names."""


Step = Said | Paused


def timed_words(words: Iterable[str], span: Span | None) -> tuple[LiveWord, ...]:
    """Return words with their times: each has the part of the span that its characters have.

    span: begin and end in milliseconds, or None if they are not known
    """
    several = list(words)
    if span is None:
        return tuple(map(LiveWord, several))
    (begin, end), found, passed = span, list[LiveWord](), 0
    characters = sum(map(len, several))
    for word in several:
        first = begin + (end - begin) * passed // characters
        passed += len(word)
        found.append(LiveWord(word, first, begin + (end - begin) * passed // characters))
    return tuple(found)


def steps_of(lines: Iterable[str], written: Written | None, language: str) -> Iterator[Step]:
    """Yield the steps of a speaker as its lines arrive. Raises LingonError, which names the line.

    written: None: the first line that is not blank tells it, and after a number the one behind it
    language: BCP-47, of the words
    """
    readers = {Written.VTT: _vtt_steps, Written.JSON: _json_steps, Written.TEXT: _text_steps}
    numbered = _numbered(lines)
    head = list(islice(numbered, 1))
    if written is None and head and head[0][1].strip().isdecimal():
        head += islice(numbered, 1)  # the number of a cue of SubRip has the times of the cue behind it
    if head:
        yield from readers[written or _kind_of(head)](chain(head, numbered), language)


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, without a byte order mark and blank lines before the first one."""
    begun = False
    for number, line in enumerate(lines, 1):
        text = line if begun else line.removeprefix("\ufeff")
        begun = begun or bool(text.strip())
        if begun:
            yield number, text


def _kind_of(head: list[tuple[int, str]]) -> Written:
    """Return how an input is written; head: its first line, and the next one if the first is a number."""
    (_, first), (_, last) = head[0], head[-1]
    if first.startswith("WEBVTT") or _TIMES.fullmatch(last.rstrip("\r\n")):
        return Written.VTT
    return Written.JSON if first.lstrip().startswith("{") else Written.TEXT


MOST_CHARACTERS = 64  # of a word, as a server has it


def _words(text: str, language: str) -> list[str]:
    """Return the words of a text. What a server refuses as too long, such as an address, becomes several."""
    return [
        word[begin : begin + MOST_CHARACTERS]
        for word in split_words(text, language)
        for begin in range(0, len(word), MOST_CHARACTERS)
    ]


def _text_steps(lines: Iterable[tuple[int, str]], language: str) -> Iterator[Step]:
    for _, line in lines:
        if words := _words(line, language):
            yield Said(timed_words(words, None))


def _json_steps(lines: Iterable[tuple[int, str]], language: str) -> Iterator[Step]:
    for number, line in lines:
        if line.strip():
            yield _json_step(number, line, language)


KEYS = {"text", "begin_ms", "end_ms", "words", "from", "pause"}


def _json_step(number: int, line: str, language: str) -> Step:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise LingonError(f"line {number} is no JSON: {error}") from None
    if not isinstance(found, dict) or not found or found.keys() - KEYS:
        raise LingonError(f"line {number}: an object has fields of {', '.join(sorted(KEYS))}, got {_shown(line)}")
    if "pause" in found:
        if found != {"pause": True}:
            raise LingonError(f'line {number}: a pause is {{"pause": true}} alone, got {_shown(line)}')
        return Paused()
    rest = found.keys() - {"from"}
    if rest and rest != {"words"} and not {"text"} <= rest <= {"text", "begin_ms", "end_ms"}:
        raise LingonError(f"line {number}: an object must have either text or words, got {_shown(line)}")
    first = _number(number, found, "from")
    given = found.get("words", [found] if "text" in found else [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise LingonError(f"line {number}: words must be a list of objects with text")
    words = [word for each in given for word in _json_words(number, each, language)]
    return Said(tuple(words), first)


def _shown(line: str) -> str:
    return line.strip()[:60]


def _json_words(number: int, found: dict[str, Any], language: str) -> tuple[LiveWord, ...]:
    text = found.get("text")
    if not isinstance(text, str):
        raise LingonError(f"line {number}: text must be a string, got {json.dumps(text)[:40]}")
    begin, end = _number(number, found, "begin_ms"), _number(number, found, "end_ms")
    if (begin is None) != (end is None):
        raise LingonError(f"line {number}: begin_ms and end_ms must be given together, got {json.dumps(found)[:60]}")
    span = None if begin is None or end is None else (begin, max(begin, end))
    return timed_words(_words(text, language), span)


def _number(number: int, found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (type(value) is not int or not 0 <= value < 2**32):
        raise LingonError(f"line {number}: {name} must be a whole number below 2^32, got {json.dumps(value)[:40]}")
    return value


_TIME = re.compile(r"(?:(\d+):)?([0-5]\d):([0-5]\d)[.,](\d{3})")
_TIMES = re.compile(rf"\s*({_TIME.pattern})\s+-->\s+({_TIME.pattern})(?:\s.*)?")
_INNER_TIME = re.compile(rf"<({_TIME.pattern})>")
_TAG = re.compile(r"<[^>]*>")


def _milliseconds(written: str) -> int:
    found = _TIME.fullmatch(written)
    assert found is not None
    hours, minutes, seconds, rest = (int(each or 0) for each in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest


def _vtt_steps(lines: Iterable[tuple[int, str]], language: str) -> Iterator[Step]:
    """Yield the words of each cue when the line after it has arrived. Blocks of styles and notes have no words.

    SubRip has a comma in its times and no line WEBVTT; the rest that is read here is the same.
    """
    span: Span | None = None
    text, rolled = list[str](), _RolledUp()
    for number, line in chain(lines, [(0, "")]):  # an end inside a cue is the end of the cue
        content = line.rstrip("\r\n")
        if content and "-->" not in content:
            text.append(content)  # of no cue, if it has no times
            continue
        if span is not None and (words := _cue_words(" ".join(rolled.new_lines(text, span)), span, language)):
            yield Said(words)
        span, text = _span(number, content) if content else None, []


ROLL_MS = 50  # milliseconds between two cues that show one line


class _RolledUp:
    """The lines of cues that show the last line of the cue before them again, above their own.

    Captions of television and of automatic recognition roll up: each cue has two lines, and each line is in two cues.
    """

    def __init__(self) -> None:
        self._line, self._end = "", -ROLL_MS  # of the cue before

    def new_lines(self, text: list[str], span: Span) -> list[str]:
        """Return the lines of a cue without the one that the cue before it has shown; text: with tags."""
        shown = [_TAG.sub("", line).strip() for line in text]
        is_rolled = len(text) > 1 and shown[0] == self._line and span[0] - self._end <= ROLL_MS
        self._line, self._end = next((line for line in reversed(shown) if line), ""), span[1]
        return text[is_rolled:]


def _span(number: int, line: str) -> Span:
    found = _TIMES.fullmatch(line)
    if found is None:
        raise LingonError(f"line {number}: a cue begins with 00:00:00.000 --> 00:00:02.000, got {line.strip()[:60]!r}")
    begin, end = _milliseconds(found[1]), _milliseconds(found[6])
    return begin, max(begin, end)


def _cue_words(text: str, span: Span, language: str) -> tuple[LiveWord, ...]:
    """Return the words of a cue. Times inside its text divide it."""
    parts, found = _INNER_TIME.split(text), list[LiveWord]()
    step = 1 + _INNER_TIME.groups  # a part of text, and the groups of the time after it
    texts, times = parts[::step], [_milliseconds(each) for each in parts[1::step]]
    ends = [*times, span[1]]
    for part, begin, end in zip(texts, [span[0], *times], ends, strict=True):
        found += timed_words(_words(html.unescape(_TAG.sub("", part)), language), (begin, max(begin, end)))
    return tuple(found)
