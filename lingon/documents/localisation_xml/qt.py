"""Translation sources of Qt (`.ts`): messages without a translation get one, which stays marked as unfinished.

Messages that have a translation, and those that vanished from the program, stay. Of a message with numbers, each form
that Qt has for the target language is the translation of the one source. The key of a menu, as in `&Open`, is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingon.documents.bounds import check_marks, check_size, check_tags
from lingon.documents.document import Document, Edit, edited
from lingon.documents.errors import UnreadableDocument
from lingon.documents.inline import text_options
from lingon.documents.localisation_xml.edits import filled, indent_of, set_attribute, start_tag
from lingon.documents.localisation_xml.languages import notes_of_language
from lingon.documents.localisation_xml.message import Message
from lingon.documents.localisation_xml.texts import File
from lingon.documents.marks import marks_in
from lingon.documents.xml_tree import Element, read_tree

_QT_ATTRIBUTES = ("language", "sourcelanguage", "type", "numerus", "variants")
_GONE = frozenset(["vanished", "obsolete"])
_FORMS = {  # of Qt's own rules, by how many a language has; all others have two
    1: (
        "ak ast bi bm bo chr dsb dz ee fa ff fj gn haw hsb hu id in ja jv kab ko ms my na om sc sg sma smj smn sms su "
        "szl th tr tt vi yo za zh"
    ),
    3: "be bs cs dv ga gv hr iu lt lv mi mk pl ro ru sa se sk sm sr uk",
    4: "gd mt sl",
    5: "cy",
    6: "ar",
}
_FORMS_OF = {language: count for count, languages in _FORMS.items() for language in languages.split()}


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A message without a translation; translation: its element, None if the file has none."""

    element: Element
    source: Element
    translation: Element | None
    text: Message

    @property
    def has_forms(self) -> bool:
        """Whether it has a form for each kind of number."""
        return self.element.attributes.get("numerus") == "yes"


def is_qt(root: Element) -> bool:
    """Whether a file of XML has messages of Qt."""
    return root.name == "TS"


def read_qt(content: bytes, target: str = "") -> Document:
    """Return a translation source of Qt; raises UnreadableDocument.

    target: the language to translate to, for a file that does not say it; empty if it is not known
    """
    check_size(len(content), "the file has")
    if b"<TS" not in content:
        raise UnreadableDocument("the file has no messages of Qt; files of TypeScript are not translated")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, {}, _QT_ATTRIBUTES, marks=True)
    if not is_qt(root):
        raise UnreadableDocument(f"the file has no messages of Qt: its root is {root.name[:40]}")
    found = list(_messages(root))
    check_marks(sum(marks_in(source.whole_text) for _, source, _ in found))
    file, texts = File.of(content, quotes=True), list[str]()
    read = [_Waiting(*each, Message(each[1], file, texts, keys=True)) for each in found]
    waiting = [each for each in read if each.text.number >= 0]
    language = root.attributes.get("language", "")

    def write(translations: Sequence[str]) -> bytes:
        edits = [edit for each in waiting for edit in _edits(each, content, translations, forms_of(language or target))]
        if waiting and target and not language:
            edits.append(set_attribute(root, content, "language", target.replace("-", "_")))
        return edited(content, edits)

    notes = notes_of_language(language, target) if texts else []
    return Document(texts, text_options(), write, notes)


def forms_of(language: str) -> int:
    """Return how many forms Qt has for the numbers of a language."""
    return _FORMS_OF.get(language.replace("_", "-").partition("-")[0].lower(), 2)


def _messages(root: Element) -> Iterator[tuple[Element, Element, Element | None]]:
    """Yield the messages without a translation, with their sources and the elements of their translations."""
    contexts = [root, *(each for each in root.elements if each.name == "context")]
    for message in (each for context in contexts for each in context.elements if each.name == "message"):
        source, translation = message.child("source"), message.child("translation")
        if source is None:
            continue
        if translation is None:
            yield message, source, None
        elif translation.attributes.get("type") not in _GONE and not _has_translation(translation):
            yield message, source, translation


def _has_translation(element: Element) -> bool:
    """Whether a translation, or one of its forms, has text; with forms each of them must have some."""
    forms = _forms(element)
    if forms:
        return all(map(_has_translation, forms))
    return any(each.name == "byte" for each in element.elements) or bool(element.whole_text.strip())


def _forms(translation: Element) -> list[Element]:
    return [each for each in translation.elements if each.name == "numerusform"]


def _edits(message: _Waiting, content: bytes, translations: Sequence[str], forms: int) -> Iterator[Edit[bytes]]:
    """Yield the edits that write the translation of a message."""
    element, source, translation = message.element, message.source, message.translation
    text = message.text.in_element(translations, source)
    written = _forms_with(message, content, text, forms) if message.has_forms else text
    if translation is not None:
        unfinished = {} if translation.attributes.get("type") == "unfinished" else {"type": "unfinished"}
        empty = [form for form in _forms(translation) if not _has_translation(form)]
        if len(empty) == len(_forms(translation)):
            yield filled(translation, content, written, unfinished)
            return
        tag = start_tag(content[translation.begin : translation.content], unfinished)
        yield Edit(translation.begin, translation.content, tag)
        yield from (filled(form, content, text, {}) for form in empty)  # the others are those of a person
    else:
        indent = indent_of(source, content, element.content)
        tag = start_tag(b"<translation>", {"type": "unfinished"})
        yield Edit(source.end, source.end, b"%s%s%s</translation>" % (indent, tag, written))


def _forms_with(message: _Waiting, content: bytes, text: bytes, forms: int) -> bytes:
    """Return the content of a translation with forms, indented as that is, or as the source is."""
    translation, source = message.translation, message.source
    form = b"<numerusform>%s</numerusform>" % text
    old = translation.child("numerusform") if translation is not None else None
    if translation is not None and old is not None:
        between = indent_of(old, content, translation.content)
    else:
        between = indent_of(source, content, message.element.content)
        between += b"    " if between.strip(b" \t") else b""
    outer = indent_of(source, content, message.element.content) if between else b""
    return (between + form) * forms + outer
