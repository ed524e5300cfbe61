"""Resources of .NET (`.resx`) and of Windows (`.resw`): the values of data that is text are translated in their places.

A file has one language, so that its texts are replaced. Data with a type or a kind of media stays, and so does what the
designer of forms keeps for itself: names that begin with >>. The key of a menu of a form, as in `&Open`, is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lingon.documents.bounds import check_marks, check_size, check_tags
from lingon.documents.document import Document, Edit, edited
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import text_options
from lingon.documents.localisation_xml.message import Message
from lingon.documents.localisation_xml.texts import File
from lingon.documents.marks import marks_in
from lingon.documents.xml_tree import Element, read_tree

_RESX_ATTRIBUTES = ("name", "type", "mimetype")
_STRINGS = ("", "System.String")  # types of data that is text; a name of an assembly may follow
_OF_FORMS = (".Text", ".ToolTip", ".ToolTipText", ".HeaderText", ".Caption")  # ends of names whose values have keys


def is_resources(root: Element) -> bool:
    """Whether a file of XML has resources of .NET."""
    return root.name == "root" and (root.child("resheader") is not None or root.child("data") is not None)


def read_resources(content: bytes) -> Document:
    """Return a file of resources; raises UnreadableDocument."""
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, {}, _RESX_ATTRIBUTES, marks=True)
    if not is_resources(root):
        raise UnreadableDocument(f"the file has no resources of .NET: its root is {root.name[:40]}")
    values = list(_values(root))
    check_marks(sum(marks_in(value.whole_text) for _, value in values))
    file, texts = File.of(content), list[str]()
    messages = [Message(value, file, texts, keys=name.endswith(_OF_FORMS)) for name, value in values]

    def write(translations: Sequence[str]) -> bytes:
        return edited(content, (_edit(each, translations) for each in messages if each.number >= 0))

    return Document(texts, text_options(), write)


def _values(root: Element) -> Iterator[tuple[str, Element]]:
    """Yield the names and the values of data that is text."""
    for data in root.elements:
        attributes, value = data.attributes, data.child("value")
        name, kind = attributes.get("name", ""), attributes.get("type", "").split(",")[0].strip()
        is_text = kind in _STRINGS and "mimetype" not in attributes and not name.startswith(">>")
        if data.name == "data" and is_text and value is not None and value.content_end > value.content:
            yield name, value


def _edit(message: Message, translations: Sequence[str]) -> Edit[bytes]:
    return Edit(message.writing.begin, message.writing.end, message.written(translations))
