"""JSON files of texts: nested ones, those of i18next, of Chrome (`messages.json`) and of Flutter (`.arb`).

The strings are translated where they are; keys, numbers and all else are copied byte for byte. Forms of a plural that
the target language has and the file lacks are added beside the form `other`, with its translation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from lingon.documents.document import Document, Edit
from lingon.documents.errors import UnreadableDocument
from lingon.documents.localisation.edits import Encode, Entry, document_of, replacing, text_and_encoder
from lingon.documents.localisation.json_text import StringStyle, Value, read_value
from lingon.documents.localisation.messages import Message, Style
from lingon.documents.localisation.plurals import is_plural, lacking, language_of, numbered
from lingon.language_tags import is_same_tag

_FORM = re.compile(r"(.*)_(zero|one|two|few|many|other)", re.DOTALL)
_NESTED = r"\$t\([^()]{0,200}+(?:\([^()]{0,100}+\)[^()]{0,100}+){0,4}+\)"  # i18next: the text of another key
_LINKED = r"@(?:\.\w{1,40}+)?:(?:\([^()]{1,200}+\)|[\w\-]{1,100}+(?:\.[\w\-]{1,100}+){0,20}+)"  # the same of Vue I18n
_STYLE = Style(kept=re.compile(f"{_NESTED}|{_LINKED}"))
_CHROME = Style(kept=re.compile(r"\$[A-Za-z0-9_@]{1,64}+\$|\$\$|\$[1-9]"), is_icu=False)
_WHITE = " \t\r\n"


def read_json(content: bytes, target: str = "") -> Document:
    """Return a JSON file; raises UnreadableDocument. target: the language to translate to; empty if not known."""
    text, encode = text_and_encoder(content)
    root = read_value(text)
    if root.member("@@locale") is not None:
        return _arb(text, root, encode, target)
    if _is_chrome(root):
        return document_of(text, _File(text, target, _CHROME).messages(root), encode)
    file, language = _File(text, target, _STYLE), _language(root)
    edits, notes = list[Edit[str]](), list[str]()
    if language is not None and not target:
        notes.append(f"the file says {language.key} at its root still: the target language was not given")
    elif language is not None and not is_same_tag(language.key, target):
        edits.append(Edit(language.key_begin, language.key_end, file.style.like("")(target)))
    return document_of(text, file.entries(root), encode, edits, notes)


def is_json(content: bytes) -> bool:
    """Whether a file is JSON as a whole."""
    try:
        read_value(text_and_encoder(content)[0])
    except UnreadableDocument:
        return False
    return True


def read_arb(content: bytes, target: str = "") -> Document:
    """Return an .arb file, whose keys with @ describe texts; raises UnreadableDocument. target: see `read_json`."""
    text, encode = text_and_encoder(content)
    return _arb(text, read_value(text), encode, target)


def _arb(text: str, root: Value, encode: Encode, target: str) -> Document:
    file, locale = _File(text, target, _STYLE), root.member("@@locale")
    edits = []
    if target and locale is not None and locale.kind == "string":
        edits = [Edit(locale.begin, locale.end, file.style.like("")(target.replace("-", "_")))]
    texts = [each for each in root.members if not each.key.startswith("@")]
    return document_of(text, (entry for each in texts for entry in file.entries(each)), encode, edits)


def _language(root: Value) -> Value | None:
    """Return the member of a file whose key says its language; raises UnreadableDocument if there are several."""
    if root.kind != "object" or any(each.kind != "object" for each in root.members):
        return None
    return root.members[0] if language_of([each.key for each in root.members]) else None


def _is_chrome(root: Value) -> bool:
    """Whether a file is one of Chrome: an object of objects with a message each."""
    return bool(root.key == "" and root.members) and all(each.string("message") is not None for each in root.members)


class _File:
    """A file that is read; signs: how its texts are written."""

    def __init__(self, text: str, target: str, signs: Style) -> None:
        self.style = StringStyle(text)
        self._text, self._target, self._signs = text, target, signs

    def messages(self, root: Value) -> Iterator[Entry]:
        """Yield the messages of Chrome."""
        for each in root.members:
            message = each.member("message")
            assert message is not None
            yield self._entry(message)

    def entries(self, root: Value) -> Iterator[Entry]:
        """Yield the strings of a value, in their order."""
        waiting = [iter([(root, tuple[str, ...]())])]
        while waiting:
            value, added = next(waiting[-1], (None, ()))
            if value is None:
                waiting.pop()
            elif value.kind == "string":
                yield self._entry(value, added)
            elif value.members:
                forms = self._forms(value) if value.kind == "object" and self._target else {}
                waiting.append(iter([(each, forms.get(each.key, ())) for each in value.members]))

    def _entry(self, value: Value, added: Iterable[str] = ()) -> Entry:
        """Return a string as an entry; added: keys to put before it, with its translation."""
        message = Message(value.text, self._signs, self._target)
        like = self.style.like(self._text[value.begin : value.end])
        changed = replacing(message, value.begin, value.end, value.text, like)
        keys = list(added)
        if not keys:
            return changed

        def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
            begin = value.key_begin
            while begin and self._text[begin - 1] in _WHITE:
                begin -= 1
            blanks, between = self._text[begin : value.key_begin], self._text[value.key_end : value.begin]
            for key in keys:
                inserted = f"{self.style.like('')(key)}{between}{like(translations[0])},{blanks}"
                yield Edit(value.key_begin, value.key_begin, inserted)
            yield from changed.edits(translations)

        return Entry([message], edits, always=True)

    def _forms(self, value: Value) -> dict[str, tuple[str, ...]]:
        """Return, by the keys of an object, the keys of forms of plurals that have to be added before each."""
        strings = {each.key for each in value.members if each.kind == "string"}
        if is_plural(tuple(strings)) and len(strings) == len(value.members):
            return {"other": tuple(lacking(tuple(strings), self._target))}
        families: dict[str, list[str]] = {}
        for key in strings:
            if form := _FORM.fullmatch(key):
                families.setdefault(form[1], []).append(form[2])
        found: dict[str, tuple[str, ...]] = {}
        for name, forms in families.items():
            if is_plural(forms):
                kind = "selectordinal" if name.endswith("_ordinal") else "plural"
                found[f"{name}_other"] = tuple(f"{name}_{form}" for form in lacking(forms, self._target, kind))
        for key in strings:
            if f"{key}_plural" in strings:
                found |= self._numbered(key, strings)
        return found

    def _numbered(self, key: str, strings: set[str]) -> dict[str, tuple[str, ...]]:
        """Return the same for a plural of i18next 3, which numbers the forms unless a language has two."""
        forms, singular = numbered(self._target)
        if forms in (0, 2):
            return {}
        one = [f"{key}_{singular}"] if forms > 1 else []
        more = [f"{key}_{number}" for number in range(forms) if forms == 1 or number != singular]
        return {
            key: tuple(each for each in one if each not in strings),
            f"{key}_plural": tuple(each for each in more if each not in strings),
        }
