"""Files of GNU gettext (.po, .pot): messages without a translation are translated, and marked as fuzzy.

All other lines are copied byte for byte, but for the header, which says the language, its plural forms and the
encoding. A translation that `msgfmt --check` would refuse is not written. polib 1.2 is not used: it refuses
strings beside each other in one line, and writes all entries anew, with other line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingon.documents.bounds import check_marks, check_size
from lingon.documents.document import Document
from lingon.documents.encodings import UTF_8, Encoding, codec_of, read_encoded
from lingon.documents.errors import UnreadableDocument
from lingon.documents.gettext.entries import Entry, entries_of, string_lines
from lingon.documents.gettext.formats import REORDERED, SAME, arguments_of, fitted, formats_of
from lingon.documents.gettext.header import (
    FORMS,
    LANGUAGE,
    TYPE,
    charset_of,
    fields_of,
    header_lines,
    language_name,
    new_header,
)
from lingon.documents.gettext.markup import REST, markup_of, with_marks
from lingon.documents.gettext.plurals import Forms, forms_of, formula_of
from lingon.documents.inline import Inline, Node, Piece, Point, text_options, write
from lingon.documents.marks import marks_in, named_tag, paired, tags_of, with_breaks, without_marks
from lingon.language_tags import is_same_language

MOST_ENTRIES = 50_000
TWO_FORMS = "nplurals=2; plural=(n != 1);"  # of a file that does not say its language
_DONE = {
    None: "messages stay without a translation, for theirs has other arguments or line ends",
    REORDERED: "messages have their arguments in the order of the source, which has to be checked",
}


class _Text:
    """A message to translate; blank characters and line breaks at its ends stay, as msgfmt demands."""

    def __init__(self, message: str, markup: str = "") -> None:
        """markup: see `markup_of`."""
        self.message = message
        nodes: list[Node[bytes]] = []
        for node in with_marks(message, markup):
            nodes += _with_tags(node.text, markup) if isinstance(node, Piece) else [node]
        self.inline = Inline(paired(nodes, lambda point: named_tag(point.content.decode())))

    def translated(self, translation: str) -> str:
        """Return the message of a translation."""
        nodes = self.inline.translated(translation)
        return without_marks(write(nodes, lambda piece: piece.text.encode(), bytes).decode())


def _with_tags(text: str, markup: str) -> Iterator[Node[bytes]]:
    """Yield a text with its tags and line breaks as points; reStructuredText has no tags."""
    at = 0
    for tag in tags_of(text) if markup != REST else ():
        yield from with_breaks(text[at : tag.start()], str.encode)
        yield Point(tag[0].encode())
        at = tag.end()
    yield from with_breaks(text[at:], str.encode)


@dataclass(frozen=True, slots=True)
class _Job:
    """An entry to translate.

    texts: its messages; forms: which of them is each form of its plural, empty without a plural
    """

    entry: Entry
    texts: Sequence[_Text]
    forms: Sequence[int]


class _File:
    """A file of gettext. target: the language to translate to; empty if it is not known."""

    def __init__(self, content: bytes, target: str) -> None:
        """Raises UnreadableDocument."""
        text, self._encoding = read_encoded(content, charset_of(content))
        self._lines = re.findall(r"[^\n]*\n|[^\n]+\Z", text)
        self._entries = entries_of(self._lines)
        self._header = next((entry for entry in self._entries if entry.is_header), None)
        self._fields = fields_of(self._header.string("msgstr")) if self._header else {}
        self.notes: list[str] = []
        self._changes = dict(self._new_fields(target))
        self.jobs = list(self._jobs())

    @property
    def texts(self) -> list[str]:
        """To translate."""
        return [text.inline.text for job in self.jobs for text in job.texts]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with translations of its texts."""
        each, edits, done = iter(translations), dict[int, tuple[int, list[str]]](), dict[int | None, list[int]]()
        for job in self.jobs:
            messages, how = self._fitted(job, [text.translated(next(each)) for text in job.texts])
            done.setdefault(how, []).append(job.entry.start)
            if how is not None:
                edits[job.entry.begin] = job.entry.last, list(self._entry_lines(job, messages))
        for outcome, lines in done.items():
            if outcome in _DONE:
                self.notes.append(f"{_DONE[outcome]}: {len(lines):,}, the first at line {lines[0] + 1:,}")
        return self._encoded(edits)

    def _new_fields(self, target: str) -> Iterator[tuple[str, str]]:
        """Yield the fields of the header that change, and their values."""
        language = self._fields.get(LANGUAGE)
        other = language is not None and bool(target) and not is_same_language(language, target)
        if target and (other or language is None):
            yield LANGUAGE, language_name(target)
        plurals = [entry for entry in self._entries if entry.has_plural]
        formula = self._fields.get(FORMS, "")
        chosen = formula_of(target) or TWO_FORMS
        if other and not any(any(entry.translations) for entry in plurals) and formula:
            yield FORMS, chosen
        elif forms_of(formula) is None and (plurals or formula):
            if not target:
                self.notes.append(f"the header gets {FORMS}: {TWO_FORMS} for the target language is not known")
            yield FORMS, chosen

    def _jobs(self) -> Iterator[_Job]:
        """Yield what is to be translated."""
        forms = forms_of(self._changes.get(FORMS) or self._fields.get(FORMS, TWO_FORMS))
        assert forms is not None
        waiting = [entry for entry in self._entries if entry.waits]
        messages = [self._messages(entry, forms) for entry in waiting]
        check_marks(sum(marks_in(message) for each, _ in messages for message in each))
        for entry, (each, places) in zip(waiting, messages, strict=True):
            markup = markup_of(entry.flag_names, entry.references)
            texts = [_Text(message, markup) for message in each]
            if all(text.inline.text for text in texts):
                yield _Job(entry, texts, places)

    def _messages(self, entry: Entry, forms: Forms) -> tuple[list[str], list[int]]:
        """Return the messages of an entry, and which of them is each form of its plural."""
        if not entry.has_plural:
            return [entry.string("msgid")], []
        names = ("msgid", "msgid_plural")
        one, more = (arguments_of(entry.string(name)) for name in names)
        places = forms.texts(alike=one == more)
        used = sorted(set(places))
        return [entry.string(names[place]) for place in used], [used.index(place) for place in places]

    def _fitted(self, job: _Job, translations: Sequence[str]) -> tuple[list[str], int | None]:
        """Return translations with the arguments of their messages, and what was done; None if one cannot have them."""
        formats, found, done = formats_of(job.entry.flag_names), list[str](), SAME
        for text, translation in zip(job.texts, translations, strict=True):
            fit = fitted(formats, text.message, translation)
            if fit is None or not fit[0] or _ends(fit[0]) != _ends(text.message):
                return [], None
            found.append(fit[0])
            done = max(done, fit[1])
        return found, done

    def _entry_lines(self, job: _Job, messages: Sequence[str]) -> Iterator[str]:
        """Yield the lines of an entry with its translations."""
        entry = job.entry
        end = "\r\n" if self._lines[entry.start].endswith("\r\n") else "\n"
        if not entry.flags:
            yield f"#, fuzzy{end}"
        first = min(entry.flags, default=-1)
        for number in range(entry.begin, entry.start):
            is_first = number == first and "fuzzy" not in entry.flag_names
            yield self._lines[number].replace("#,", "#, fuzzy,", 1) if is_first else self._lines[number]
        if not job.forms:
            yield from string_lines("msgstr", messages[0], end)
        for form, place in enumerate(job.forms):
            yield from string_lines(f"msgstr[{form}]", messages[place], end)

    def _encoded(self, edits: dict[int, tuple[int, list[str]]]) -> bytes:
        """Return the file with other lines; edits: the line after the old ones, and the new ones, by the first."""
        encoding, changes = self._encoding, self._changes if self.jobs else {}
        if encoding.fault("".join(line for _, lines in edits.values() for line in lines)):
            self.notes.append(f"the file is in {encoding.name}; its translation is in UTF-8, which has all characters")
            encoding = Encoding(UTF_8)
        stated = self._fields.get(TYPE, "").partition("charset=")[2].strip()
        if self.jobs and codec_of(stated) != codec_of(encoding.codec):
            changes = {**changes, TYPE: f"text/plain; charset={encoding.charset}"}
        if self._header is not None and changes:
            entry = self._header
            edits[entry.begin] = entry.last, list(header_lines(entry, self._lines, changes))
        written = list(new_header(changes, self._end)) if self._header is None and self.jobs else []
        at = 0
        for begin, (last, lines) in sorted(edits.items()):
            written += [*self._lines[at:begin], *lines]
            at = last
        return encoding.written("".join([*written, *self._lines[at:]]), self.notes)

    @property
    def _end(self) -> str:
        return "\r\n" if self._lines and self._lines[0].endswith("\r\n") else "\n"


def read_gettext(content: bytes, target: str = "") -> Document:
    """Return a file of gettext; raises UnreadableDocument. target: the language to translate to; empty if not known."""
    check_size(len(content), "the file has")
    if (count := content.count(b"msgid")) > MOST_ENTRIES:
        raise UnreadableDocument(f"the file has {count:,} messages; at most {MOST_ENTRIES:,}")
    file = _File(content, target)
    return Document(file.texts, text_options(), file.written, file.notes)


def _ends(message: str) -> tuple[bool, bool]:
    """Whether a message begins, and ends, with a line break: msgfmt demands the same of its translation."""
    return message.startswith("\n"), message.endswith("\n")
