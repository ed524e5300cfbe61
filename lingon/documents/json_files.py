"""JSON files of texts: nested ones, those of i18next, of Chrome (`messages.json`) and of Flutter (`.arb`).

The strings are translated where they are. Keys, numbers and all else are copied byte for byte. Forms of a plural that
the target language has and the file lacks are added beside the form `other`, with its translation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]  # what json itself uses
from typing import NoReturn

from lingon.documents.document import Document, Edit, UnreadableDocument
from lingon.documents.edits import Encode, TextEntry, broken, document_of, replacing, text_and_encoder
from lingon.documents.messages import Message, Style
from lingon.documents.plurals import is_plural, lacking, language_of, numbered
from lingon.language_tags import is_same_tag

_FORM = re.compile(r"(.*)_(zero|one|two|few|many|other)", re.DOTALL)
_NESTED = r"\$t\([^()]{0,200}+(?:\([^()]{0,100}+\)[^()]{0,100}+){0,4}+\)"  # i18next: the text of another key
_LINKED = r"@(?:\.\w{1,40}+)?:(?:\([^()]{1,200}+\)|[\w\-]{1,100}+(?:\.[\w\-]{1,100}+){0,20}+)"  # the same of Vue I18n
_STYLE = Style(kept=re.compile(f"{_NESTED}|{_LINKED}"))
_CHROME = Style(kept=re.compile(r"\$[A-Za-z0-9_@]{1,64}+\$|\$\$|\$[1-9]"), is_icu=False)
_WHITE = " \t\r\n"


def read_json(content: bytes, target: str = "") -> Document:
    """Return a JSON file. Raises UnreadableDocument. target: the language to translate to, empty if not known."""
    text, encode = text_and_encoder(content)
    root = read_value(text)
    if root.member("@@locale") is not None:
        return _arb(text, root, encode, target)
    if _is_chrome(root):
        return document_of(text, _JsonFile(text, target, _CHROME).messages(root), encode)
    file, language = _JsonFile(text, target, _STYLE), _language(root)
    edits, notes = list[Edit[str]](), list[str]()
    if language is not None and not target:
        notes.append(f"the file says {language.key} at its root still: the target language was not given")
    elif language is not None and not is_same_tag(language.key, target):
        edits.append(Edit(language.key_begin, language.key_end, file.style.like("")(target)))
    return document_of(text, file.entries(root), encode, edits, notes)


def is_json(content: bytes) -> bool:
    """Return whether a file is JSON as a whole."""
    try:
        read_value(text_and_encoder(content)[0])
    except UnreadableDocument:
        return False
    return True


def read_arb(content: bytes, target: str = "") -> Document:
    """Return an .arb file, whose keys with @ describe texts. Raises UnreadableDocument. target: see `read_json`."""
    text, encode = text_and_encoder(content)
    return _arb(text, read_value(text), encode, target)


def _arb(text: str, root: JsonValue, encode: Encode, target: str) -> Document:
    file, locale = _JsonFile(text, target, _STYLE), root.member("@@locale")
    edits = []
    if target and locale is not None and locale.kind == "string":
        edits = [Edit(locale.begin, locale.end, file.style.like("")(target.replace("-", "_")))]
    texts = [each for each in root.members if not each.key.startswith("@")]
    return document_of(text, (entry for each in texts for entry in file.entries(each)), encode, edits)


def _language(root: JsonValue) -> JsonValue | None:
    """Return the member of a file whose key says its language. Raises UnreadableDocument if there are several."""
    if root.kind != "object" or any(each.kind != "object" for each in root.members):
        return None
    return root.members[0] if language_of([each.key for each in root.members]) else None


def _is_chrome(root: JsonValue) -> bool:
    """Return whether a file is one of Chrome: an object of objects with a message each."""
    return bool(root.key == "" and root.members) and all(each.string("message") is not None for each in root.members)


class _JsonFile:
    """A file that is read; signs: how its texts are written."""

    def __init__(self, text: str, target: str, signs: Style) -> None:
        self.style = StringStyle(text)
        self._text, self._target, self._signs = text, target, signs

    def messages(self, root: JsonValue) -> Iterator[TextEntry]:
        """Yield the messages of Chrome."""
        for each in root.members:
            message = each.member("message")
            assert message is not None
            yield self._entry(message)

    def entries(self, root: JsonValue) -> Iterator[TextEntry]:
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

    def _entry(self, value: JsonValue, added: Iterable[str] = ()) -> TextEntry:
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

        return TextEntry([message], edits, always=True)

    def _forms(self, value: JsonValue) -> dict[str, tuple[str, ...]]:
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


# The values of a JSON file with their positions in it, so that all else is copied byte for byte.
# The json package of Python keeps no positions of values, and its keys are without order among equal ones. It reads the
# strings, and this file what is around them, in one pass without recursion.

MOST_DEPTH = 64  # of objects and arrays inside each other
MOST_VALUES = 500_000  # of a file: each takes 150 bytes of memory
_BLANKS = re.compile(r"[ \t\r\n]*+")
_OTHER = re.compile(r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|true|false|null")
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|(["\\/bfnrt]))')
_CONTROL = '"\\\\\\x00-\\x1f'
_CONTROLS = re.compile(f"[{_CONTROL}]")
_BEYOND = re.compile(r"[^\x00-\x7f]")
_FIGURE = re.compile(r"\\u[0-9]{0,3}([A-Fa-f])")  # the first letter of an escape
_FOREIGN = re.compile(r"\\u(?!00[0-7])[0-9A-Fa-f]{4}")  # an escape of a character beyond ASCII


@dataclass(slots=True)
class JsonValue:
    """A value. One of an object has a key.

    kind: object, array, string, or other for numbers, booleans and null
    begin, end: in the text of the file, quotation marks and brackets included
    key, key_begin, key_end: that of a value of an object and its position
    text: of a string
    members: of an object or an array
    """

    kind: str
    begin: int
    end: int = 0
    key: str = ""
    key_begin: int = 0
    key_end: int = 0
    text: str = ""
    members: Sequence[JsonValue] = ()

    def member(self, key: str) -> JsonValue | None:
        """Return the value of a key in an object, the last one if there are several, as JSON parsers do."""
        if self.kind != "object":
            return None
        return next((each for each in reversed(self.members) if each.key == key), None)

    def string(self, key: str) -> str | None:
        """Return the string of a key in an object, or None if there is none."""
        found = self.member(key)
        return found.text if found is not None and found.kind == "string" else None


def read_value(text: str) -> JsonValue:
    """Return the value of a file. Raises UnreadableDocument that names line and column."""
    return _JsonReader(text).read()


class _JsonReader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._open: list[tuple[JsonValue, list[JsonValue]]] = []
        self._count = 0

    def read(self) -> JsonValue:
        """Return the value."""
        root = self._value()
        while self._open:
            container, members = self._open[-1]
            closing = "}" if container.kind == "object" else "]"
            if self._peek() == closing:
                self._at += 1
                container.end = self._at
                self._open.pop()
                continue
            if members:
                self._expect(",")
            members.append(self._value(*(self._key() if container.kind == "object" else ())))
        self._peek()
        if self._at < len(self._text):
            self._fail("a value is followed by something else")
        return root

    def _value(self, key: str = "", key_begin: int = 0, key_end: int = 0) -> JsonValue:
        first = self._peek()
        found = JsonValue("other", self._at, 0, key, key_begin, key_end)
        self._count += 1
        if self._count > MOST_VALUES:
            raise UnreadableDocument(f"the file has more than {MOST_VALUES:,} values")
        if first == '"':
            found.kind, found.text = "string", self._string()
        elif first in ("{", "["):
            if len(self._open) >= MOST_DEPTH:
                self._fail(f"values are in more than {MOST_DEPTH} others")
            found.kind = "object" if first == "{" else "array"
            members: list[JsonValue] = []
            found.members = members
            self._open.append((found, members))
            self._at += 1
        else:
            other = _OTHER.match(self._text, self._at)
            if other is None:
                self._fail("a value is missing")
            self._at = other.end()
        found.end = self._at
        return found

    def _key(self) -> tuple[str, int, int]:
        if self._peek() != '"':
            self._fail("a key in quotation marks is missing")
        begin = self._at
        key = self._string()
        end = self._at
        self._expect(":")
        return key, begin, end

    def _string(self) -> str:
        found: str
        try:
            found, self._at = scanstring(self._text, self._at + 1, True)
        except json.JSONDecodeError as error:
            self._at = error.pos
            self._fail("a string has no end" if "Unterminated" in error.msg else "a string has a wrong character")
        return found

    def _peek(self) -> str:
        blanks = _BLANKS.match(self._text, self._at)
        assert blanks is not None
        self._at = blanks.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            self._fail("a colon is missing" if sign == ":" else "a comma is missing")
        self._at += 1

    def _fail(self, problem: str) -> NoReturn:
        raise broken(self._text, self._at, "JSON", problem)


class StringStyle:
    """How the strings of a file are written: characters beyond ASCII as such or as escapes, with small or big figures.

    A file with neither has them as such.
    """

    def __init__(self, text: str) -> None:
        self._escapes = text.isascii() and _FOREIGN.search(text) is not None
        letter = _FIGURE.search(text) if self._escapes else None
        self._big = letter is not None and letter[1].isupper()

    def like(self, literal: str) -> Callable[[str], str]:
        """Return what writes a string like a literal: a sign that it escapes without need is escaped too."""
        own = dict(map(_escaped_sign, _ESCAPE.finditer(literal)))
        own = {sign: escape for sign, escape in own.items() if sign.isascii() and sign.isprintable()}
        own = {sign: escape for sign, escape in own.items() if not sign.isalnum()}  # as the n of a line break

        def written(text: str) -> str:
            def escaped(found: re.Match[str]) -> str:
                return own.get(found[0]) or json.dumps(found[0])[1:-1]

            pattern = re.compile(f"[{re.escape(''.join(own))}{_CONTROL}]") if own else _CONTROLS
            text = pattern.sub(escaped, text)
            return f'"{_BEYOND.sub(self._escape, text) if self._escapes else text}"'

        return written

    def _escape(self, found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be")
        codes = (units[position : position + 2].hex() for position in range(0, len(units), 2))
        return "".join(f"\\u{code.upper() if self._big else code}" for code in codes)


def _escaped_sign(escape: re.Match[str]) -> tuple[str, str]:
    """Return what an escape stands for, and the escape."""
    return (chr(int(escape[1], 16)) if escape[1] else escape[2]), escape[0]
