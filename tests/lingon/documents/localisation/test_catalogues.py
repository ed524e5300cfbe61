"""String catalogues: which texts get a translation, how it is written, and that all else stays byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from tests.support.localised import OTHER, other, texts_of, translated, values

NAME = "Localizable.xcstrings"
CATALOGUE_TEXTS = values("\n", "%@", "%lld", "%#@n@", "%arg")


def unit(value: str, state: str = "translated") -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": value}}


def plural(**forms: str) -> dict[str, Any]:
    return {"variations": {"plural": {form: unit(value) for form, value in forms.items()}}}


def catalogue(strings: dict[str, Any], source: str = "en") -> str:
    """Return a catalogue as Xcode writes it."""
    value = {"sourceLanguage": source, "strings": strings, "version": "1.0"}
    return json.dumps(value, indent=2, separators=(",", " : "), ensure_ascii=False, sort_keys=True)


def localisations(text: bytes, key: str) -> Any:
    return json.loads(text)["strings"][key]["localizations"]


ENTRIES = st.one_of(
    st.just({}),
    st.just({"comment": "Tom"}),
    st.just({"extractionState": "manual", "shouldTranslate": True}),
    CATALOGUE_TEXTS.map(lambda text: {"localizations": {"en": unit(text)}}),
    CATALOGUE_TEXTS.map(lambda text: {"localizations": {"fr": unit(text), "aa": unit("x")}}),
    CATALOGUE_TEXTS.map(lambda text: {"comment": "a", "localizations": {"en": plural(one="Tom", other=text)}}),
    CATALOGUE_TEXTS.map(
        lambda text: {"localizations": {"en": {"variations": {"device": {"mac": unit(text), "other": unit("a b")}}}}}
    ),
)


@given(st.dictionaries(CATALOGUE_TEXTS, ENTRIES, min_size=1, max_size=4))
def test_a_catalogue_is_written_as_xcode_would_write_it_with_the_language_added(strings: dict[str, Any]):
    """Xcode sorts keys, so that what we add must be in its place, with its blanks."""
    text = catalogue(strings)
    written = translated(NAME, text, lambda each: each.replace("q", OTHER.replace("&", "&amp;")), "de")
    expected = json.loads(text)
    for key, entry in expected["strings"].items():
        source = entry.get("localizations", {}).get("en", unit(key))
        entry.setdefault("localizations", {})["de"] = _with_others(source)
    assert written.decode() == catalogue(expected["strings"])


def _with_others(value: Any) -> Any:
    if "state" in value:
        return {"state": "needs_review", "value": other(value["value"])}
    return {key: _with_others(each) for key, each in value.items()}


@pytest.mark.parametrize(
    "entry",
    [
        {"shouldTranslate": False},
        {"localizations": {"de": unit("Tim")}},
        {"localizations": {"de": unit("Tim", "needs_review")}},
        {"localizations": {"DE": unit("Tim")}},
        {"localizations": {"de": plural(one="Tim", other="Tims")}},
        {"localizations": {"en": unit("%lld")}},
    ],
)
def test_an_entry_that_is_translated_or_needs_no_translation_stays_byte_for_byte(entry: dict[str, Any]):
    text = catalogue({"Tom": entry})
    assert (texts_of(NAME, text, "de"), translated(NAME, text, str.upper, "de").decode()) == ([], text)


@pytest.mark.parametrize("old", [unit("", "new"), unit("Tom", "new"), unit("", "translated"), {}])
def test_a_translation_that_is_none_yet_is_replaced(old: dict[str, Any]):
    written = translated(NAME, catalogue({"Tom": {"localizations": {"de": old, "fr": unit("x")}}}), str.upper, "de")
    assert written.decode() == catalogue(
        {"Tom": {"localizations": {"de": unit("TOM", "needs_review"), "fr": unit("x")}}}
    )


def test_an_entry_with_some_forms_translated_stays_and_is_named():
    old = {"variations": {"plural": {"one": unit("Tim"), "other": unit("", "new")}}}
    text = catalogue({"Tom": {"localizations": {"de": old}}})
    document = read_document(NAME, text.encode(), "de")
    assert document.write([]) == text.encode()
    assert document.notes == ["texts that stay as they are, since some of their forms are translated: 1"]


@pytest.mark.parametrize(
    ("target", "forms"),
    [("de", ["one", "other"]), ("ru", ["few", "many", "one", "other"]), ("ja", ["one", "other"])],
)
def test_a_plural_has_the_forms_of_the_language(target: str, forms: list[str]):
    text = catalogue({"n": {"localizations": {"en": plural(one="%lld file", other="%lld files")}}})
    found = localisations(translated(NAME, text, str.upper, target), "n")[target]["variations"]["plural"]
    assert list(found) == forms
    assert {form: each["stringUnit"]["value"] for form, each in found.items()} == {
        form: "%LLD FILE" if form == "one" else "%LLD FILES" for form in forms
    }


def test_substitutions_are_translated_and_their_numbers_and_formats_stay():
    forms = {"argNum": 2, "formatSpecifier": "lld", **plural(one="%arg file", other="%arg files")}
    source = {**unit("See %#@files@"), "substitutions": {"files": forms}}
    text = catalogue({"x": {"localizations": {"en": source}}})
    assert texts_of(NAME, text, "de") == ["See {0}", "{0} file", "{0} files"]
    found = localisations(translated(NAME, text, str.upper, "de"), "x")["de"]
    assert found["stringUnit"] == {"state": "needs_review", "value": "SEE %#@files@"}
    assert found["substitutions"]["files"]["argNum"] == 2
    assert found["substitutions"]["files"]["formatSpecifier"] == "lld"
    assert found["substitutions"]["files"]["variations"]["plural"]["one"] == unit("%arg FILE", "needs_review")


def test_an_empty_object_as_xcode_writes_it_gets_a_localisation():
    text = catalogue({"Tom": {}}).replace('"Tom" : {}', '"Tom" : {\n\n    }')
    assert translated(NAME, text, str, "de").decode() == catalogue(
        {"Tom": {"localizations": {"de": unit("Tom", "needs_review")}}}
    )


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("{}", "de", "the file is no string catalogue"),
        ('{"strings": {}}', "de", "the file is no string catalogue"),
        (catalogue({"Tom": {}}), "", "a string catalogue has several languages; say which one to translate to"),
        (catalogue({"Tom": {}}), "EN", "the texts of the string catalogue are in en already"),
        ('{"strings": }', "de", "the JSON in the file is broken at line 1, column 13"),
    ],
)
def test_what_cannot_be_translated_is_refused_in_one_line(text: str, target: str, message: str):
    with pytest.raises(UnreadableDocument, match=message):
        read_document(NAME, text.encode(), target)
