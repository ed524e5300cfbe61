"""Plurals of Apple (.stringsdict): the forms of a text are translated where they are.

A form that the target language has and the file lacks is added before the form `other`, with its translation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from lingon.documents.bounds import check_size, check_tags
from lingon.documents.document import Document, Edit
from lingon.documents.errors import UnreadableDocument
from lingon.documents.localisation.catalogues import SIGNS
from lingon.documents.localisation.edits import Entry, document_of, replacing
from lingon.documents.localisation.messages import Message
from lingon.documents.localisation.plurals import lacking
from lingon.documents.plurals import CATEGORIES
from lingon.documents.xml_tree import Element, read_tree

_PLURAL, _KIND = "NSStringPluralRuleType", "NSStringFormatSpecTypeKey"
_FORMAT = "NSStringLocalizedFormatKey"
_VARIANTS = ("NSStringVariableWidthRuleType", "NSStringDeviceSpecificRuleType")


@dataclass(frozen=True, slots=True)
class _Member:
    """A key of a dictionary, in the bytes of the file, and its value."""

    key: Element
    value: Element


def read_stringsdict(content: bytes, target: str = "") -> Document:
    """Return a .stringsdict file; raises UnreadableDocument.

    target: the language to translate to; empty if not known
    """
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, {}, ())
    top = root.child("dict")
    if root.name != "plist" or top is None:
        raise UnreadableDocument("the file is no property list: it lacks <plist> or <dict>")
    text = content.decode("latin-1")  # each character is a byte, as the places of elements are those of bytes
    entries = (entry for each in _members(top) for entry in _forms_of(each.value, "", text, target))
    return document_of(text, entries, lambda written, _: written.encode("latin-1"))


def _members(dictionary: Element) -> list[_Member]:
    """Return the members of a dictionary."""
    elements = list(dictionary.elements)
    keys, values = elements[::2], elements[1::2]
    if len(keys) != len(values) or any(each.name != "key" for each in keys):
        raise UnreadableDocument("the property list in the file has a key without a value")
    return [_Member(key, value) for key, value in zip(keys, values, strict=True)]


def _forms_of(value: Element, name: str, text: str, target: str) -> Iterator[Entry]:
    """Yield the texts of a value; name: the key of the dictionary that it is in, if that says what it is."""
    if value.name != "dict":
        return
    members = _members(value)
    strings = {each.key.text: each for each in members if each.value.name == "string"}
    is_plural = _KIND in strings
    added = lacking(tuple(strings), target) if is_plural and target and "other" in strings else []
    for member in members:
        key = member.key.text
        if member.value.name == "dict":
            yield from _forms_of(member.value, key, text, target)
        elif key == _FORMAT or name in _VARIANTS or (is_plural and key in CATEGORIES):
            yield _entry(member, added if key == "other" else (), text)


def _entry(member: _Member, added: Sequence[str], text: str) -> Entry:
    """Return a text; added: forms to put before it with its translation."""
    value, key = member.value, member.key
    message = Message(value.text, SIGNS)
    changed = replacing(message, value.content, value.content_end, value.text, _written)
    if not added:
        return changed
    blanks = text[text.rindex(">", 0, key.begin) + 1 : key.begin]

    def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
        for form in added:
            string = f"<string>{_written(translations[0])}</string>"
            yield Edit(key.begin, key.begin, f"<key>{form}</key>{text[key.end : value.begin]}{string}{blanks}")
        yield from changed.edits(translations)

    return Entry([message], edits, always=True)


def _written(text: str) -> str:
    """Return the bytes of a text in the file, each as a character."""
    return escape(text).encode().decode("latin-1")
