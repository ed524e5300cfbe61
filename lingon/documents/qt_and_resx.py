"""Texts of desktop programs: messages of Qt (`.ts`), resources of .NET (`.resx`) and of Windows (`.resw`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lingon.documents.document import Document, Edit, UnreadableDocument, check_marks, check_size, check_tags, edited
from lingon.documents.inline import (
    TAG,
    Around,
    FormattedText,
    InlineText,
    Node,
    Point,
    marks_in,
    paired,
    pieces,
    text_options,
)
from lingon.documents.xml_texts import (
    Marks,
    Writing,
    XmlTextFile,
    filled,
    indent_of,
    notes_of_language,
    set_attribute,
    start_tag,
    text_nodes,
)
from lingon.documents.xml_tree import Element, XmlText, read_tree

# Translation sources of Qt (`.ts`): messages without a translation get one, which stays marked as unfinished.
# Messages that have a translation, and those that vanished from the program, stay. Of a message with numbers, each
# form that Qt has for the target language is the translation of the one source. The key of a menu, as in `&Open`, is
# kept.

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
class _UntranslatedMessage:
    """A message without a translation; translation: its element, None if the file has none."""

    element: Element
    source: Element
    translation: Element | None
    text: ElementMessage

    @property
    def has_forms(self) -> bool:
        """Whether it has a form for each kind of number."""
        return self.element.attributes.get("numerus") == "yes"


def is_qt(root: Element) -> bool:
    """Return whether a file of XML has messages of Qt."""
    return root.name == "TS"


def read_qt(content: bytes, target: str = "") -> Document:
    """Return a translation source of Qt. Raises UnreadableDocument.

    target: the language to translate to, for a file that does not say it, empty if it is not known
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
    file, texts = XmlTextFile.of(content, quotes=True), list[str]()
    read = [_UntranslatedMessage(*each, ElementMessage(each[1], file, texts, keys=True)) for each in found]
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
    """Return whether a translation, or one of its forms, has text. With forms each of them must have some."""
    forms = _forms(element)
    if forms:
        return all(map(_has_translation, forms))
    return any(each.name == "byte" for each in element.elements) or bool(element.whole_text.strip())


def _forms(translation: Element) -> list[Element]:
    return [each for each in translation.elements if each.name == "numerusform"]


def _edits(
    message: _UntranslatedMessage, content: bytes, translations: Sequence[str], forms: int
) -> Iterator[Edit[bytes]]:
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


def _forms_with(message: _UntranslatedMessage, content: bytes, text: bytes, forms: int) -> bytes:
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


# Resources of .NET (`.resx`) and of Windows (`.resw`): the values of data that is text are translated in their
# places.
# A file has one language, so that its texts are replaced. Data with a type or a kind of media stays, and so does what
# the designer of forms keeps for itself: names that begin with >>. The key of a menu of a form, as in `&Open`, is
# kept.

_RESX_ATTRIBUTES = ("name", "type", "mimetype")
_STRINGS = ("", "System.String")  # types of data that is text; a name of an assembly may follow
_OF_FORMS = (".Text", ".ToolTip", ".ToolTipText", ".HeaderText", ".Caption")  # ends of names whose values have keys


def is_resources(root: Element) -> bool:
    """Return whether a file of XML has resources of .NET."""
    return root.name == "root" and (root.child("resheader") is not None or root.child("data") is not None)


def read_resources(content: bytes) -> Document:
    """Return a file of resources. Raises UnreadableDocument."""
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, {}, _RESX_ATTRIBUTES, marks=True)
    if not is_resources(root):
        raise UnreadableDocument(f"the file has no resources of .NET: its root is {root.name[:40]}")
    values = list(_values(root))
    check_marks(sum(marks_in(value.whole_text) for _, value in values))
    file, texts = XmlTextFile.of(content), list[str]()
    messages = [ElementMessage(value, file, texts, keys=name.endswith(_OF_FORMS)) for name, value in values]

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


def _edit(message: ElementMessage, translations: Sequence[str]) -> Edit[bytes]:
    return Edit(message.writing.begin, message.writing.end, message.written(translations))


# The text of an element that has no codes but marks, which may have the key of a menu.


class ElementMessage:
    """A text of a file; number: among those to translate, -1 if it has no words."""

    __slots__ = ("_inline", "_key", "number", "writing")

    def __init__(self, element: Element, file: XmlTextFile, texts: list[str], *, keys: bool) -> None:
        """Read the content of an element, and add its text; keys: whether a sign & before a letter is a key."""
        self.writing = Writing.of(element, file)
        children: Sequence[Element | XmlText] = element.children
        if self.writing.cdata:
            children = [XmlText(self.writing.cdata_text)]
        whole = "".join(child.text for child in children if isinstance(child, XmlText))
        self._key = without_key(whole)[1] if keys else ""
        marks: Marks = {}
        nodes = list[Node[bytes]]()
        for child in children:
            if isinstance(child, XmlText):
                text = without_key(child.text)[0] if self._key else child.text
                nodes += text_nodes(text, self.writing, marks)
            else:
                nodes.append(Point(file.content[child.begin : child.end]))
        self._inline = InlineText(paired(nodes, lambda point: marks.get(point.content)))
        self.number = len(texts) if self._inline.text else -1
        texts += [self._inline.text] if self._inline.text else []

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the translation as the file has it. A text that was not translated keeps its key where it is."""
        if self._key and translations[self.number] == self._inline.text:
            return self.writing.file.content[self.writing.begin : self.writing.end]
        return self.writing.content(with_key(self._inline.translated(translations[self.number]), self._key))

    def in_element(self, translations: Sequence[str], element: Element) -> bytes:
        """Return the content of this element, of which the text is, with the translation."""
        return self.writing.whole(self.written(translations), element)


# Keys of menus in texts of programs: the sign & before a letter, as in `&Open`, which the program underlines.
# The text is translated without the sign. In the translation it comes before the same letter, if that begins a word
# or is in one, else before the first letter that begins a word. A translation without letters of the Latin, Greek or
# Cyrillic script gets the key in brackets at its end, as programs in Chinese, Japanese and Korean have it.

_KEY = re.compile(r"(?<!&)&(?=[^\W_])(?!#|[A-Za-z]\w{1,10};)")
_BETWEEN_CAPITALS = re.compile(r"[A-Z]&[A-Z]")  # no key, as in R&D
_LETTER = re.compile(r"[A-Za-z\u00c0-\u024f\u0370-\u04ff]")
_TAIL = re.compile(r"(?:\.\.\.|\u2026|[:\uff1a])?+\s*+\Z")
TAIL_CHARACTERS = 16  # in which the end of a text is looked for
_FILLED_IN = re.compile(  # by a program, and addresses: their letters are no positions for a key
    r"%L?\d{0,2}[A-Za-z]?|\{[^{}]{0,100}+\}|\$\w{1,50}+|&\w{1,10};|https?://\S++|<[^<>]{0,1000}+>|\S{0,64}@\S{0,64}"
)


def without_key(text: str) -> tuple[str, str]:
    """Return a text without its key, and the key, empty if the text has none, or several."""
    plain = TAG.sub(_masked, text)
    found = [each for each in _KEY.finditer(plain) if not _BETWEEN_CAPITALS.match(plain, max(each.start() - 1, 0))]
    if len(found) != 1:
        return text, ""
    at = found[0].start()
    return text[:at] + text[at + 1 :], text[at + 1]


def _masked(found: re.Match[str]) -> str:
    """Return as many characters as were found, none of which is a letter or the sign of a key."""
    return "\0" * len(found[0])


def with_key(nodes: Sequence[Node[bytes]], key: str) -> list[Node[bytes]]:
    """Return the nodes of a translation with a key of the text; key: empty if the text has none."""
    texts = [each.text for each in pieces(nodes)]
    if not key or not texts:
        return list(nodes)
    number, text = _marked(texts, key)
    count = 0

    def marked(node: Node[bytes]) -> Node[bytes]:
        nonlocal count
        if isinstance(node, Around):
            return replace(node, nodes=[marked(each) for each in node.nodes])
        if isinstance(node, FormattedText):
            count += 1
            return replace(node, text=text) if count - 1 == number else node
        return node

    return [marked(node) for node in nodes]


def _marked(texts: Sequence[str], key: str) -> tuple[int, str]:
    """Return the number of the text with the key, and that text."""
    best: tuple[int, int, int] | None = None
    for number, text in enumerate(texts):
        plain = _FILLED_IN.sub(_masked, text)
        for found in _LETTER.finditer(plain):
            begins = not plain[max(found.start() - 1, 0) : found.start()].isalnum()
            same = found[0].lower() == key.lower()
            if same or begins:
                rank = (0 if same and begins else 1 if same else 2, number, found.start())
                best = min(best or rank, rank)
    if best is None:
        last = len(texts) - 1
        begin = max(len(texts[last]) - TAIL_CHARACTERS, 0)
        tail = _TAIL.search(texts[last], begin)
        position = tail.start() if tail else len(texts[last])
        return last, f"{texts[last][:position]}(&{key.upper()}){texts[last][position:]}"
    _, number, position = best
    return number, f"{texts[number][:position]}&{texts[number][position:]}"
