r"""Texts of Android (`strings.xml`): strings, arrays of strings and plurals are translated where they are.

A file has one language, so that its texts are replaced. In a text, the backslash is an escape, white space is one
blank, and a quotation mark without a backslash is no text: https://developer.android.com/guide/topics/resources.
Formats such as `b` are tags, `xliff:g` stays as it is, and so do resources with `translatable="false"` and texts that
only refer to another one, such as `@string/app_name`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from lingon.documents.document import Document, Edit, UnreadableDocument, check_marks, check_size, check_tags, edited
from lingon.documents.inline import (
    Around,
    FormattedText,
    InlineText,
    Node,
    Point,
    marks_in,
    paired,
    tags_of,
    text_options,
    without_marks,
    write,
)
from lingon.documents.plurals import CATEGORIES, categories
from lingon.documents.xml_texts import Marks, Writing, XmlTextFile, indent_of, set_attribute, tag_point
from lingon.documents.xml_tree import Element, XmlText, attributes_of, read_tree

_PREFIXES = {"urn:oasis:names:tc:xliff:document:1.2": "xliff", "http://schemas.android.com/tools": "tools"}
_ATTRIBUTES = ("translatable", "quantity", "type", "tools:locale")
_REFERENCE = re.compile(r"\s*+[@?](?:\+?[\w.:]{0,200}/)?[\w.:]{1,200}+\s*+")
_MARK = re.compile(
    r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<line>[nt])|(?P<plain>[@?#'\"\\])|[^\r\n]?)"
    r"|(?P<quote>\")|(?P<tag></?[A-Za-z][^<>]*+>)|(?P<blank>(?<![ \t\r\n])[ \t]*+[\r\n][ \t\r\n]*+)"
)
_SPECIAL = re.compile(r"[\\'\"]")
_ESCAPE = re.compile(rb"\\u([0-9A-Fa-f]{4})")
_WRAPPED = b"\0"  # around a line break within a sentence, see `marks.without_marks`


class _String:
    """A text of the file; number: among those to translate, -1 if it has no words."""

    __slots__ = ("_escapes", "_inline", "_quoted", "_writing", "element", "number")

    def __init__(self, element: Element, file: XmlTextFile, texts: list[str], escapes: Mapping[str, str]) -> None:
        """Read an element; escapes: the characters that are escaped in the file, and how."""
        self.element, self._escapes = element, escapes
        self._writing = Writing.of(element, file)
        written = file.content[self._writing.begin : self._writing.end].strip()
        self._quoted = len(written) > 1 and written.startswith(b'"') and written.endswith(b'"')
        refers = _REFERENCE.fullmatch(element.whole_text) is not None
        self._inline = InlineText([] if refers else _without_outer_blanks(self._nodes(element)))
        self.number = len(texts) if self._inline.text else -1
        texts += [self._inline.text] if self._inline.text else []

    def edit(self, translations: Sequence[str]) -> Edit[bytes]:
        """Return what writes its translation."""
        return Edit(self._writing.begin, self._writing.end, self._text(translations))

    def item(self, translations: Sequence[str], quantity: str) -> bytes:
        """Return its element with the translation and another quantity."""
        element, writing, content = self.element, self._writing, self._writing.file.content
        change = set_attribute(element, content, "quantity", quantity)
        start = content[element.begin : change.begin] + change.content + content[change.end : writing.begin]
        return start + self._text(translations) + content[writing.end : element.end]

    def _text(self, translations: Sequence[str]) -> bytes:
        """Return its translation as the file has it."""
        if self.number < 0:
            return self._writing.file.content[self._writing.begin : self._writing.end]
        nodes = self._inline.translated(translations[self.number])
        text = without_marks(write(nodes, lambda piece: self._escaped(piece.text).encode(), bytes).decode())
        begin = len(text) - len(text.lstrip())
        refers = text[begin : begin + 1] in ("@", "?")  # which would be a reference to another resource
        return (f"{text[:begin]}\\{text[begin:]}" if refers else text).encode()

    def _escaped(self, text: str) -> str:
        text = _SPECIAL.sub(lambda found: found[0] if self._quoted and found[0] == "'" else f"\\{found[0]}", text)
        if self._escapes:
            text = "".join(self._escapes.get(each, each) for each in text)
        return self._writing.escaped(text)

    def _nodes(self, element: Element) -> list[Node[bytes]]:
        marks: Marks = {}
        if self._writing.cdata:
            nodes = list(self._text_nodes(self._writing.cdata_text, marks))
            return paired(nodes, lambda point: marks.get(point.content))
        return self._nodes_inside(element)

    def _nodes_inside(self, element: Element) -> list[Node[bytes]]:
        marks: Marks = {}
        nodes = list[Node[bytes]]()
        content = self._writing.file.content
        for child in element.children:
            if isinstance(child, XmlText):
                nodes += self._text_nodes(child.text, marks)
                continue
            before, after = content[child.begin : child.content], content[child.content_end : child.end]
            if child.name.startswith("xliff:") or not after:
                nodes.append(Point(content[child.begin : child.end], splits=child.name == "br"))
            else:
                nodes.append(Around(before, self._nodes_inside(child), after))
        return paired(nodes, lambda point: marks.get(point.content))

    def _text_nodes(self, text: str, marks: Marks) -> Iterator[Node[bytes]]:
        """Yield a text with its escapes resolved. Those of blanks, and unknown ones, stay as they are."""
        at, tags = 0, {tag.start() for tag in tags_of(text)}
        for found in _MARK.finditer(text):
            yield FormattedText(text[at : found.start()])
            at = found.end()
            character = chr(int(found["code"], 16)) if found["code"] else found["plain"] or ""
            written = self._writing.escaped(found[0]).encode()
            if found["tag"]:
                is_tag = found.start() in tags
                yield tag_point(found["tag"], self._writing.escaped, marks) if is_tag else FormattedText(found["tag"])
            elif found["blank"] and not self._quoted:
                yield FormattedText(" ")
                yield Point(_WRAPPED + written + _WRAPPED)
            elif found["line"] or found["blank"]:
                yield Point(written, splits=True)
            elif character.strip() and not "\ud800" <= character <= "\udfff":
                yield FormattedText(character)
            else:
                yield Point(written)
        yield FormattedText(text[at:])


def _without_outer_blanks(nodes: list[Node[bytes]]) -> list[Node[bytes]]:
    """Return the nodes of a text without the blanks that stand for line breaks at its ends."""
    found = [node for node in nodes if not isinstance(node, FormattedText) or node.text]
    for at in (-2, 0):
        blank, line = (*found[at:][:2], None, None)[:2]
        if blank == FormattedText(" ") and isinstance(line, Point) and line.content.startswith(_WRAPPED):
            found[at : at + 2 or None] = [Point(line.content.strip(_WRAPPED))]
    return found


class _Plurals:
    """The items of a plural: those whose quantities the target has, the others, and the quantities that are missing."""

    def __init__(
        self,
        element: Element,
        file: XmlTextFile,
        texts: list[str],
        escapes: Mapping[str, str],
        categories: Sequence[str],
    ) -> None:
        """Read a plural; categories: the quantities of the target, empty if it is not known."""
        self._content, begin = file.content, element.content
        self._items: dict[str, _String] = {}
        self._removed, self._indents = list[Edit[bytes]](), dict[str, bytes]()
        items = [each for each in element.elements if each.name == "item"]
        names = [each.attributes.get("quantity", "") for each in items]
        needed = frozenset([*categories, *(names[-1:] if "other" not in names else ())])
        for name, item in zip(names, items, strict=True):
            if categories and name in CATEGORIES and name not in needed:
                self._removed.append(Edit(item.begin - len(indent_of(item, file.content, begin)), item.end, b""))
            else:
                self._indents[name] = indent_of(item, file.content, begin)
                self._items[name] = _String(item, file, texts, escapes)
            begin = item.end
        self._missing = [name for name in categories if name not in self._items] if self._items else []

    def edits(self, translations: Sequence[str]) -> Iterator[Edit[bytes]]:
        """Yield what writes the translations."""
        if all(item.number < 0 for item in self._items.values()):
            return
        yield from self._removed
        last = list(self._items)[-1]
        for name in self._missing:
            model = self._items.get("other", self._items[last])
            later = next((each for each in CATEGORIES[CATEGORIES.index(name) :] if each in self._items), "")
            written, indent = model.item(translations, name), self._indents[later or last]
            at = self._items[later].element.begin if later else self._items[last].element.end
            yield Edit(at, at, written + indent if later else indent + written)
        yield from (item.edit(translations) for item in self._items.values() if item.number >= 0)


def is_android(root: Element) -> bool:
    """Return whether a file of XML has resources of Android."""
    return root.name == "resources"


def read_android(content: bytes, target: str = "") -> Document:
    """Return a file of resources. Raises UnreadableDocument. target: the language to translate to, empty if unknown."""
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, _PREFIXES, _ATTRIBUTES, marks=True)
    if not is_android(root):
        raise UnreadableDocument(f"the file has no resources of Android: its root is {root.name[:40]}")
    file, texts = XmlTextFile.of(content), list[str]()
    escapes = {chr(int(each[1], 16)): each[0].decode() for each in _ESCAPE.finditer(content) if int(each[1], 16) > 127}
    strings, plurals = list[_String](), list[_Plurals]()
    has_plurals = any(each.name == "plurals" for each in root.elements)
    quantities = list(categories(target)) if target and has_plurals else []
    unknown = f"the plurals keep their quantities, as those of the language {target[:40]!r} are not known"
    check_marks(sum(marks_in(each.whole_text) for each in root.elements))
    for element in root.elements:
        if "false" in (root.attributes.get("translatable"), element.attributes.get("translatable")):
            continue
        kind = element.attributes.get("type") if element.name == "item" else element.name
        if kind == "string":
            strings.append(_String(element, file, texts, escapes))
        elif kind == "string-array":
            strings += (_String(item, file, texts, escapes) for item in element.elements if item.name == "item")
        elif kind == "plurals":
            plurals.append(_Plurals(element, file, texts, escapes, quantities))

    def write_all(translations: Sequence[str]) -> bytes:
        edits = [each.edit(translations) for each in strings if each.number >= 0]
        edits += [edit for each in plurals for edit in each.edits(translations)]
        edits += _locale(root, content, target) if texts else []
        return edited(content, edits)

    return Document(texts, text_options(), write_all, [unknown] if has_plurals and not quantities else [])


def _locale(root: Element, content: bytes, target: str) -> Iterator[Edit[bytes]]:
    """Yield what changes the language that the file says."""
    if target and root.attributes.get("tools:locale"):
        names = (each.name for each in attributes_of(content, root.begin, root.content) if each.local == b"locale")
        yield from (set_attribute(root, content, name.decode(), target) for name in names)
