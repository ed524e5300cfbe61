"""What is inside the text of an XLIFF file and no text: codes and marks, which are kept byte for byte.

XLIFF 1.2, section 2.4, and XLIFF 2.0, section 4.2.3. TMX 1.4 has the same codes. The text of `sub`, which is inside a
code, is a text of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lingon.documents.inline import Around, InlineText, Node, Point, paired
from lingon.documents.xml_texts import Marks, Writing, XmlTextFile, plain_text, text_nodes
from lingon.documents.xml_tree import Element, XmlText

ATTRIBUTES = ("id", "i", "rid", "startRef", "ctype", "subType", "mtype", "translate", "type")
NAMESPACES = frozenset(["", "1", "2", "tmx"])  # canonical prefixes of XLIFF and TMX
_WITH_TEXT = frozenset(["g", "mrk", "pc", "hi"])
_STARTS = {"bx": "x", "bpt": "pt", "sc": "c", "sm": "m"}  # to what a start and its end have in common
_ENDS = {"ex": "x", "ept": "pt", "ec": "c", "em": "m"}
_BREAKS = frozenset(["lb", "x-newline", "xlf:lb"])
_BRACES = re.compile(r"\{(?P<start>[A-Za-z\d_^]{1,8})>|<(?P<end>[A-Za-z\d_^]{1,8})\}|\{\d{1,8}\}")


def local(element: Element) -> str:
    """Return the name of an element of XLIFF without its namespace, empty for an element of another one."""
    prefix, _, name = element.name.rpartition(":")
    return name if prefix in NAMESPACES else ""


def child_of(element: Element, name: str) -> Element | None:
    """Return the first child of this local name."""
    return next((each for each in element.elements if local(each) == name), None)


def has_text(element: Element) -> bool:
    """Return whether there is text in an element, codes left out."""
    waiting = [element]
    while waiting:
        for child in waiting.pop().children:
            if isinstance(child, Element):
                waiting += [child] if local(child) in _WITH_TEXT else []
            elif not child.text.isspace():
                return True
    return False


@dataclass(frozen=True, slots=True)
class Code:
    """A code with texts inside of it; texts: of its `sub` elements, in their order."""

    element: Element
    texts: Sequence[CodedText]

    def written(self, content: bytes, translations: Mapping[int, str]) -> bytes:
        """Return the code in a file of this content with translations. See `CodedText.written`."""
        found, at = list[bytes](), self.element.begin
        for text in self.texts:
            found += [content[at : text.writing.begin], text.written(translations)]
            at = text.writing.end
        return b"".join([*found, content[at : self.element.end]])


class CodedText:
    """The text of an element with codes, such as a source.

    number: of the text among those to translate, or -1 if it has none
    """

    __slots__ = ("_coded", "_codes", "inline", "number", "writing")

    def __init__(self, element: Element, file: XmlTextFile, texts: list[str]) -> None:
        """Read the content of an element; texts: those to translate, to which its own are added."""
        self.writing = Writing.of(element, file)
        self._codes: dict[bytes, Element] = {}
        self.inline = InlineText(self._nodes_of(element, file))
        self.number = len(texts) if self.inline.text else -1
        texts += [self.inline.text] if self.inline.text else []
        self._coded = {
            code: Code(each, [CodedText(sub, file, texts) for sub in _subs(each)]) for code, each in self._codes.items()
        }

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate, in its codes too."""
        return self.number >= 0 or any(text.has_words for code in self._coded.values() for text in code.texts)

    def nodes(self, translations: Mapping[int, str]) -> list[Node[bytes]]:
        """Return its nodes with translations, by the numbers of texts."""
        return self.inline.translated(translations[self.number]) if self.number >= 0 else self.inline.nodes

    def written(self, translations: Mapping[int, str]) -> bytes:
        """Return what is instead of its `writing`, with translations, by the numbers of texts."""
        codes = {each: code.written(self.writing.file.content, translations) for each, code in self._coded.items()}
        return self.writing.content(self.nodes(translations), codes)

    def plain(self, translations: Mapping[int, str]) -> str:
        """Return the text of its translation, without codes."""
        return plain_text(self.nodes(translations))

    def _nodes_of(self, element: Element, file: XmlTextFile) -> list[Node[bytes]]:
        marks: Marks = {}
        if self.writing.cdata:
            nodes = list(text_nodes(self.writing.cdata_text, self.writing, marks))
        else:
            nodes = list(self._nodes(element, file, marks))
        return paired(nodes, lambda point: marks.get(point.content))

    def _nodes(self, element: Element, file: XmlTextFile, marks: Marks) -> Iterator[Node[bytes]]:
        lexed = _braced if file.braces else text_nodes
        content, children = file.content, iter(element.children)
        ends = _protected_ends(element)
        for child in children:
            if isinstance(child, XmlText):
                yield from lexed(child.text, self.writing, marks)
                continue
            name, attributes, code = local(child), child.attributes, content[child.begin : child.end]
            if name in _WITH_TEXT and attributes.get("translate") != "no" and attributes.get("mtype") != "protected":
                before, after = content[child.begin : child.content], content[child.content_end : child.end]
                if after:
                    yield Around(before, self._nodes_inside(child, file), after)
                else:
                    yield Point(code)
                continue
            if (end := ends.get(child.begin)) is not None:
                yield Point(content[child.begin : end.end])
                while next(children) is not end:
                    pass
                continue
            if name in _STARTS:
                marks[code] = (f"{_STARTS[name]} {_number(attributes, 'rid', 'i', 'id')}", True)
            elif name in _ENDS:
                marks[code] = (f"{_ENDS[name]} {_number(attributes, 'startRef', 'rid', 'i', 'id')}", False)
            if any(True for _ in _subs(child)):
                self._codes[code] = child
            kind = attributes.get("ctype") or attributes.get("subType") or attributes.get("type")
            yield Point(code, splits=kind in _BREAKS)

    def _nodes_inside(self, element: Element, file: XmlTextFile) -> list[Node[bytes]]:
        marks: Marks = {}
        nodes = list(self._nodes(element, file, marks))
        return paired(nodes, lambda point: marks.get(point.content))


def _number(attributes: Mapping[str, str], *names: str) -> str:
    """Return the first of these attributes that an element has."""
    return next((attributes[name] for name in names if name in attributes), "")


def _subs(code: Element) -> Iterator[Element]:
    """Yield the `sub` elements in a code that are in no other one."""
    if local(code) in _WITH_TEXT:
        return
    waiting = [iter(code.elements)]
    while waiting:
        for child in waiting[-1]:
            if local(child) == "sub":
                yield child
            else:
                waiting.append(iter(child.elements))
                break
        else:
            waiting.pop()


def _protected_ends(element: Element) -> dict[int, Element]:
    """Return by the begins of marks that protect a text (`sm` of version 2) the elements that end them."""
    open, found = dict[str, Element](), dict[int, Element]()
    for child in element.elements:
        name = local(child)
        if name == "sm" and child.attributes.get("translate") == "no":
            open[child.attributes.get("id", "")] = child
        elif name == "em" and (start := open.pop(child.attributes.get("startRef", ""), None)) is not None:
            found[start.begin] = child
    return found


def _braced(text: str, writing: Writing, marks: Marks) -> Iterator[Node[bytes]]:
    """Yield the nodes of a text with codes in braces."""
    at = 0
    for found in _BRACES.finditer(text):
        yield from text_nodes(text[at : found.start()], writing, marks)
        code = writing.escaped(found[0]).encode()
        if found["start"] or found["end"]:
            marks[code] = (f"brace {found['start'] or found['end']}", bool(found["start"]))
        yield Point(code)
        at = found.end()
    yield from text_nodes(text[at:], writing, marks)


def segments_of(element: Element) -> Iterable[Element]:
    """Yield the marks of segments in an element, also those in `g` and other marks."""
    waiting = [iter(element.elements)]
    while waiting:
        for child in waiting[-1]:
            if local(child) == "mrk" and child.attributes.get("mtype") == "seg":
                yield child
            elif local(child) in _WITH_TEXT:
                waiting.append(iter(child.elements))
                break
        else:
            waiting.pop()


def outside_segments(element: Element) -> bool:
    """Return whether an element has letters outside the marks of segments."""
    waiting = [element]
    while waiting:
        for child in waiting.pop().children:
            if isinstance(child, XmlText):
                if any(map(str.isalpha, child.text)):
                    return True
            elif local(child) in _WITH_TEXT and child.attributes.get("mtype") != "seg":
                waiting.append(child)
    return False
