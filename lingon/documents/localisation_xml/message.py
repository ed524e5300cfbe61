"""The text of an element that has no codes but marks, which may have the key of a menu."""

from __future__ import annotations

from collections.abc import Sequence

from lingon.documents.inline import Inline, Node, Point
from lingon.documents.localisation_xml.accelerators import with_key, without_key
from lingon.documents.localisation_xml.texts import File, Marks, Writing, text_nodes
from lingon.documents.marks import paired
from lingon.documents.xml_tree import Element, Text


class Message:
    """A text of a file; number: among those to translate, -1 if it has no words."""

    __slots__ = ("_inline", "_key", "number", "writing")

    def __init__(self, element: Element, file: File, texts: list[str], *, keys: bool) -> None:
        """Read the content of an element, and add its text; keys: whether a sign & before a letter is a key."""
        self.writing = Writing.of(element, file)
        children: Sequence[Element | Text] = element.children
        if self.writing.cdata:
            children = [Text(self.writing.cdata_text)]
        whole = "".join(child.text for child in children if isinstance(child, Text))
        self._key = without_key(whole)[1] if keys else ""
        marks: Marks = {}
        nodes = list[Node[bytes]]()
        for child in children:
            if isinstance(child, Text):
                text = without_key(child.text)[0] if self._key else child.text
                nodes += text_nodes(text, self.writing, marks)
            else:
                nodes.append(Point(file.content[child.begin : child.end]))
        self._inline = Inline(paired(nodes, lambda point: marks.get(point.content)))
        self.number = len(texts) if self._inline.text else -1
        texts += [self._inline.text] if self._inline.text else []

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the translation as the file has it; a text that was not translated keeps its key where it is."""
        if self._key and translations[self.number] == self._inline.text:
            return self.writing.file.content[self.writing.begin : self.writing.end]
        return self.writing.content(with_key(self._inline.translated(translations[self.number]), self._key))

    def in_element(self, translations: Sequence[str], element: Element) -> bytes:
        """Return the content of this element, of which the text is, with the translation."""
        return self.writing.whole(self.written(translations), element)
