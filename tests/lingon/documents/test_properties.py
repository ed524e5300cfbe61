"""Files of Java: which values are translated, how they are written, and that all else stays byte for byte."""

from __future__ import annotations

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from tests.support.documents import OTHER, other, rewritten, texts_of, translated, values

NAME = "a.properties"
PAIRS = st.dictionaries(st.text("ab.:= \\#\u00e9", min_size=1, max_size=4), values("\n", "\t", "\f"), max_size=4)


@st.composite
def files(draw: st.DrawFn) -> str:
    """Files with comments, blank lines, lines that go on and all separators."""
    found = list[str]()
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    for key, value in draw(PAIRS).items():
        found += draw(st.lists(st.sampled_from(["# a = b\\", "! Tom", "", "  ", "\t# Tom"]), max_size=2))
        separator = draw(st.sampled_from(["=", " = ", ": ", " ", "\t", f" \\{end}  = "]))
        written = javaproperties.escape(value).replace("Tom ", draw(st.sampled_from(["Tom ", f"T\\{end}   om "])))
        found.append(f"{javaproperties.escape(key)}{separator}{written}")
    return end.join(found) + draw(st.sampled_from(["", end]))


@given(files())
def test_a_file_whose_texts_stay_is_written_byte_for_byte(text: str):
    assert translated(NAME, text) == text.encode()


@given(files())
def test_any_text_is_written_so_that_java_reads_it(text: str):
    written = rewritten(NAME, text).decode()
    assert written.isascii()
    assert javaproperties.loads(written) == {key: other(each) for key, each in javaproperties.loads(text).items()}


@given(files())
def test_a_file_in_utf_8_or_latin_1_has_its_characters_as_such(text: str):
    for mark, encoding in ((b"", "utf-8"), (b"\xef\xbb\xbf", "utf-8"), (b"", "latin-1")):
        content = mark + f"# \u00e9 \u00e8\n{text}".encode(encoding)
        written = rewritten(NAME, content)
        assert written.startswith(mark)
        decoded = written.removeprefix(mark).decode(encoding)
        expected = {key: other(each) for key, each in javaproperties.loads(text).items()}
        assert javaproperties.loads(decoded) == expected
        assert not expected or ("\\u4e2d" in decoded.lower()) == (encoding == "latin-1")
        assert not expected or "\u00f6" in decoded


@pytest.mark.parametrize(("escape", "written"), [(r"\u00e9", r"\u4e2d"), (r"\u00E9", r"\u4E2D"), ("", r"\u4E2D")])
def test_escapes_have_the_figures_that_the_file_has(escape: str, written: str):
    assert translated(NAME, f"a=Tom {escape}q", lambda text: text.replace("q", "\u4e2d")).decode().endswith(written)


@pytest.mark.parametrize(
    ("value", "text", "translation", "written"),
    [
        ("It''s {0}", "It's {0}", "C'est l'{0}", "C''est l''{0}"),
        ("Hi {0}", "Hi {0}", "l'{0}", "l''{0}"),
        ("Hi {0,number,#.#}", "Hi {0,number,#.#}", "d'{0,number,#.#}", "d''{0,number,#.#}"),
        ("It's", "It's", "C'est l'eau", "C'est l'eau"),
        ("It''s", "It''s", "l'eau", "l'eau"),
        ("It's {0}", "It's {0}", "l'{0}", r"l\u2019{0}"),
        ("A '{'b'}' {0}", "A {1}b{2} {0}", "l'{1}b{2} {0}", "l'''{'b'}' {0}"),
    ],
)
def test_apostrophes_are_doubled_where_messageformat_reads_them_so(
    value: str, text: str, translation: str, written: str
):
    assert texts_of(NAME, f"a={value}") == [text]
    assert translated(NAME, f"a={value}", lambda _: translation).decode() == f"a={written}"
    assert translated(NAME, f"a={value}").decode() == f"a={value}"


def test_signs_that_a_value_escapes_are_escaped_in_its_translation():
    assert translated(NAME, r"a=Tom\: q\!", lambda text: text.replace("q", "a:b!c=")) == rb"a=Tom\: a\:b\!c=\!"


def test_only_values_with_words_are_translated():
    text = "a=\nb\nc=https://example.com\nd=#ff00ff\ne=42\n=Tom\nf=btn_ok\n# g=Tim\n"
    assert texts_of(NAME, text) == ["Tom"]


def test_a_value_that_begins_with_a_blank_keeps_it():
    assert translated(NAME, "a = \\ Tom", lambda text: f"  {text.strip()}") == b"a = \\  Tom"


def test_a_wrong_escape_is_refused_in_one_line_that_names_the_place():
    with pytest.raises(UnreadableDocument, match=r"line 2, column 7: .u needs four hexadecimal figures"):
        read_document(NAME, rb"a=b" b"\n" rb"c=Tom \u12x4")
    assert texts_of(NAME, r"a=Tom \\u12") == [r"Tom \u12"]


def test_other_texts_are_in_the_tests():
    assert {*'\u00f6"\\#:/\u4e2d\U0001f600'} <= set(OTHER)
