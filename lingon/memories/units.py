"""Translated units of XML files, read as they come: translation memories (TMX 1.4b) and XLIFF 1.2 and 2.

Codes inside a text stand for tags and placeholders of the document that it is from. A code of a placeholder, such as
{0} or %s, is kept as text, as programs write it in their texts. A code of markup is left out with all that is in it,
because the tags of another document cannot be placed by it. Marks around words, such as <g>, <pc>, <hi> and <mrk>, are
left out and their words stay.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO
from xml.parsers import expat

from lingon.documents.document import UnreadableDocument
from lingon.documents.xml_tree import MOST_TAG_BYTES, guarded_parser
from lingon.errors import LingonError
from lingon.memories.segment import MOST_TEXT

ANY = "*all*"  # a source language of TMX: any
MOST_DEPTH = 64  # of elements inside each other
_MOST_RAW = 64 * MOST_TEXT  # characters of a text with its codes
_FED = 1 << 16  # bytes that the parser gets at once
_CODES = frozenset(["bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sc", "ec", "cp", "sm", "em"])
_SHOWN = ("equiv-text", "equiv", "disp")  # attributes of XLIFF that say what a code stands for
_MARKUP = re.compile(r"\s*[<&\\]|\s*\Z")
_BEFORE = frozenset(["x-context-pre", "prev"])  # of memoQ and Trados, and of OmegaT
_AFTER = frozenset(["x-context-post", "next"])
_TAGS = re.compile(r"<[^<>]*>")
_TIME = re.compile(r"(\d{4})-?(\d\d)-?(\d\d)T(\d\d):?(\d\d):?(\d\d)(?:\.\d+)?Z?")
_OPEN_STATES = frozenset(["new", "needs-translation", "initial"])


class UnitError(LingonError):
    """A file of units cannot be read. The message has the line, but not the name of the file."""


@dataclass(slots=True)
class Variant:
    """The text of a unit in one language; changed: milliseconds since 1970, 0 if the file does not say it."""

    language: str
    text: str = ""
    origin: str = ""
    changed: int = 0


@dataclass(slots=True)
class Unit:
    """A text in several languages.

    number: of the unit in its file, from 1
    source_language: as the file says it; may be empty or ANY
    before, after: the texts around it, empty if the file does not have them
    """

    number: int
    source_language: str = ""
    variants: list[Variant] = field(default_factory=list)
    before: str = ""
    after: str = ""


def read_units(file: IO[bytes]) -> Iterator[Unit]:
    """Yield the units of a file that have texts. A file of any size takes little memory. Raises UnitError.

    No entity is expanded and no other file is loaded.
    """
    reader, fed = _Reader(), 0
    parser = reader.parser
    try:
        while piece := file.read(_FED):
            parser.Parse(piece, False)
            fed += len(piece)
            if fed - max(parser.CurrentByteIndex, 0) > MOST_TAG_BYTES + _FED:
                raise UnitError(f"a tag or comment has more than {MOST_TAG_BYTES:,} bytes")
            yield from reader.taken()
        parser.Parse(b"", True)
        yield from reader.taken()
    except expat.ExpatError as error:
        raise UnitError(f"line {error.lineno}, column {error.offset + 1}: the XML is not well-formed") from None
    except (LookupError, ValueError):  # of the parser: Python does not know the encoding, or cannot use it
        raise UnitError("line 1: the file is in an encoding that is not read; save it as UTF-8") from None
    except UnreadableDocument as error:
        raise UnitError(f"line {parser.CurrentLineNumber}: {error}") from None
    except UnitError as error:
        raise UnitError(f"line {parser.CurrentLineNumber}: {error}") from None
    finally:
        del reader.parser  # its handlers refer to the reader, and both would stay until the next collection


class _Capture:
    """The text of an element, without the codes in it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._inner: list[str] = []  # elements that are open in it
        self._code = -1  # how many were open before the code that the parser is in
        self._code_text: list[str] = []
        self._marks: list[tuple[int, str, int]] = []  # segments that are open: elements, number, parts before
        self.segments: dict[str, str] = {}  # of XLIFF 1.2, by their numbers

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Take the start of an element in it."""
        if self._code < 0 and name in _CODES:
            self._code = len(self._inner)
            shown = next((attributes[each] for each in _SHOWN if each in attributes), "")
            self._code_text = [shown]
        elif name == "mrk" and attributes.get("mtype") == "seg":
            self._marks.append((len(self._inner), attributes.get("mid", ""), len(self._parts)))
        self._inner.append(name)

    def end(self) -> None:
        """Take the end of an element in it."""
        self._inner.pop()
        if self._code == len(self._inner):
            text, self._code = "".join(self._code_text), -1
            if not _MARKUP.match(text):
                self._parts.append(text)
        if self._marks and self._marks[-1][0] == len(self._inner):
            _, number, first = self._marks.pop()
            self.segments[number] = "".join(self._parts[first:])

    def add(self, text: str) -> None:
        """Take text. Raises UnitError if there is too much."""
        self._size += len(text)
        if self._size > _MOST_RAW:
            raise UnitError(f"a text has more than {_MOST_RAW:,} characters with its codes")
        (self._parts if self._code < 0 else self._code_text).append(text)

    @property
    def is_inside(self) -> bool:
        """Whether an element in it is open."""
        return bool(self._inner)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)


class _Reader:
    """A reader of the events of a parser, which makes units of them."""

    def __init__(self) -> None:
        self.parser = guarded_parser()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add
        self._path: list[str] = []
        self._capture: _Capture | None = None
        self._kept: Callable[[_Capture], None] = _drop
        self._format: _Tmx | _Xliff | None = None
        self._done: list[Unit] = []  # which the format adds to

    def taken(self) -> list[Unit]:
        """Return the units that are complete, once each."""
        found = self._done[:]
        self._done.clear()
        return found

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if self._capture is not None:
            self._capture.start(local, attributes)
            return
        if self._format is None:
            self._format = _format_of(local, self._done)
        if len(self._path) >= MOST_DEPTH:
            raise UnitError(f"an element is in more than {MOST_DEPTH} others")
        self._path.append(local)
        own = {each.rpartition(" ")[2]: value for each, value in attributes.items()}
        if (keep := self._format.start(self._path, own)) is not None:
            self._capture, self._kept = _Capture(), keep

    def _end(self, _: str) -> None:
        if self._capture is not None:
            if self._capture.is_inside:
                self._capture.end()
                return
            self._kept(self._capture)
            self._capture = None
        assert self._format is not None
        self._format.end(self._path.pop())

    def _add(self, text: str) -> None:
        if self._capture is not None:
            self._capture.add(text)


def _drop(_: _Capture) -> None:
    """Keep nothing."""


def _format_of(root: str, done: list[Unit]) -> _Tmx | _Xliff:
    if root == "tmx":
        return _Tmx(done)
    if root == "xliff":
        return _Xliff(done)
    raise UnitError(f"the file is no translation memory: its root is {root[:40]}, not tmx or xliff")


class _Tmx:
    """The elements of TMX 1.4b: a unit has a variant for each language, with one segment."""

    def __init__(self, done: list[Unit]) -> None:
        self._done, self._count, self._source_language = done, 0, ANY
        self._unit = Unit(0)
        self._attributes: Mapping[str, str] = {}

    def start(self, path: Sequence[str], attributes: Mapping[str, str]) -> Callable[[_Capture], None] | None:
        """Take the start of the last element of a path. Returns what keeps its text, or None if that is not read."""
        match path[-1]:
            case "header":
                self._source_language = attributes.get("srclang", ANY)
            case "tu":
                self._count += 1
                self._attributes = attributes
                self._unit = Unit(self._count, attributes.get("srclang", self._source_language))
            case "tuv":
                self._unit.variants.append(
                    Variant(attributes.get("lang", ""), "", *_said(attributes, self._attributes))
                )
            case "seg" if path[-2:-1] == ["tuv"]:
                return self._keep_text
            case "prop" if attributes.get("type") in _BEFORE:
                return self._keep_before
            case "prop" if attributes.get("type") in _AFTER:
                return self._keep_after
        return None

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if name == "tu" and any(each.text for each in self._unit.variants):
            self._done.append(self._unit)

    def _keep_text(self, capture: _Capture) -> None:
        self._unit.variants[-1].text = capture.text.strip()

    def _keep_before(self, capture: _Capture) -> None:
        self._unit.before = _plain(capture.text)

    def _keep_after(self, capture: _Capture) -> None:
        self._unit.after = _plain(capture.text)


def _plain(text: str) -> str:
    """Return the text of a property, in which programs write a segment with its tags."""
    return html.unescape(_TAGS.sub("", text)).strip() if "<seg" in text else text.strip()


def _said(variant: Mapping[str, str], unit: Mapping[str, str]) -> tuple[str, int]:
    """Return who made the text of a variant, and when."""
    names = [each.get(name, "") for each in (variant, unit) for name in ("changeid", "creationid")]
    times = [each.get(name, "") for each in (variant, unit) for name in ("changedate", "creationdate")]
    return next(filter(None, names), ""), next(filter(None, map(milliseconds, times)), 0)


def milliseconds(time: str) -> int:
    """Return a time of TMX, such as 20261130T120000Z, in milliseconds since 1970, or 0 for what is none."""
    found = _TIME.fullmatch(time.strip())
    try:
        return int(datetime(*map(int, found.groups()), tzinfo=UTC).timestamp() * 1000) if found else 0  # type: ignore[misc, arg-type]
    except ValueError:
        return 0


class _Xliff:
    """The elements of XLIFF: a unit has a source and a target, which in version 1.2 may be cut into segments.

    The neighbours of a unit are the units around it in its file.
    """

    def __init__(self, done: list[Unit]) -> None:
        self._done, self._count = done, 0
        self._source_language = self._target_language = self._origin = ""
        self._source, self._segments, self._target = _Capture(), _Capture(), _Capture()
        self._state = ""
        self._before = ""
        self._waiting: Unit | None = None  # the last unit, until the one after it is read

    def start(self, path: Sequence[str], attributes: Mapping[str, str]) -> Callable[[_Capture], None] | None:
        """See `_Tmx.start`."""
        name, inside = path[-1], path[-2] if len(path) > 1 else ""
        if name in ("xliff", "file"):
            self._source_language = _first(attributes, self._source_language, "source-language", "srcLang")
            self._target_language = _first(attributes, self._target_language, "target-language", "trgLang")
            self._origin = _first(attributes, self._origin, "original")
        elif name in ("trans-unit", "segment"):
            self._source, self._segments, self._target = _Capture(), _Capture(), _Capture()
            self._state = attributes.get("state", "")
        elif inside in ("trans-unit", "segment") and name in ("source", "seg-source", "target"):
            if name == "target":
                self._state = self._state or attributes.get("state", "")
            return {"source": self._keep_source, "seg-source": self._keep_segments, "target": self._keep_target}[name]
        return None

    def end(self, name: str) -> None:
        """Take the end of an element."""
        if name in ("trans-unit", "segment"):
            segments, targets = self._segments.segments, self._target.segments
            if segments and targets:
                for number, source in segments.items():
                    self._add(source, targets.get(number, ""))
            else:
                self._add(self._source.text, self._target.text)
        elif name in ("file", "xliff"):
            self._release("")
            self._before = ""

    def _add(self, source: str, target: str) -> None:
        source, target = source.strip(), target.strip()
        if not source:
            return
        self._release(source)
        if target and self._state not in _OPEN_STATES:
            self._count += 1
            variants = [
                Variant(self._source_language, source, self._origin),
                Variant(self._target_language, target, self._origin),
            ]
            self._waiting = Unit(self._count, self._source_language, variants, self._before)
        self._before = source

    def _release(self, after: str) -> None:
        if self._waiting is not None:
            self._waiting.after = after
            self._done.append(self._waiting)
            self._waiting = None

    def _keep_source(self, capture: _Capture) -> None:
        self._source = capture

    def _keep_segments(self, capture: _Capture) -> None:
        self._segments = capture

    def _keep_target(self, capture: _Capture) -> None:
        self._target = capture


def _first(attributes: Mapping[str, str], otherwise: str, *names: str) -> str:
    return next((attributes[name] for name in names if name in attributes), otherwise)
