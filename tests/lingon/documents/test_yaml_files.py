"""YAML files: which strings are translated, how they are written, and that all else stays byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from tests.support.documents import OTHER, other, rewritten, texts_of, translated, values, with_others

TEXTS = values("\n", "\n\n", "\n  ", "'", "  ", "- ", "@", "[", "}")
NUMBERS = st.none() | st.booleans() | st.integers()


def indented(text: str, blanks: str) -> str:
    return "\n".join(f"{blanks}{line}" if line else "" for line in text.split("\n"))


@st.composite
def files(draw: st.DrawFn) -> str:
    """Files with scalars of all styles, comments and blank lines."""
    found = list[str]()
    for number in range(draw(st.integers(1, 5))):
        text = draw(TEXTS)
        single, double = text.replace("'", "''"), text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        found += draw(st.lists(st.sampled_from(["# Tom: q", ""]), max_size=1))
        chomp = draw(st.sampled_from(["", "-", "+"]))
        one_line = text.replace("\n", " ")
        written = draw(
            st.sampled_from(
                [
                    f'"{double}"   # q',
                    "'" + single.replace("\n", " ") + "'",
                    f"&anchor{number} '{single.replace(chr(10), ' ')}'",
                    f"!!str 'Tom {number} q'",
                    f"|{chomp}\n{indented(text, '   ')}\n",
                    f">{chomp} # q\n{indented(text, '    ')}\n\n",
                    f"[12, '{single.replace(chr(10), ' ')}', yes, Tom q]",
                    f'{{a: "{double}", b: 1}}',
                    "\n" + indented(f"- Tom q\n- '{single.replace(chr(10), ' ')}'\n- *other", "    "),
                    f"Tom q {number}\n    and more # q",
                    one_line,
                ]
            )
        )
        found.append(f"  k{number}: {written}")
    text = "\n".join(["root:", "  o: &other Tim", *found, ""])
    return text


def loaded(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


@settings(max_examples=40)
@given(files())
def test_a_file_whose_texts_stay_is_written_byte_for_byte(text: str):
    assume(loaded(text) is not None)
    for content in (text.encode(), text.encode("utf-8-sig"), text.replace("\n", "\r\n").encode()):
        assert translated("a.yml", content) == content


@settings(max_examples=40)
@given(files())
def test_any_text_is_written_so_that_yaml_reads_it(text: str):
    assume(loaded(text) is not None)
    for content in (text, text.replace("\n", "\r\n")):
        written = rewritten("a.yaml", content).decode()
        assert yaml.safe_load(written) == with_others(yaml.safe_load(content))
        assert all(line in written for line in text.splitlines() if line.startswith("#"))


@given(TEXTS)
def test_a_text_stays_in_the_style_of_its_scalar(text: str):
    one_line = text.replace("\n", " ")
    single = one_line.replace("'", "''")
    written = rewritten("a.yml", f"a: '{single}'\n").decode()
    assert written == "a: '" + other(one_line).replace("'", "''") + "'\n"
    lines = [line.strip() or "x" for line in text.split("\n")]
    block = "a: |-\n" + "".join(f"    {line}\n" for line in lines) + "b: 1\n"
    assert rewritten("a.yml", block).decode() == block.replace("q", OTHER)


@pytest.mark.parametrize(
    ("source", "text", "written"),
    [
        ("a: Tom", "Tim Baker", "a: Tim Baker"),
        ("a: Tom", "yes", 'a: "yes"'),
        ("a: Tom", "12", 'a: "12"'),
        ("a: Tom", "2024-01-01", 'a: "2024-01-01"'),
        ("a: Tom", "a: b", 'a: "a: b"'),
        ("a: Tom", "a #b", 'a: "a #b"'),
        ("a: Tom", "a:b#c, [d]", "a: a:b#c, [d]"),
        ("a: Tom", "- a", 'a: "- a"'),
        ("a: Tom", "%a", 'a: "%a"'),
        ("a: Tom", "a\u00a0b \u2013 c", "a: a\u00a0b \u2013 c"),
        ("a: Tom", "a\u2028b", 'a: "a\\u2028b"'),
        ("a: [Tom, Tim]", "x, y", 'a: ["x, y", "x, y"]'),
        ("a: 'Tom'", "it's", "a: 'it''s'"),
        ('a: "T\\u00e9m"', "T\u00f6m\u4e2d", 'a: "T\\xf6m\\u4e2d"'),
        ('a: "T\u00e9m"', "T\u00f6m\u4e2d", 'a: "T\u00f6m\u4e2d"'),
        ("a: >\n  Tom\n", "x " * 60 + "x", f"a: >\n{('  ' + 'x ' * 19 + 'x' + chr(10)) * 3}  x\n"),
        ("a: >-\n  Tom\n\nb: 1\n", "Tim  Tam", "a: >-\n  Tim  Tam\n\nb: 1\n"),
        ("a: |2\n  Tom\n", "Tim", "a: |2\n  Tim\n"),
        ("a:\n  b: |2\n    Tom\n", "Tim", 'a:\n  b: "Tim\\n"\n'),
    ],
)
def test_a_translation_is_written_plainly_where_it_means_the_same(source: str, text: str, written: str):
    assert translated("a.yml", source, lambda _: text).decode() == written


RAILS = """# The texts of a shop
en: # English
  hello: Hello %{name}
  date:
    formats: {default: "%Y-%m-%d"}
    order:
      - :year
  items: &items
    one: one item
    other: "%{count} items"
  things:
    <<: *items
    flow: {one: a thing, other: things}
  "on": true
"""


def test_a_file_of_rails_gets_the_language_and_the_forms_that_it_has():
    expected = RAILS.replace("en:", "pl:").replace("Hello %{name}", "HELLO %{NAME}").replace("one item", "ONE ITEM")
    expected = expected.replace(
        '    other: "%{count} items"',
        "".join(f'    {form}: "%{{COUNT}} ITEMS"\n' for form in ("few", "many", "other"))[:-1],
    )
    expected = expected.replace("a thing, other: things", "A THING, few: THINGS, many: THINGS, other: THINGS")
    assert translated("en.yml", RAILS, str.upper, "pl").decode() == expected
    assert yaml.safe_load(expected)["pl"]["things"]["few"] == "%{COUNT} ITEMS"


@pytest.mark.parametrize(
    ("root", "target", "written"),
    [
        ("en", "de", "de"),
        ("en", "EN", "en"),
        ("'en'", "no", "'no'"),
        ("en", "no", '"no"'),
        ("pt-BR", "pt", "pt"),
        ("app", "de", "app"),
    ],
)
def test_the_language_at_the_root_is_written_as_the_key_was(root: str, target: str, written: str):
    found = translated("a.yml", f"{root}:\n  a: Tom\n", str, target).decode()
    assert found == f"{written}:\n  a: Tom\n"


def test_a_language_that_is_not_given_is_named():
    assert read_document("en.yml", RAILS.encode()).notes == [
        "the file says en at its root still: the target language was not given"
    ]
    assert read_document("a.yml", b"app:\n  a: Tom\n").notes == []


def test_only_strings_are_translated_and_neither_keys_nor_names_of_programs():
    text = "Tom: Tim\na: 12\nb: 2024-01-01\nc: ~\nd: yes\ne: https://example.com\nf: btn_ok\ng: !ruby/x Tom\n"
    text += "h: '12'\ni: ''\nj:\n? [a b, c d]\n: Baker Street\n--- \nk: Second document\n"
    assert texts_of("a.yml", text) == ["Tim", "Baker Street", "Second document"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b\n c: d\n", "the YAML in the file is broken at line 2, column 3: mapping values are not allowed"),
        ('a: "b\n', "the YAML in the file is broken at line 2, column 1: found unexpected end of stream"),
        ("a: \x01\n", "the YAML in the file is broken at line 1, column 4: a character is not allowed"),
        ("a: *b\n", ""),
        ("[" * 70, "values are in more than 64 others"),
        ("en:\n  a: Tom\nde:\n  a: Tim\n", "a file of texts must be in one language, got 2: en, de"),
        ("[" + "1," * 20 + "1]", "the file has more than 20 values"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_that_names_the_place(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    if "20 values" in message:
        monkeypatch.setattr("lingon.documents.yaml_files.MOST_NODES", 20)
    if not message:  # an alias of nothing: nothing is to be translated
        assert texts_of("a.yml", text) == []
        return
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.yml", text.encode())
    assert message in str(error.value)
    assert "\n" not in str(error.value)
