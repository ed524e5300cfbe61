"""Translation memories (`.tmx`): a unit that lacks the target language gets it, from its source.

Pairs that exist stay. What is added says by its author `MT!` that it is a machine translation, as Trados does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingon.documents.document import Document, Edit, UnreadableDocument, check_marks, check_size, check_tags, edited
from lingon.documents.inline import marks_in, text_options
from lingon.documents.xliff_codes import ATTRIBUTES, CodedText, has_text
from lingon.documents.xml_texts import XmlTextFile, filled, indent_of, start_tag
from lingon.documents.xml_tree import Element, read_tree

_PREFIXES = {"http://www.w3.org/XML/1998/namespace": "xml", "http://www.lisa.org/tmx14": "tmx"}
_ATTRIBUTES = (*ATTRIBUTES, "xml:lang", "lang", "srclang")
ALL = "*all*"  # a source language: any of a unit may be the source
AUTHOR = "MT!"


@dataclass(frozen=True, slots=True)
class _UntranslatedUnit:
    """A unit without a text in the target language; target: its empty segment, None if the unit has none."""

    unit: Element
    variant: Element
    segment: Element
    target: Element | None
    text: CodedText


def is_memory(root: Element) -> bool:
    """Return whether a file of XML is a translation memory."""
    return _local(root) == "tmx"


def read_memory(content: bytes, target: str = "") -> Document:
    """Return a translation memory. Raises UnreadableDocument. target: the language to translate to."""
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, _PREFIXES, _ATTRIBUTES)
    if not is_memory(root):
        raise UnreadableDocument(f"the file is no translation memory: its root is {root.name[:40]}")
    if not target:
        raise UnreadableDocument(
            "a translation memory has several languages: give the target language, on the command line --target"
        )
    header = next((each for each in root.elements if _local(each) == "header"), root)
    notes: list[str] = []
    found = list(_units(root, header.attributes.get("srclang", ALL), target, notes))
    check_marks(sum(marks_in(segment.whole_text) for _, _, segment, _ in found))
    file, texts = XmlTextFile.of(content), list[str]()
    read = [_UntranslatedUnit(*each, CodedText(each[2], file, texts)) for each in found]
    waiting = [each for each in read if each.text.has_words]

    def write(translations: Sequence[str]) -> bytes:
        numbered = dict(enumerate(translations))
        parts = ((each, each.text.writing.whole(each.text.written(numbered), each.segment)) for each in waiting)
        return edited(content, [_edit(each, content, text, target) for each, text in parts])

    return Document(texts, text_options(), write, notes)


def _local(element: Element) -> str:
    return element.name.removeprefix("tmx:")


def _child(element: Element, name: str) -> Element | None:
    return next((each for each in element.elements if _local(each) == name), None)


def _units(
    root: Element, source: str, target: str, notes: list[str]
) -> Iterator[tuple[Element, Element, Element, Element | None]]:
    """Yield the units to translate, with the variant and the segment of the source and the empty one of the target.

    notes: those about units without a source are added
    """
    without = 0
    body = _child(root, "body")
    for unit in (each for each in (body.elements if body is not None else ()) if _local(each) == "tu"):
        wanted = unit.attributes.get("srclang", source)
        variants = [each for each in unit.elements if _local(each) == "tuv"]
        sources = [each for each in variants if wanted in (ALL, "") or _is_one(_language(each), wanted)]
        first = next((each for each in sources if not _is_one(_language(each), target)), None)
        segment = _child(first, "seg") if first is not None else None
        targets = [_child(each, "seg") for each in variants if _is_one(_language(each), target)]
        empty = next((each for each in targets if each is not None), None)
        if any(each is not None and has_text(each) for each in targets):
            continue
        if first is not None and segment is not None:
            yield unit, first, segment, empty
        else:
            without += 1
    if without:
        count = "1 unit has" if without == 1 else f"{without:,} units have"
        notes.append(f"{count} no text in the source language {source[:40]!r} and nothing was added")


def _language(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")


def _is_one(language: str, other: str) -> bool:
    """Return whether two tags name one language, or one of them a variety of the other."""
    short, long = sorted((language.lower().replace("_", "-"), other.lower().replace("_", "-")), key=len)
    return bool(short) and (long == short or long.startswith(f"{short}-"))


def _edit(waiting: _UntranslatedUnit, content: bytes, text: bytes, target: str) -> Edit[bytes]:
    """Return the edit that writes the translation of a unit: after its last variant, like the source."""
    if waiting.target is not None:
        return filled(waiting.target, content, text, {})
    unit, variant, segment = waiting.unit, waiting.variant, waiting.segment
    name = "xml:lang" if "xml:lang" in variant.attributes else "lang"
    start = start_tag(b"<%s>" % variant.written, {name: target, "creationid": AUTHOR})
    before = indent_of(segment, content, variant.content)
    after = content[segment.end : variant.content_end]
    after = after[len(after.rstrip()) :]
    tag = segment.written
    body = b"<%s>%s</%s>" % (tag, text, tag)
    last = [each for each in unit.elements if _local(each) == "tuv"][-1]
    indent = indent_of(variant, content, unit.content)
    return Edit(last.end, last.end, indent + start + before + body + after + b"</%s>" % variant.written)
