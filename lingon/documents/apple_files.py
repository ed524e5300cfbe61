"""Files of Apple: strings (.strings), plurals (.stringsdict) and string catalogues of Xcode (.xcstrings)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from lingon.documents.document import Document, Edit, UnreadableDocument, check_size, check_tags
from lingon.documents.edits import TextEntry, broken, document_of, replacing, text_and_encoder
from lingon.documents.json_files import JsonValue, StringStyle, read_value
from lingon.documents.messages import Message, Style
from lingon.documents.plurals import CATEGORIES, is_plural, lacking
from lingon.documents.properties import BEYOND, as_escapes, escaping, joined, needless
from lingon.documents.xml_tree import Element, read_tree
from lingon.language_tags import is_same_tag

# Files of Apple (.strings): the values are translated where they are.
# The syntax is that of property lists before XML, as in the Property List Programming Guide, "Old-Style ASCII
# Property Lists". No library that reads such files keeps the positions of values. A file in UTF-16 stays so.

_BETWEEN = re.compile(r"(?:\s++|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\r\n]*+)*+")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"|\'(?:[^\'\\]++|\\.)*+\'|[\w.\-$:/]++', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:[Uu]([0-9A-Fa-f]{4})|([0-7]{1,3})|(.))", re.DOTALL)
_SIGN = re.compile(r"\\.", re.DOTALL)
_CODE = re.compile(r"\\([Uu])([0-9A-Fa-f]{4})")
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _CHARACTERS.items()} | {"\\": "\\\\"}
_LAST_OCTAL = 0x7F  # later ones are of an encoding of their own


def read_apple_strings(content: bytes) -> Document:
    """Return a .strings file. Raises UnreadableDocument."""
    text, encode = text_and_encoder(content)
    return document_of(text, _entries(text), encode)


def _entries(text: str) -> Iterator[TextEntry]:
    code = _CODE.search(text) if text.isascii() else None
    at = _past(text, 0)
    while at < len(text):
        key = begin, end = _string(text, at)
        at = _past(text, end)
        alone = not text.startswith("=", at)
        if not alone:
            begin, end = _string(text, _past(text, at + 1))
            at = _past(text, end)
        if not text.startswith(";", at):
            raise broken(text, at, "text", "a semicolon is missing" if not alone else "an equal sign is missing")
        value, written = _value(text, begin, end), _writer(text[begin:end], code)
        entry = replacing(Message(value, SIGNS), begin, end, value, written)
        yield _after_key(entry, key[1]) if alone else entry
        at = _past(text, at + 1)


def _after_key(entry: TextEntry, end: int) -> TextEntry:
    """Return the entry of a key without a value, which is its own value, with the value written after it."""

    def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
        for edit in entry.edits(translations):
            yield Edit(end, end, f" = {edit.content}")

    return TextEntry(entry.messages, edits)


def _past(text: str, begin: int) -> int:
    """Return the position after blanks and comments. Raises UnreadableDocument for a comment without an end."""
    found = _BETWEEN.match(text, begin)
    assert found is not None
    if text.startswith("/*", found.end()):
        raise broken(text, found.end(), "text", "a comment has no end")
    return found.end()


def _string(text: str, begin: int) -> tuple[int, int]:
    found = _STRING.match(text, begin)
    if found is None:
        raise broken(text, begin, "text", "a string is missing or has no end")
    return found.span()


def _value(text: str, begin: int, end: int) -> str:
    """Return what a string says."""
    if text[begin] not in "\"'":
        return text[begin:end]

    def character(escape: re.Match[str]) -> str:
        code, octal, sign = escape.groups()
        if octal and int(octal, 8) > _LAST_OCTAL:
            raise broken(
                text, begin + 1 + escape.start(), "text", f"the escape \\{octal} is not read; write \\U and 4 figures"
            )
        if sign:
            return _CHARACTERS.get(sign, "" if sign == "\n" else sign)
        return chr(int(code, 16) if code else int(octal, 8))

    return joined(_ESCAPE.sub(character, text[begin + 1 : end - 1]))


def _writer(literal: str, code: re.Match[str] | None) -> Callable[[str], str]:
    """Return what writes a string like a literal; code: an escape of a file that has no character beyond ASCII."""
    quote = literal[0] if literal[0] in "\"'" else '"'
    signs = {**needless(literal, _SIGN), **_ESCAPES, quote: f"\\{quote}"}
    if "\n" in literal or "\r" in literal:
        del signs["\n"], signs["\r"]
    escaped = escaping(signs)

    def written(text: str) -> str:
        found = escaped(text)
        if code is not None:
            found = BEYOND.sub(lambda each: as_escapes(each[0], code[1], big=code[2].upper() == code[2]), found)
        return f"{quote}{found}{quote}"

    return written


# String catalogues of Xcode (.xcstrings): each text without a translation gets one in the target language.
# A new translation has the state `needs_review`. All else in the file is copied byte for byte.

SIGNS = Style(kept=re.compile(r"%(?:\d{1,3}+\$)?#@\w{1,100}+@|%(?:\d{1,3}+\$)?arg\b"), is_icu=False)
_NEW = {"state": "needs_review"}
_DEPTH = 2  # of the entries of a catalogue in objects

LocalisationModel = dict[str, "LocalisationModel"] | str | int
"""A localisation that is to be written: a number stands for the translation of the text of this number."""


def read_catalogue(content: bytes, target: str = "") -> Document:
    """Return a string catalogue. Raises UnreadableDocument. target: the language to translate to, which it needs."""
    text, encode = text_and_encoder(content)
    root = read_value(text)
    strings, source = root.member("strings"), root.string("sourceLanguage")
    if strings is None or strings.kind != "object" or not source:
        raise UnreadableDocument("the file is no string catalogue: it lacks sourceLanguage or strings")
    if not target:
        raise UnreadableDocument("a string catalogue has several languages; say which one to translate to")
    if is_same_tag(source, target):
        raise UnreadableDocument(f"the texts of the string catalogue are in {source[:40]} already")
    catalogue = _Catalogue(text, root, source, target)
    entries = [entry for each in strings.members if (entry := catalogue.entry(each)) is not None]
    found = document_of(text, entries, encode)
    if catalogue.partial:
        found.notes.append(
            f"texts that stay as they are, since some of their forms are translated: {catalogue.partial:,}"
        )
    return found


class _Catalogue:
    """A catalogue that is read, and how it is written.

    Xcode writes each member in a line of its own, with two blanks for a level and ` : ` after a key.
    partial: how many entries have some of their forms in the target language, which stay
    """

    def __init__(self, text: str, root: JsonValue, source: str, target: str) -> None:
        first = root.members[0]
        before = text[root.begin + 1 : first.key_begin]
        self.partial = 0
        self._text, self._source, self._target = text, source, target
        self._string = StringStyle(text).like("")
        self._colon = text[first.key_end : first.begin]
        self._end = "\r\n" if "\r" in before else "\n" if before else ""
        self._comma = ", " if not self._end and self._colon.endswith(" ") else ","
        self._level = before.lstrip("\r\n")

    def entry(self, unit: JsonValue) -> TextEntry | None:
        """Return an entry of the catalogue, or None if it is not to be translated."""
        translate = unit.member("shouldTranslate")
        if unit.kind != "object" or not unit.key or (translate and self._written_at(translate) == "false"):
            return None
        positions = unit.member("localizations")
        old = _of_language(positions, self._target)
        if old is not None and (states := [_is_open(each) for each in _units(old)]) and not all(states):
            self.partial += any(states)
            return None
        values: list[str] = []
        source = _of_language(positions, self._source)
        known = source is not None and any(each.string("value") for each in _units(source))
        model: LocalisationModel = (
            self._model(source, values) if source is not None and known else _unit(unit.key, values)
        )

        def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
            if old is not None:
                yield Edit(old.begin, old.end, self._written(model, _DEPTH + 2, translations))
            elif positions is not None:
                yield self._inserted(positions, self._target, model, _DEPTH + 1, translations)
            else:
                yield self._inserted(unit, "localizations", {self._target: model}, _DEPTH, translations)

        return TextEntry([Message(value, SIGNS) for value in values], edits)

    def _model(self, value: JsonValue, values: list[str]) -> LocalisationModel:
        """Return the localisation of a language as that of the target. Adds its texts to `values`."""
        if value.kind != "object":
            return -1 - value.begin  # a number or the like, see `_written`
        text = value.string("value")
        if text is not None and value.member("state") is not None:
            return _unit(text, values)["stringUnit"]
        found: dict[str, LocalisationModel] = {}
        for each in value.members:
            found[each.key] = each.text if each.kind == "string" else self._model(each, values)
        if is_plural(tuple(found)):
            found |= dict.fromkeys(lacking(tuple(found), self._target), found["other"])
            found = {key: found[key] for key in sorted(found)}
        return found

    def _written(self, model: LocalisationModel, depth: int, translations: Sequence[str]) -> str:
        """Return a localisation whose closing bracket is at a depth."""
        if isinstance(model, str):
            return self._string(model)
        if isinstance(model, int):
            return self._string(translations[model]) if model >= 0 else self._number_at(-1 - model)
        begin = self._end + self._level * (depth + 1)
        members = (
            f"{begin}{self._string(key)}{self._colon}{self._written(each, depth + 1, translations)}"
            for key, each in model.items()
        )
        return f"{{{self._comma.join(members)}{self._end}{self._level * depth}}}"

    def _inserted(
        self, position: JsonValue, key: str, model: LocalisationModel, depth: int, translations: Sequence[str]
    ) -> Edit[str]:
        """Return the edit that adds a member to an object, before the one with the next key in alphabetical order."""
        if not position.members:
            return Edit(position.begin, position.end, self._written({key: model}, depth, translations))
        begin = self._end + self._level * (depth + 1)
        member = f"{self._string(key)}{self._colon}{self._written(model, depth + 1, translations)}"
        following = next((each for each in position.members if each.key > key), None)
        if following is None:
            end = position.members[-1].end
            return Edit(end, end, f"{self._comma}{begin}{member}")
        return Edit(following.key_begin, following.key_begin, f"{member}{self._comma}{begin}")

    def _written_at(self, value: JsonValue) -> str:
        return self._text[value.begin : value.end]

    def _number_at(self, begin: int) -> str:
        found = re.compile(r"[^\s,}\]]++").match(self._text, begin)
        return found[0] if found else "null"


def _unit(value: str, values: list[str]) -> dict[str, LocalisationModel]:
    values.append(value)
    return {"stringUnit": {**_NEW, "value": len(values) - 1}}


def _of_language(positions: JsonValue | None, language: str) -> JsonValue | None:
    members = positions.members if positions is not None else ()
    return next((each for each in members if is_same_tag(each.key, language)), None)


def _units(value: JsonValue) -> Iterator[JsonValue]:
    """Yield the string units of a localisation."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each.key == "stringUnit":
            yield each
        else:
            waiting += each.members


def _is_open(unit: JsonValue) -> bool:
    """Return whether a string unit is still to be translated."""
    return unit.string("state") == "new" or not unit.string("value")


# Plurals of Apple (.stringsdict): the forms of a text are translated where they are.
# A form that the target language has and the file lacks is added before the form `other`, with its translation.

_PLURAL, _KIND = "NSStringPluralRuleType", "NSStringFormatSpecTypeKey"
_FORMAT = "NSStringLocalizedFormatKey"
_VARIANTS = ("NSStringVariableWidthRuleType", "NSStringDeviceSpecificRuleType")


@dataclass(frozen=True, slots=True)
class _Member:
    """A key of a dictionary, in the bytes of the file, and its value."""

    key: Element
    value: Element


def read_stringsdict(content: bytes, target: str = "") -> Document:
    """Return a .stringsdict file. Raises UnreadableDocument.

    target: the language to translate to, empty if not known
    """
    check_size(len(content), "the file has")
    check_tags(content.count(b"<"), "the file has")
    root = read_tree(content, {}, ())
    top = root.child("dict")
    if root.name != "plist" or top is None:
        raise UnreadableDocument("the file is no property list: it lacks <plist> or <dict>")
    text = content.decode("latin-1")  # each character is a byte, as the positions of elements are those of bytes
    entries = (entry for each in _members(top) for entry in _forms_of(each.value, "", text, target))
    return document_of(text, entries, lambda written, _: written.encode("latin-1"))


def _members(dictionary: Element) -> list[_Member]:
    """Return the members of a dictionary."""
    elements = list(dictionary.elements)
    keys, values = elements[::2], elements[1::2]
    if len(keys) != len(values) or any(each.name != "key" for each in keys):
        raise UnreadableDocument("the property list in the file has a key without a value")
    return [_Member(key, value) for key, value in zip(keys, values, strict=True)]


def _forms_of(value: Element, name: str, text: str, target: str) -> Iterator[TextEntry]:
    """Yield the texts of a value; name: the key of the dictionary that it is in, if that says what it is."""
    if value.name != "dict":
        return
    members = _members(value)
    strings = {each.key.text: each for each in members if each.value.name == "string"}
    is_plural = _KIND in strings
    added = lacking(tuple(strings), target) if is_plural and target and "other" in strings else []
    for member in members:
        key = member.key.text
        if member.value.name == "dict":
            yield from _forms_of(member.value, key, text, target)
        elif key == _FORMAT or name in _VARIANTS or (is_plural and key in CATEGORIES):
            yield _entry(member, added if key == "other" else (), text)


def _entry(member: _Member, added: Sequence[str], text: str) -> TextEntry:
    """Return a text; added: forms to put before it with its translation."""
    value, key = member.value, member.key
    message = Message(value.text, SIGNS)
    changed = replacing(message, value.content, value.content_end, value.text, _written)
    if not added:
        return changed
    blanks = text[text.rindex(">", 0, key.begin) + 1 : key.begin]

    def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
        for form in added:
            string = f"<string>{_written(translations[0])}</string>"
            yield Edit(key.begin, key.begin, f"<key>{form}</key>{text[key.end : value.begin]}{string}{blanks}")
        yield from changed.edits(translations)

    return TextEntry([message], edits, always=True)


def _written(text: str) -> str:
    """Return the bytes of a text in the file, each as a character."""
    return escape(text).encode().decode("latin-1")
