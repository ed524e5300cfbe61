"""XLIFF, versions 1.2 and 2: the sources of units are translated into their targets.

A target that was written or approved before stays. All else in the file is copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from lingon.documents.bounds import (
    check_marks,
    check_size,
    check_tags,
)
from lingon.documents.document import Document
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import Inline, text_options
from lingon.documents.marks import marks_in
from lingon.documents.text_files.xliff_codes import ATTRIBUTES, has_content, local, nodes_of, text_of
from lingon.documents.xml_tree import Element, attributes_of, read_tree

_ADDRESS = "urn:oasis:names:tc:xliff:document:"
_VERSIONS = {f"{_ADDRESS}{version}": "1" for version in ("1.1", "1.2")} | {
    f"{_ADDRESS}{version}": "2" for version in ("2.0", "2.1", "2.2")
}
_KEPT = (*ATTRIBUTES, "version", "approved", "state", "target-language", "trgLang")
_UNITS = {"1": "trans-unit", "2": "segment"}
_OPEN_STATES = frozenset(["new", "needs-translation", "initial"])  # of a target that is still to be translated
_DONE_STATES = frozenset(["translated", "signed-off", "reviewed", "final"])
_MACHINE = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}  # of a target of version 1
_STATES = frozenset([b"state", b"state-qualifier", b"subState"])  # attributes of a target that a new state replaces


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit of version 1, or a segment of version 2; text: the element with the text to translate."""

    element: Element
    source: Element
    text: Element
    target: Element | None


@dataclass(frozen=True, slots=True)
class _Edit:
    """Bytes to write in the place of others."""

    begin: int
    end: int
    content: bytes


def read_xliff(content: bytes, target: str = "") -> Document:
    """Return an XLIFF file; raises UnreadableDocument. target: the language to translate to; empty if not known."""
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, _VERSIONS, _KEPT)
    version = root.name.rpartition(":")[0] or root.attributes.get("version", "")[:1]
    if local(root) != "xliff" or version not in _UNITS:
        raise UnreadableDocument("the file is not XLIFF of version 1.2 or 2")
    found = list(_units(root, _UNITS[version], translate=True))
    check_marks(sum(marks_in(unit.text.whole_text) for unit in found))
    texts = [(unit, Inline(nodes_of(unit.text, content))) for unit in found]
    texts = [(unit, inline) for unit, inline in texts if inline.text]

    def write(translations: Sequence[str]) -> bytes:
        edits = list(_languages(root, version, target)) if texts and target else []
        for (unit, inline), translation in zip(texts, translations, strict=True):
            text = text_of(inline.translated(translation))
            edits += _edits_of_unit(unit, text, content) if version == "1" else _edits_of_segment(unit, text, content)
        return _edited(content, edits)

    return Document([inline.text for _, inline in texts], text_options(), write)


def _units(element: Element, name: str, *, translate: bool) -> Iterator[_Unit]:
    """Yield the units of this name that are to be translated; translate: whether what is around them is."""
    translate = element.attributes.get("translate", "yes" if translate else "no") != "no"
    if local(element) != name:
        for child in filter(local, element.elements):
            yield from _units(child, name, translate=translate)
        return
    source, target = _child(element, "source"), _child(element, "target")
    if source is not None and translate and not _stays(element, target):
        text = _child(element, "seg-source") or source
        yield _Unit(element, source, text, target)


def _child(element: Element, name: str) -> Element | None:
    return next((each for each in element.elements if local(each) == name), None)


def _stays(unit: Element, target: Element | None) -> bool:
    """Whether a target was approved or written before."""
    state = unit.attributes.get("state") or (target.attributes.get("state") if target is not None else None)
    if unit.attributes.get("approved") == "yes" or state in _DONE_STATES:
        return True
    return target is not None and has_content(target) and state not in _OPEN_STATES


def _edits_of_unit(unit: _Unit, text: bytes, content: bytes) -> Iterator[_Edit]:
    yield _target(unit, text, content, _MACHINE)


def _edits_of_segment(unit: _Unit, text: bytes, content: bytes) -> Iterator[_Edit]:
    begin, end = unit.element.begin, unit.element.content
    yield _Edit(begin, end, _tag(content[begin:end], {"state": "translated"}))
    yield _target(unit, text, content, {})


def _target(unit: _Unit, text: bytes, content: bytes, attributes: Mapping[str, str]) -> _Edit:
    """Return the new target in the place of the old one, or after the source, indented as that is."""
    target, source = unit.target, unit.source
    if target is not None:
        tag = _tag(content[target.begin : target.content], attributes)
        return _Edit(target.begin, target.end, b"%s%s</%s>" % (tag, text, target.written))
    before = content[unit.element.content : source.begin]
    name = source.written.removesuffix(b"source") + b"target"
    written = b"%s%s%s</%s>" % (before[len(before.rstrip()) :], _tag(b"<%s>" % name, attributes), text, name)
    return _Edit(unit.text.end, unit.text.end, written)


def _tag(tag: bytes, attributes: Mapping[str, str]) -> bytes:
    """Return a start tag with another state."""
    found, at = list[bytes](), 0
    for each in attributes_of(tag, 0, len(tag)):
        if each.name in _STATES:
            found.append(tag[at : each.begin])
            at = each.end
    found.append(tag[at:].rstrip(b"/> \t\r\n"))
    return b"".join([*found, *(f" {name}={quoteattr(value)}".encode() for name, value in attributes.items()), b">"])


def _languages(root: Element, version: str, target: str) -> Iterator[_Edit]:
    """Yield what says the target language where nothing does."""
    places = [root] if version == "2" else [each for each in root.elements if local(each) == "file"]
    name = "trgLang" if version == "2" else "target-language"
    for place in places:
        if not place.attributes.get(name):
            at = place.begin + 1 + len(place.written)
            yield _Edit(at, at, f" {name}={quoteattr(target)}".encode())


def _edited(content: bytes, edits: Sequence[_Edit]) -> bytes:
    found, at = list[bytes](), 0
    for edit in sorted(edits, key=lambda edit: edit.begin):
        found += [content[at : edit.begin], edit.content]
        at = edit.end
    return b"".join([*found, content[at:]])
