"""XLIFF, versions 1.2 and 2: the sources of units are translated into their targets.

A target that was written or approved before stays, and in one that is cut into segments each segment that has text. All
else in the file is copied byte for byte. Programs for translators have marks of their own in XLIFF 1.2: `.sdlxliff`
says of each segment what has become of it, and `.mxliff` and `.mqxliff` lock units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lingon.documents.document import Document, Edit, UnreadableDocument, check_marks, check_size, check_tags, edited
from lingon.documents.inline import marks_in, text_options
from lingon.documents.xliff_codes import ATTRIBUTES, CodedText, child_of, has_text, local, outside_segments, segments_of
from lingon.documents.xml_texts import XmlTextFile, filled, indent_of, notes_of_language, set_attribute, start_tag
from lingon.documents.xml_tree import Element, read_tree

# How long a translation may be, as XLIFF says it.
# Version 1.2 has `maxwidth`, of which characters and bytes can be counted and pixels cannot, and `maxbytes`. Version
# 2 has the module for restrictions of size, of which the profiles of the standard count code points and bytes of
# UTF-8.

_CHARACTERS = frozenset(["char", "glyph"])  # values of size-unit; without one it is pixel
NO_BOUND = -1


@dataclass(frozen=True, slots=True)
class Limit:
    """The most characters and bytes of a text; NO_BOUND: any number."""

    characters: int = NO_BOUND
    bytes: int = NO_BOUND

    def passed_by(self, text: str) -> str:
        """Return what passes the limit, in words, empty if nothing does."""
        size = len(text.encode(errors="surrogatepass"))
        if NO_BOUND < self.characters < len(text):
            return f"{len(text):,} characters, at most {self.characters:,}"
        return f"{size:,} bytes, at most {self.bytes:,}" if NO_BOUND < self.bytes < size else ""


NO_LIMIT = Limit()


def limit_of(attributes: Mapping[str, str], around: Limit) -> Limit:
    """Return the limit of an element with these attributes; around: that of the element around it."""
    found = around
    width, unit = _number(attributes.get("maxwidth", "")), attributes.get("size-unit", "pixel")
    if width != NO_BOUND and unit in _CHARACTERS:
        found = replace(found, characters=width)
    if width != NO_BOUND and unit == "byte":
        found = replace(found, bytes=width)
    if (size := _number(attributes.get("maxbytes", ""))) != NO_BOUND:
        found = replace(found, bytes=size)
    if (size := _number(attributes.get("slr:sizeRestriction", "").rpartition(",")[2])) != NO_BOUND:
        found = replace(found, characters=size)
    if (size := _number(attributes.get("slr:storageRestriction", "").rpartition(",")[2])) != NO_BOUND:
        found = replace(found, bytes=size)
    return found


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else NO_BOUND


def note_of_limits(passed: Sequence[str]) -> list[str]:
    """Return the line about translations that are too long; passed: what each has, in words."""
    if not passed:
        return []
    count = "1 translation is" if len(passed) == 1 else f"{len(passed):,} translations are"
    return [f"{count} longer than the file allows, and marked in it: {passed[0]}"]


_ADDRESS = "urn:oasis:names:tc:xliff:document:"
_PREFIXES = (
    {f"{_ADDRESS}{version}": "1" for version in ("1.1", "1.2")}
    | {f"{_ADDRESS}{version}": "2" for version in ("2.0", "2.1", "2.2")}
    | {
        "urn:oasis:names:tc:xliff:sizerestriction:2.0": "slr",
        "http://sdl.com/FileTypes/SdlXliff/1.0": "sdl",
        "http://www.memsource.com/mxlf/2.0": "m",
        "MQXliff": "mq",
    }
)
_LOCKS = ("locked", "m:locked", "mq:locked")
_LIMITS = ("maxwidth", "maxbytes", "size-unit", "slr:sizeRestriction", "slr:storageRestriction")
_OWN = ("version", "approved", "state", "target-language", "trgLang", "mid", "conf", *_LOCKS, *_LIMITS)
_TARGETS = {"1": "target-language", "2": "trgLang"}
_UNITS = {"1": "trans-unit", "2": "segment"}
_OPEN_STATES = frozenset(["new", "needs-translation", "initial"])  # of a target that is still to be translated
_DONE_STATES = frozenset(["translated", "signed-off", "reviewed", "final"])
_MACHINE = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}  # of a target of version 1
_TOO_LONG = {"1": {"state-qualifier": "rejected-length"}, "2": {"subState": "lingon:too-long"}}
_STATES = frozenset([b"state", b"state-qualifier", b"subState"])  # attributes of a target that a new state replaces
_DONE_IN_SDL = frozenset(["Translated", "ApprovedTranslation", "ApprovedSignOff"])
_MACHINE_IN_SDL = {"conf": "Draft", "origin": "mt"}
_NOT_LOCKED = frozenset(["", "false", "no", "0", "none"])


@dataclass(frozen=True, slots=True)
class _Around:
    """What elements around a unit say about it.

    unit: the unit, which has several segments in version 2
    has_states: whether targets of the file have states. In those of SDL the segments have them
    """

    version: str
    translate: bool = True
    limit: Limit = NO_LIMIT
    unit: Element | None = None
    has_states: bool = True


@dataclass(frozen=True, slots=True)
class _SegmentElements:
    """A segment of a unit of version 1; mark: in the source, target: in the target, said: what SDL says about it."""

    mark: Element
    text: CodedText
    target: Element | None
    said: Element | None


@dataclass(frozen=True, slots=True)
class _UnitElements:
    """A unit of version 1, or a segment of version 2.

    whole: the text to translate, if the unit is not cut into segments
    text: the element with the text to translate
    segments: those to translate
    kept: the text of the segments that stay
    """

    element: Element
    source: Element
    text: Element
    target: Element | None
    around: _Around
    whole: CodedText | None = None
    segments: Sequence[_SegmentElements] = ()
    kept: str = ""


def read_xliff(content: bytes, target: str = "") -> Document:
    """Return an XLIFF file. Raises UnreadableDocument. target: the language to translate to, empty if not known."""
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, _PREFIXES, (*ATTRIBUTES, *_OWN))
    version = root.name.rpartition(":")[0] or root.attributes.get("version", "")[:1]
    if local(root) != "xliff" or version not in _UNITS:
        raise UnreadableDocument("the file is not XLIFF of version 1.2 or 2")
    texts: list[str] = []
    said = [each.attributes.get(_TARGETS[version], "") for each in _named_elements(root, version)]
    others = [note for language in said for note in notes_of_language(language, target)][:1]
    start = content[root.begin : root.content]
    file = XmlTextFile.of(content, braces=b"memsource.com/mxlf" in start)
    around = _Around(version, has_states=b"SdlXliff" not in start)
    units = list(_units(root, around))
    check_marks(sum(marks_in(unit.text.whole_text) for unit in units))
    left = [unit for unit in units if _is_left(unit)]
    units = [found for unit in units if (found := _read(unit, file, texts)) is not None]
    others = [*(others if units else ()), *_note_of_left(left)]
    notes = list(others)

    def write(translations: Sequence[str]) -> bytes:
        edits = list(_languages(root, version, target, content)) if texts and target else []
        numbered = dict(enumerate(translations))
        too_long = _too_long(units, numbered)
        for unit in units:
            edits += _edits(unit, content, numbered, too_long=id(unit.around.unit) in too_long)
        if units:
            notes[:] = [*others, *note_of_limits(list(too_long.values()))]
        return edited(content, edits)

    return Document(texts, text_options(), write, notes)


def _units(element: Element, around: _Around) -> Iterator[_UnitElements]:
    """Yield the units that may be translated."""
    attributes = element.attributes
    translate = attributes.get("translate", "yes" if around.translate else "no") != "no"
    unit = element if local(element) in ("unit", "trans-unit") else around.unit
    around = replace(around, translate=translate, limit=limit_of(attributes, around.limit), unit=unit)
    if local(element) != _UNITS[around.version]:
        for child in filter(local, element.elements):
            yield from _units(child, around)
        return
    source, target = child_of(element, "source"), child_of(element, "target")
    if source is not None and translate and not _is_done(element, target):
        yield _UnitElements(element, source, child_of(element, "seg-source") or source, target, around)


def _is_done(unit: Element, target: Element | None) -> bool:
    """Return whether somebody has approved or locked a unit."""
    locked = any(unit.attributes.get(name, "").lower() not in _NOT_LOCKED for name in _LOCKS)
    return locked or unit.attributes.get("approved") == "yes" or _state(unit, target) in _DONE_STATES


def _state(unit: Element, target: Element | None) -> str:
    return unit.attributes.get("state") or (target.attributes.get("state", "") if target is not None else "")


def _read(unit: _UnitElements, file: XmlTextFile, texts: list[str]) -> _UnitElements | None:
    """Return a unit with what is to be translated in it, or None if that is nothing."""
    target, marks = unit.target, list(segments_of(unit.text))
    filled_before = target is not None and has_text(target)
    is_open = _state(unit.element, target) in _OPEN_STATES
    if marks and not outside_segments(unit.text):
        return _read_segments(unit, marks, file, texts, is_open=is_open)
    if filled_before and not is_open:
        return None
    whole = CodedText(unit.text, file, texts)
    return replace(unit, whole=whole) if whole.has_words else None


def _is_left(unit: _UnitElements) -> bool:
    """Return whether the target of a unit has empty segments beside others, and its source has none to fill them
    from.
    """
    target = unit.target
    if target is None or not has_text(target) or _state(unit.element, target) in _OPEN_STATES:
        return False
    is_cut = any(True for _ in segments_of(unit.text)) and not outside_segments(unit.text)
    return not is_cut and any(not has_text(each) for each in segments_of(target))


def _note_of_left(units: Sequence[_UnitElements]) -> list[str]:
    """Return the line about units whose empty segments stay."""
    if not units:
        return []
    name = units[0].element.attributes.get("id", "")[:40]
    count = "1 unit has" if len(units) == 1 else f"{len(units):,} units have"
    return [f"{count} empty segments, which stay as the source is not cut into segments; the first is {name!r}"]


def _read_segments(
    unit: _UnitElements, marks: Sequence[Element], file: XmlTextFile, texts: list[str], *, is_open: bool
) -> _UnitElements | None:
    """Return a unit with the segments that have no text in the target, or None if all have some.

    In a target that is still to be translated, one that repeats the source has none, and if all have one, none has.
    """
    targets = _by_number(segments_of(unit.target)) if unit.target is not None else {}
    if unit.target is not None and not targets and has_text(unit.target) and not is_open:
        return None
    said = _said(unit.element)
    waiting = list[tuple[Element, Element | None]]()
    kept = list[tuple[Element, Element]]()
    for mark in marks:
        number = mark.attributes.get("mid", "")
        target = targets.pop(number, None)  # once: a file may have many segments of one number
        if target is not None and has_text(target) and not (is_open and target.whole_text == mark.whole_text):
            kept.append((mark, target))
        elif not _is_done_in_sdl(said.get(number)):
            waiting.append((mark, target))
    if is_open and not waiting:
        waiting, kept = [*kept], []
    segments = list[_SegmentElements]()
    for mark, target in waiting:
        text = CodedText(mark, file, texts)
        if text.has_words:
            segments.append(_SegmentElements(mark, text, target, said.get(mark.attributes.get("mid", ""))))
    text_kept = "".join(target.whole_text for _, target in kept)
    return replace(unit, segments=segments, kept=text_kept) if segments else None


def _by_number(segments: Iterable[Element]) -> dict[str, Element]:
    return {each.attributes.get("mid", ""): each for each in segments}


def _said(unit: Element) -> dict[str, Element]:
    """Return what SDL says about the segments of a unit, by their numbers."""
    lists = (each for each in unit.elements if each.name == "sdl:seg-defs")
    return {each.attributes.get("id", ""): each for found in lists for each in found.elements if each.name == "sdl:seg"}


def _is_done_in_sdl(said: Element | None) -> bool:
    if said is None:
        return False
    return said.attributes.get("conf") in _DONE_IN_SDL or said.attributes.get("locked", "") not in _NOT_LOCKED


def _too_long(units: Sequence[_UnitElements], translations: Mapping[int, str]) -> dict[int, str]:
    """Return what passes the limits of units, in words, by the `id` of their elements."""
    limited = [unit for unit in units if unit.around.limit != NO_LIMIT]
    plain = {id(unit.element): _plain(unit, translations) for unit in limited}
    limits = {id(unit.around.unit): (unit.around.unit, unit.around.limit) for unit in limited}
    found = dict[int, str]()
    for unit, limit in limits.values():
        if unit is not None:
            segments = [unit] if id(unit) in plain else unit.elements
            passed = limit.passed_by("".join(plain.get(id(each), _text_of(each)) for each in segments))
            name = unit.attributes.get("id", "")[:40]
            found |= {id(unit): f"unit {name!r} has {passed}"} if passed else {}
    return found


def _text_of(segment: Element) -> str:
    """Return the text of a segment of version 2 that stays: that of its target or, without one, of its source."""
    text = child_of(segment, "target") or child_of(segment, "source")
    return text.whole_text if text is not None and local(segment) in ("segment", "ignorable") else ""


def _plain(unit: _UnitElements, translations: Mapping[int, str]) -> str:
    """Return the text of the target of a unit, without codes and blanks between segments."""
    if unit.whole is not None:
        return unit.whole.plain(translations)
    return unit.kept + "".join(each.text.plain(translations) for each in unit.segments)


def _edits(
    unit: _UnitElements, content: bytes, translations: Mapping[int, str], *, too_long: bool
) -> Iterator[Edit[bytes]]:
    """Yield the edits that write the translation of a unit."""
    element, target, version = unit.element, unit.target, unit.around.version
    marks = _TOO_LONG[version] if too_long else {}
    attributes = {**_MACHINE, **marks} if version == "1" and unit.around.has_states else {}
    if version == "2":
        tag = start_tag(content[element.begin : element.content], {"state": "translated", **marks}, _STATES)
        yield Edit(element.begin, element.content, tag)
    for segment in unit.segments:
        if segment.said is not None:
            yield _with(segment.said, content, _MACHINE_IN_SDL)
    if unit.segments and target is not None and _has_places(unit):
        yield from _filled_segments(unit, content, translations, attributes)
    elif target is not None:
        text = _content(unit, content, translations)
        tag = start_tag(content[target.begin : target.content], attributes, _STATES if attributes else frozenset())
        yield Edit(target.begin, target.end, b"%s%s</%s>" % (tag, text, target.written))
    else:
        name = unit.source.written.removesuffix(b"source") + b"target"
        indent = indent_of(unit.source, content, element.content)
        tag = start_tag(b"<%s>" % name, attributes)
        text = _content(unit, content, translations)
        yield Edit(unit.text.end, unit.text.end, b"%s%s%s</%s>" % (indent, tag, text, name))


def _has_places(unit: _UnitElements) -> bool:
    """Return whether the target of a unit has segments to fill."""
    return unit.target is not None and any(True for _ in segments_of(unit.target))


def _content(unit: _UnitElements, content: bytes, translations: Mapping[int, str]) -> bytes:
    """Return the content of a new target: that of the source with translations."""
    text = unit.text
    if unit.whole is not None:
        return unit.whole.writing.whole(unit.whole.written(translations), text)
    found, at = list[bytes](), text.content
    for each in unit.segments:
        writing = each.text.writing
        found += [content[at : writing.begin], each.text.written(translations)]
        at = writing.end
    return b"".join([*found, content[at : text.content_end]])


def _filled_segments(
    unit: _UnitElements, content: bytes, translations: Mapping[int, str], attributes: Mapping[str, str]
) -> Iterator[Edit[bytes]]:
    """Yield the edits that fill the segments of a target. One that it lacks comes after the one before it."""
    assert unit.target is not None
    target = unit.target
    if attributes:
        tag = start_tag(content[target.begin : target.content], attributes, _STATES)
        yield Edit(target.begin, target.content, tag)
    targets = _by_number(segments_of(target))
    written = {id(each.mark): each for each in unit.segments}
    at, blanks = target.content, 0
    for mark in segments_of(unit.text):
        position = targets.pop(mark.attributes.get("mid", ""), None)
        segment = written.get(id(mark))
        if segment is not None:
            text = segment.text.writing.whole(segment.text.written(translations), mark)
            if position is not None:
                yield filled(position, content, text, {})
            else:
                before = content[blanks : mark.begin] if blanks and not content[blanks : mark.begin].strip() else b""
                whole = content[mark.begin : mark.content] + text + content[mark.content_end : mark.end]
                yield Edit(at, at, before + whole)
        if position is not None:
            at = position.end
        blanks = mark.end


def _with(element: Element, content: bytes, attributes: Mapping[str, str]) -> Edit[bytes]:
    """Return the edit that sets attributes of an element, which may be empty."""
    old = content[element.begin : element.content]
    tag = start_tag(old, attributes)
    return Edit(element.begin, element.content, tag[:-1] + b"/>" if old.endswith(b"/>") else tag)


def _named_elements(root: Element, version: str) -> list[Element]:
    """Return the elements that may name the target language."""
    return [root] if version == "2" else [each for each in root.elements if local(each) == "file"]


def _languages(root: Element, version: str, target: str, content: bytes) -> Iterator[Edit[bytes]]:
    """Yield what says the target language where nothing does."""
    for element in _named_elements(root, version):
        if not element.attributes.get(_TARGETS[version]):
            yield set_attribute(element, content, _TARGETS[version], target)
