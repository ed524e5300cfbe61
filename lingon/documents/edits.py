"""A file of keys and texts as entries that are rewritten where they are, and the positions in it that an error
names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lingon.documents.document import Document, Edit, UnreadableDocument, check_marks, check_size, edited
from lingon.documents.encodings import read_encoded
from lingon.documents.inline import text_options
from lingon.documents.messages import Message

# The text of a file with some of its positions rewritten, and the positions in it that an error names.

Encode = Callable[[str, list[str]], bytes]
"""Returns the bytes of a text. Adds notes about its encoding to a list."""

MOST_TEXTS = 50_000  # of a file: each takes 3 KiB of memory


@dataclass(frozen=True, slots=True)
class TextEntry:
    """A text of a file, or several that are written together.

    edits: returns what their translations change; nothing if they are the texts that the file has
    always: whether they change something even if there is nothing to translate in them
    """

    messages: Sequence[Message]
    edits: Callable[[Sequence[str]], Iterable[Edit[str]]]
    always: bool = False


def replacing(message: Message, begin: int, end: int, value: str, written: Callable[[str], str]) -> TextEntry:
    """Return an entry whose translation replaces its text; written: returns it as the file writes it."""

    def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
        if translations[0] != value:
            yield Edit(begin, end, written(translations[0]))

    return TextEntry([message], edits)


def text_and_encoder(content: bytes) -> tuple[str, Encode]:
    """Return the text of a file and what encodes one instead. Raises UnreadableDocument."""
    check_size(len(content), "the file has")
    text, encoding = read_encoded(content)
    return text, encoding.written


def document_of(
    text: str, entries: Iterable[TextEntry], encode: Encode, edits: Sequence[Edit[str]] = (), notes: Sequence[str] = ()
) -> Document:
    """Return the document of a file. Raises UnreadableDocument if it has too many texts, tags or line breaks.

    text: of the file
    edits: further changes, such as that of the language that the file says; made if a text is translated
    """
    every, messages, marks = list[TextEntry](), list[Message](), 0
    for entry in entries:
        every.append(entry)
        messages += entry.messages
        marks += sum(message.marks for message in entry.messages)
        if len(messages) > MOST_TEXTS:
            raise UnreadableDocument(f"the file has more than {MOST_TEXTS:,} texts")
        check_marks(marks)
    odd = sum(message.is_unwritable for message in messages)
    texts = [message.text for message in messages if message.text]

    def write(translations: Sequence[str]) -> bytes:
        left, made, lost = iter(translations), list(edits) if texts else [], 0
        for entry in every:
            values = [each.translated(next(left)) if each.text else each.value for each in entry.messages]
            lost += values.count(None)
            if entry.always or any(each.text for each in entry.messages):
                kept = zip(values, entry.messages, strict=True)
                made += entry.edits([each.value if value is None else value for value, each in kept])
        if lost:
            found.notes.append(f"texts that stay as they are, since their translations lack placeholders: {lost:,}")
        return encode(edited(text, made), found.notes)

    found = Document(texts, text_options(), write)
    found.notes.extend(notes)
    if odd:
        found.notes.append(f"texts that stay as they are, since no text has characters such as U+0000: {odd:,}")
    return found


def broken(text: str, position: int, kind: str, problem: str) -> UnreadableDocument:
    """Return the error of a file that is broken at a position of its text.

    kind: of the file, such as JSON; problem: what is wrong there, such as "a comma is missing"
    """
    line = text.count("\n", 0, position) + 1
    column = position - (text.rfind("\n", 0, position) + 1) + 1
    return UnreadableDocument(f"the {kind} in the file is broken at line {line}, column {column}: {problem}")
