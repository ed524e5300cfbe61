"""String catalogues of Xcode (.xcstrings): each text without a translation gets one in the target language.

A new translation has the state `needs_review`. All else in the file is copied byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lingon.documents.document import Document, Edit
from lingon.documents.errors import UnreadableDocument
from lingon.documents.localisation.edits import Entry, document_of, text_and_encoder
from lingon.documents.localisation.json_text import StringStyle, Value, read_value
from lingon.documents.localisation.messages import Message, Style
from lingon.documents.localisation.plurals import is_plural, lacking
from lingon.language_tags import is_same_tag

SIGNS = Style(kept=re.compile(r"%(?:\d{1,3}+\$)?#@\w{1,100}+@|%(?:\d{1,3}+\$)?arg\b"), is_icu=False)
_NEW = {"state": "needs_review"}
_DEPTH = 2  # of the entries of a catalogue in objects

Model = dict[str, "Model"] | str | int
"""A localisation that is to be written: a number stands for the translation of the text of this number."""


def read_catalogue(content: bytes, target: str = "") -> Document:
    """Return a string catalogue; raises UnreadableDocument. target: the language to translate to, which it needs."""
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

    def __init__(self, text: str, root: Value, source: str, target: str) -> None:
        first = root.members[0]
        before = text[root.begin + 1 : first.key_begin]
        self.partial = 0
        self._text, self._source, self._target = text, source, target
        self._string = StringStyle(text).like("")
        self._colon = text[first.key_end : first.begin]
        self._end = "\r\n" if "\r" in before else "\n" if before else ""
        self._comma = ", " if not self._end and self._colon.endswith(" ") else ","
        self._level = before.lstrip("\r\n")

    def entry(self, unit: Value) -> Entry | None:
        """Return an entry of the catalogue; None if it is not to be translated."""
        translate = unit.member("shouldTranslate")
        if unit.kind != "object" or not unit.key or (translate and self._written_at(translate) == "false"):
            return None
        places = unit.member("localizations")
        old = _of_language(places, self._target)
        if old is not None and (states := [_is_open(each) for each in _units(old)]) and not all(states):
            self.partial += any(states)
            return None
        values: list[str] = []
        source = _of_language(places, self._source)
        known = source is not None and any(each.string("value") for each in _units(source))
        model: Model = self._model(source, values) if source is not None and known else _unit(unit.key, values)

        def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
            if old is not None:
                yield Edit(old.begin, old.end, self._written(model, _DEPTH + 2, translations))
            elif places is not None:
                yield self._inserted(places, self._target, model, _DEPTH + 1, translations)
            else:
                yield self._inserted(unit, "localizations", {self._target: model}, _DEPTH, translations)

        return Entry([Message(value, SIGNS) for value in values], edits)

    def _model(self, value: Value, values: list[str]) -> Model:
        """Return the localisation of a language as that of the target; adds its texts to `values`."""
        if value.kind != "object":
            return -1 - value.begin  # a number or the like, see `_written`
        text = value.string("value")
        if text is not None and value.member("state") is not None:
            return _unit(text, values)["stringUnit"]
        found: dict[str, Model] = {}
        for each in value.members:
            found[each.key] = each.text if each.kind == "string" else self._model(each, values)
        if is_plural(tuple(found)):
            found |= dict.fromkeys(lacking(tuple(found), self._target), found["other"])
            found = {key: found[key] for key in sorted(found)}
        return found

    def _written(self, model: Model, depth: int, translations: Sequence[str]) -> str:
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

    def _inserted(self, place: Value, key: str, model: Model, depth: int, translations: Sequence[str]) -> Edit[str]:
        """Return the edit that adds a member to an object, before the one with the next key in alphabetical order."""
        if not place.members:
            return Edit(place.begin, place.end, self._written({key: model}, depth, translations))
        begin = self._end + self._level * (depth + 1)
        member = f"{self._string(key)}{self._colon}{self._written(model, depth + 1, translations)}"
        following = next((each for each in place.members if each.key > key), None)
        if following is None:
            end = place.members[-1].end
            return Edit(end, end, f"{self._comma}{begin}{member}")
        return Edit(following.key_begin, following.key_begin, f"{member}{self._comma}{begin}")

    def _written_at(self, value: Value) -> str:
        return self._text[value.begin : value.end]

    def _number_at(self, begin: int) -> str:
        found = re.compile(r"[^\s,}\]]++").match(self._text, begin)
        return found[0] if found else "null"


def _unit(value: str, values: list[str]) -> dict[str, Model]:
    values.append(value)
    return {"stringUnit": {**_NEW, "value": len(values) - 1}}


def _of_language(places: Value | None, language: str) -> Value | None:
    members = places.members if places is not None else ()
    return next((each for each in members if is_same_tag(each.key, language)), None)


def _units(value: Value) -> Iterator[Value]:
    """Yield the string units of a localisation."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if each.key == "stringUnit":
            yield each
        else:
            waiting += each.members


def _is_open(unit: Value) -> bool:
    """Whether a string unit is still to be translated."""
    return unit.string("state") == "new" or not unit.string("value")
