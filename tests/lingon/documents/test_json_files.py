"""JSON files of texts: what is translated, what stays byte for byte, and the plural forms that are added."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document, suffix_of
from tests.support.documents import rewritten, texts_of, translated, values, with_others

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
FILES = st.recursive(
    values("\n", "\t", "\x01", "\u2028") | SCALARS,
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text("ab.c\u00e9", max_size=3), inside, max_size=3)
    ),
    max_leaves=12,
)


def layouts(value: Any) -> list[str]:
    return [
        json.dumps(value),
        json.dumps(value, indent=2, ensure_ascii=False) + "\n",
        "\ufeff" + json.dumps(value, indent="\t").replace("\n", "\r\n"),
        json.dumps(value, indent=4, separators=(" ,", " : "), ensure_ascii=False),
    ]


@given(FILES)
def test_a_file_whose_texts_stay_is_written_byte_for_byte(value: Any):
    for text in layouts(value):
        assert translated("a.json", text) == text.encode()


@given(FILES)
def test_any_text_is_written_so_that_json_reads_it(value: Any):
    for text in layouts(value):
        assert json.loads(rewritten("a.json", text).decode("utf-8-sig")) == with_others(value)


def test_only_strings_are_translated_and_neither_keys_nor_names_of_programs():
    text = (
        '{"Tom": "Open file", "b": ["Save", 1, 2.5e3, true, null], "url": "https://example.com/a?b=1", "c": "#ffcc00", '
        '"d": "btn_ok", "e": "", "f": "12:30", "g": "{{count}}", "h": "%s: %d", "i": "text/html", "j": "app.title", '
        '"k": "{name}", "l": "$t(a.b)", "m": "https://example.com/a {{b}}"}'
    )
    assert texts_of("a.json", text) == ["Open file", "Save"]


@pytest.mark.parametrize(
    ("literal", "written"),
    [
        (r'"Caf\u00e9 q"', r'"Caf\u00e9 \u0142\ud83d\ude00"'),
        (r'"Caf\u00E9 q"', r'"Caf\u00E9 \u0142\uD83D\uDE00"'),
        ('"Café q"', '"Café ł😀"'),
        (r'"a\/b c q"', '"a\\/b c ł😀"'),
        (r'"a \u003cb\u003e q"', r'"a \u003cb\u003e ' + '\\u0142\\ud83d\\ude00"'),
        ('"a q"', '"a ł😀"'),
    ],
)
def test_characters_are_escaped_as_the_file_escapes_them(literal: str, written: str):
    if "003c" in literal:  # which is no escape of a character beyond ASCII
        written = '"a \\u003cb\\u003e ł😀"'
    assert translated("a.json", f"[{literal}]", lambda text: text.replace("q", "ł😀")).decode() == f"[{written}]"


def test_all_values_of_a_key_that_is_there_twice_are_translated():
    assert translated("a.json", '{"a": "Tom", "a": "Tim"}', str.upper) == b'{"a": "TOM", "a": "TIM"}'


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("de", '{\n  "a_one": "ONE FILE",\n  "a_other": "FILES"\n}'),
        ("", '{\n  "a_one": "ONE FILE",\n  "a_other": "FILES"\n}'),
        ("ja", '{\n  "a_one": "ONE FILE",\n  "a_other": "FILES"\n}'),
        ("pl", '{\n  "a_one": "ONE FILE",\n  "a_few": "FILES",\n  "a_many": "FILES",\n  "a_other": "FILES"\n}'),
        (
            "ar",
            '{\n  "a_one": "ONE FILE",\n  "a_zero": "FILES",\n  "a_two": "FILES",\n  "a_few": "FILES",\n'
            '  "a_many": "FILES",\n  "a_other": "FILES"\n}',
        ),
        ("xx-none", '{\n  "a_one": "ONE FILE",\n  "a_other": "FILES"\n}'),
    ],
)
def test_forms_that_the_language_has_are_added_to_a_plural_of_i18next(target: str, expected: str):
    text = '{\n  "a_one": "one file",\n  "a_other": "files"\n}'
    assert translated("a.json", text, str.upper, target).decode() == expected


def test_forms_are_added_to_ordinals_and_to_forms_without_words_and_to_none_that_are_there():
    text = (
        '{"a_ordinal_one": "{{n}}st", "a_ordinal_other": "{{n}}th", "b_one": "Tom", "b_few": "x y", "b_other": "{{n}}"}'
    )
    assert list(json.loads(translated("a.json", text, str, "fr"))) == [
        *("a_ordinal_one", "a_ordinal_other", "b_one", "b_few", "b_many", "b_other"),
    ]
    found = json.loads(translated("a.json", text, str, "ru"))
    assert (found["b_many"], found["b_few"], "b_zero" in found) == ("{{n}}", "x y", False)


@pytest.mark.parametrize(
    ("target", "keys"),
    [
        ("de", ["a", "a_plural"]),
        ("pl", ["a_0", "a", "a_1", "a_2", "a_plural"]),
        ("ja", ["a", "a_0", "a_plural"]),
        ("ar", ["a_1", "a", "a_0", "a_2", "a_3", "a_4", "a_5", "a_plural"]),
    ],
)
def test_forms_of_i18next_3_are_numbered_and_the_singular_is_that_of_one(target: str, keys: list[str]):
    found = json.loads(translated("a.json", '{"a": "file", "a_plural": "files"}', str.upper, target))
    assert list(found) == keys
    singular = "a_1" if target == "ar" else "a_0"
    more = {key for key in keys if key not in ("a", singular)} if target != "ja" else {"a_0", "a_plural"}
    assert {key: text for key, text in found.items() if text == "FILES"}.keys() == more


def test_forms_in_an_object_of_their_own_are_those_of_a_plural():
    text = '{"a": {"one": "file", "other": "files"}, "b": {"one": "x y", "other": "z y", "title": "Tom"}}'
    found = json.loads(translated("a.json", text, str.upper, "ru"))
    assert found["a"] == {"one": "FILE", "few": "FILES", "many": "FILES", "other": "FILES"}
    assert list(found["b"]) == ["one", "other", "title"]


def test_only_messages_of_a_file_of_chrome_are_translated_and_its_places_are_kept():
    text = (
        '{"a": {"message": "Hi $USER$, pay $1 or $$5", "description": "Tom", "placeholders": {"user": {"content": '
        '"$1", "example": "Tom Baker"}}}, "b": {"message": "Yes"}}'
    )
    assert texts_of("messages.json", text) == ["Hi {0}, pay {1} or {2}5", "Yes"]
    written = translated("messages.json", text, lambda text: text.replace("Hi {0}, pay {1}", "{1} {0}"))
    assert written.decode() == text.replace("Hi $USER$, pay $1", "$1 $USER$")


def test_links_to_other_texts_are_kept():
    text = '{"a": "See $t(a.b, {\\"n\\": 1}) and @:common.name, @.lower:(x.y) of me@example.com"}'
    assert texts_of("a.json", text) == ["See {0} and {1}, {2} of me@example.com"]
    assert translated("a.json", text) == text.encode()


def test_a_file_of_flutter_says_its_language_and_keeps_what_describes_texts():
    text = '{"@@locale": "en", "a": "Tom", "@a": {"description": "a name", "placeholders": {}}, "@@x": "Tim"}'
    expected = text.replace('"en"', '"pt_BR"').replace('"a": "Tom"', '"a": "TOM"')
    for name in ("app_en.arb", "a.json"):
        assert translated(name, text, str.upper, "pt-BR").decode() == expected
    assert texts_of("a.arb", text) == ["Tom"]


def test_a_place_that_a_translation_has_lost_or_doubled_leaves_the_text_as_it_was_and_is_named():
    for wrong in ("Hi!", "Hi {0} and {0}", "Hi {0} {1}"):
        text = '{"a": {"message": "Hi $USER$"}}'
        expected = text if wrong != "Hi {0} {1}" else '{"a": {"message": "Hi $USER$ {1}"}}'
        document = read_document("messages.json", text.encode())
        assert document.write([wrong]).decode() == expected
        note = "texts that stay as they are, since their translations lack placeholders: 1"
        assert document.notes == ([note] if expected == text else [])


def test_a_language_at_the_root_becomes_that_of_the_translation():
    text = '{"en": {"a": "Tom"}}'
    assert translated("a.json", text, str.upper, "de") == b'{"de": {"a": "TOM"}}'
    document = read_document("a.json", text.encode())
    assert document.write(list(document.texts)) == text.encode()
    assert document.notes == ["the file says en at its root still: the target language was not given"]
    for other_text in ('{"en": "Tom"}', '{"app": {"a": "Tom"}}', '["en", {"a": "Tom"}]'):
        assert translated("a.json", other_text, target="de") == other_text.encode()
    with pytest.raises(UnreadableDocument, match="a file of texts must be in one language, got 2: en, de"):
        read_document("a.json", b'{"en": {"a": "Tom"}, "de": {"a": "Tim"}}', "de")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "b"', "line 1, column 10: a comma is missing"),
        ('{\n "a" "b"}', "line 2, column 6: a colon is missing"),
        ('{\n "a": }', "line 2, column 7: a value is missing"),
        ('{\n "a": "b",\n}', "line 3, column 1: a key in quotation marks is missing"),
        ('["a", 01]', "line 1, column 8: a comma is missing"),
        ('["a\n"]', "line 1, column 4: a string has a wrong character"),
        ('["a', "line 1, column 2: a string has no end"),
        ('["\\x"]', "line 1, column 3: a string has a wrong character"),
        ('{"a": 1} x', "line 1, column 10: a value is followed by something else"),
        ("// Tom\n{}", "line 1, column 1: a value is missing"),
        ("", "line 1, column 1: a value is missing"),
        ("[" * 65 + "]" * 65, "line 1, column 65: values are in more than 64 others"),
        ("[" + "1," * 20 + "1]", "the file has more than 20 values"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_that_names_the_place(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "lingon.documents.json_files.MOST_VALUES",
        20 if "values" in message and "64" not in message else 1000,
    )
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.json", text.encode())
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b'{"a": "Tom"}', ".json"),
        (b'\xef\xbb\xbf [\n"Tom", 1]\n', ".json"),
        (b"{Tom}", ".txt"),
        (b"[1] Tom says so.", ".txt"),
        (b'{"a": "Tom"', ".txt"),
        (b'"Tom"', ".txt"),
    ],
)
def test_a_file_without_a_name_is_json_if_it_is_so_as_a_whole(content: bytes, suffix: str):
    assert suffix_of(content) == suffix


def test_texts_with_half_a_character_stay_and_are_named():
    document = read_document("a.json", b'{"a": "Tom \\ud800", "b": "Tim"}')
    assert list(document.texts) == ["Tim"]
    assert document.write(["TIM"]) == b'{"a": "Tom \\ud800", "b": "TIM"}'
    assert document.notes == ["texts that stay as they are, since no text has characters such as U+0000: 1"]
