"""The edits of a file of XML that set the attributes and the content of an element."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

from lingon.documents.document import Edit
from lingon.documents.xml_tree import Element, attributes_of


def start_tag(tag: bytes, attributes: Mapping[str, str], removed: frozenset[bytes] = frozenset()) -> bytes:
    """Return a start tag, which is not empty, with these attributes at its end.

    tag: a start tag, also an empty one
    removed: the names of attributes to leave out, beside those that are set
    """
    names = removed | {name.encode() for name in attributes}
    found, at = list[bytes](), 0
    for each in attributes_of(tag, 0, len(tag)):
        if each.name in names:
            found.append(tag[at : each.begin])
            at = each.end
    found.append(tag[at:].rstrip(b"/> \t\r\n"))
    return b"".join([*found, *(_written(name, value) for name, value in attributes.items()), b">"])


def set_attribute(element: Element, content: bytes, name: str, value: str) -> Edit[bytes]:
    """Return the edit that sets an attribute of an element: in its place, or as the first one."""
    for each in attributes_of(content, element.begin, element.content):
        if each.name == name.encode():
            quoted = quoteattr(value).encode()
            return Edit(each.end - len(each.value) - 2, each.end, quoted)
    at = element.begin + 1 + len(element.written)
    return Edit(at, at, _written(name, value))


def indent_of(element: Element, content: bytes, begin: int) -> bytes:
    """Return the blanks before an element; begin: of what is before it."""
    before = content[begin : element.begin]
    return before[len(before.rstrip()) :]


def filled(element: Element, content: bytes, text: bytes, attributes: Mapping[str, str]) -> Edit[bytes]:
    """Return the edit that gives an element a content and attributes, also one without an end tag."""
    tag = start_tag(content[element.begin : element.content], attributes)
    return Edit(element.begin, element.end, b"%s%s</%s>" % (tag, text, element.written))


def _written(name: str, value: str) -> bytes:
    return f" {name}={quoteattr(value)}".encode()
