"""Files of Apple: which strings are translated, how they are written, and that all else stays byte for byte."""

from __future__ import annotations

import json
import plistlib
from typing import Any
from xml.sax.saxutils import escape

import openstep_plist
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from tests.support.documents import OTHER, other, rewritten, texts_of, translated, values

TEXTS = values("\n", "\t", "%@", "%1$@", "%#@n@")


def quoted(text: str, *, raw_lines: bool) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{text if raw_lines else text.replace(chr(10), chr(92) + "n")}"'


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """A .strings file and what is in it."""
    end = draw(st.sampled_from(["\n", "\r\n", " "]))
    pairs = draw(st.dictionaries(st.text('ab"\\.\u00e9', min_size=1, max_size=3), TEXTS, max_size=4))
    found = list[str]()
    for number, (key, value) in enumerate(pairs.items()):
        comment = draw(st.sampled_from(["", '/* "a" = "b"; ** / */', "/***/", "/* q\n */"]))
        equals = draw(st.sampled_from([" = ", "=", " /* = */ = "]))
        found.append(f"{comment}{quoted(key, raw_lines=False)}{equals}{quoted(value, raw_lines=number % 2 > 0)} ;")
    return end.join(found) + draw(st.sampled_from(["", "\n", "\n// Tom q\n"])), pairs


@given(files())
def test_a_file_whose_texts_stay_is_written_byte_for_byte(file: tuple[str, dict[str, str]]):
    text, pairs = file
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        content = text.encode(encoding)
        if pairs or not encoding.startswith("utf-16-"):
            assert translated("a.strings", content) == content


@given(files())
def test_any_text_is_written_so_that_it_is_read(file: tuple[str, dict[str, str]]):
    text, pairs = file
    for encoding in ("utf-8", "utf-16"):
        written = rewritten("a.strings", text.encode(encoding)).decode(encoding)
        found = openstep_plist.loads(written, use_numbers=False) if pairs else {}
        assert found == {key: other(value) for key, value in pairs.items()}


@pytest.mark.parametrize("letter", ["U", "u"])
def test_a_file_with_escapes_has_escapes(letter: str):
    text = f'"a" = "Tom \\{letter}00e9 q";'
    assert translated("a.strings", text, lambda each: each.replace("q", "\u4e2d\U0001f600")).decode() == (
        f'"a" = "Tom \\{letter}00e9 \\{letter}4e2d\\{letter}d83d\\{letter}de00";'
    )


def test_keys_without_quotation_marks_and_values_that_are_keys_are_read():
    text = 'CFBundleName = "Tom";\n"Open file";\nb.c-d = Tim;\n'
    expected = 'CFBundleName = "TOM";\n"Open file" = "OPEN FILE";\nb.c-d = "TIM";\n'
    assert translated("InfoPlist.strings", text, str.upper).decode() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"a" = "Tom"\n"b" = "c";', "line 2, column 1: a semicolon is missing"),
        ('"a" "Tom";', "line 1, column 5: an equal sign is missing"),
        ('"a" = "Tom;', "line 1, column 7: a string is missing or has no end"),
        ('"a" = ;', "line 1, column 7: a string is missing or has no end"),
        ("/* a\n", "line 1, column 1: a comment has no end"),
        ('"a" = "b \\342";', "line 1, column 10: the escape .342 is not read; write .U and 4 figures"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_that_names_the_place(text: str, message: str):
    with pytest.raises(UnreadableDocument, match=message):
        read_document("a.strings", text.encode())


def entry(other: str, *, one: str = "Tom", format: str = "%#@n@") -> str:
    forms = "".join(
        f"\n\t\t<key>{form}</key>\n\t\t<string>{escape(text)}</string>"
        for form, text in {"one": one, "other": other}.items()
    )
    return (
        f"\n<key>%d files \u00e9</key>\n<dict><key>NSStringLocalizedFormatKey</key><string>{escape(format)}</string>"
        "<key>n</key>\n\t<dict>\n\t\t<key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>"
        f"<key>NSStringFormatValueTypeKey</key>\n\t\t<string>lld</string>{forms}\n\t</dict></dict>"
    )


def plist(body: str) -> str:
    doctype = '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{doctype}\n<plist version="1.0"><dict>{body}\n</dict></plist>\n'


def forms_of(content: bytes) -> dict[str, Any]:
    return plistlib.loads(content)["%d files \u00e9"]["n"]


@given(values("%d", "\n", "%#@m@"))
def test_a_stringsdict_is_written_byte_for_byte_but_for_its_texts(text: str):
    file = plist(entry(text))
    assert translated("a.stringsdict", file) == file.encode()
    written = rewritten("a.stringsdict", file)
    assert forms_of(written) | {"other": text} == forms_of(file.encode())
    assert forms_of(written)["other"] == other(text)
    assert written.decode().replace(escape(other(text)), escape(text)) == file


@pytest.mark.parametrize(("target", "added"), [("de", []), ("ru", ["few", "many"]), ("ja", []), ("", [])])
def test_a_stringsdict_has_the_forms_of_the_language(target: str, added: list[str]):
    written = translated("a.stringsdict", plist(entry("files %lld")), str.upper, target)
    found = forms_of(written)
    assert {form: found.get(form) for form in added} == dict.fromkeys(added, "FILES %LLD")
    assert (found["one"], found["other"]) == ("TOM", "FILES %LLD")
    assert len(found) == 4 + len(added)
    assert written.decode().count("\n\t\t<key>") == 3 + len(added)


def test_only_forms_and_formats_of_a_stringsdict_are_translated():
    rule = "<key>NSStringVariableWidthRuleType</key><dict><key>20</key><string>Wide</string></dict>"
    widths = f"<key>a</key><dict>{rule}</dict>"
    file = plist(entry("%d files", format="See %#@n@!") + widths)
    assert texts_of("a.stringsdict", file) == ["See {0}!", "Tom", "%d files", "Wide"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<plist><dict><key>a</key></dict></plist>", "has a key without a value"),
        ("<plist><dict><string>a</string><key>a</key></dict></plist>", "has a key without a value"),
        ("<a/>", "the file is no property list"),
        ("<plist>", "not well-formed at line 1"),
    ],
)
def test_a_broken_stringsdict_is_refused_in_one_line(text: str, message: str):
    with pytest.raises(UnreadableDocument, match=message):
        read_document("a.stringsdict", text.encode())


def test_other_texts_have_what_the_formats_escape():
    assert {*'"\\\u00f6'} <= set(OTHER)


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
