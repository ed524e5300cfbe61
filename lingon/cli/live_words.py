"""The input of `lingon live`: WebVTT, lines of JSON or plain text as they arrive, as the steps of a speaker."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
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

    written: None: the first line that is not blank tells it
    language: BCP-47, of the words
    """
    readers = {Written.VTT: _vtt_steps, Written.JSON: _json_steps, Written.TEXT: _text_steps}
    numbered = enumerate(lines, 1)
    for number, line in numbered:
        line = line.removeprefix("\ufeff")
        if line.strip():
            yield from readers[written or _kind_of(line)](_with_first(number, line, numbered), language)
            return


def _kind_of(line: str) -> Written:
    if line.startswith("WEBVTT"):
        return Written.VTT
    return Written.JSON if line.lstrip().startswith("{") else Written.TEXT


def _with_first(number: int, line: str, rest: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield number, line
    yield from rest


def _text_steps(lines: Iterable[tuple[int, str]], language: str) -> Iterator[Step]:
    for _, line in lines:
        if words := split_words(line, language):
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
        raise LingonError(f"line {number}: an object must have of {', '.join(sorted(KEYS))}, got {line.strip()[:60]}")
    if found.get("pause"):
        return Paused()
    first = _number(number, found, "from")
    given = found.get("words", [found] if "text" in found else [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise LingonError(f"line {number}: words must be a list of objects with text")
    words = [word for each in given for word in _json_words(number, each, language)]
    return Said(tuple(words), first)


def _json_words(number: int, found: dict[str, Any], language: str) -> tuple[LiveWord, ...]:
    text = found.get("text")
    if not isinstance(text, str):
        raise LingonError(f"line {number}: text must be a string, got {json.dumps(text)[:40]}")
    begin, end = _number(number, found, "begin_ms"), _number(number, found, "end_ms")
    span = None if begin is None or end is None else (begin, max(begin, end))
    return timed_words(split_words(text, language), span)


def _number(number: int, found: dict[str, Any], name: str) -> int | None:
    value = found.get(name)
    if value is not None and (type(value) is not int or not 0 <= value < 2**32):
        raise LingonError(f"line {number}: {name} must be a whole number below 2^32, got {json.dumps(value)[:40]}")
    return value


_TIME = re.compile(r"(?:(\d+):)?([0-5]\d):([0-5]\d)\.(\d{3})")
_TIMES = re.compile(rf"\s*({_TIME.pattern})\s+-->\s+({_TIME.pattern})(?:\s.*)?")
_INNER_TIME = re.compile(rf"<({_TIME.pattern})>")
_TAG = re.compile(r"<[^>]*>")


def _milliseconds(written: str) -> int:
    found = _TIME.fullmatch(written)
    assert found is not None
    hours, minutes, seconds, rest = (int(each or 0) for each in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest


def _vtt_steps(lines: Iterable[tuple[int, str]], language: str) -> Iterator[Step]:
    """Yield the words of each cue when the line after it has arrived. Blocks of styles and notes have no words."""
    span: Span | None = None
    text: list[str] = []
    for number, line in lines:
        if "-->" in line:
            span, text = _span(number, line), []
        elif line.strip():
            if span is not None:
                text.append(line)
        elif span is not None:
            yield Said(_cue_words(" ".join(text), span, language))
            span = None
    if span is not None:
        yield Said(_cue_words(" ".join(text), span, language))


def _span(number: int, line: str) -> Span:
    found = _TIMES.fullmatch(line.rstrip("\r\n"))
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
        found += timed_words(split_words(html.unescape(_TAG.sub("", part)), language), (begin, max(begin, end)))
    return tuple(found)
