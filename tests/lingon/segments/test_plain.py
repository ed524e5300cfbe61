"""A text with markup as plain text and back: unchanged translations give the text again, and spans are found in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.layout import Split, TextLayout
from lingon.segments.markup import PlainText, TooManyKept, WrittenText, read_html, read_xml
from tests.support.documents import ANY_TEXT, WELL_FORMED
from tests.support.timing import run_to_end


def written(seen: PlainText, document: TextLayout, translations: list[str]) -> WrittenText:
    weights = [None] * len(translations)
    return run_to_end(seen.write(document, document.join(translations), weights))


def unchanged(seen: PlainText) -> tuple[TextLayout, WrittenText]:
    """A text whose sentences are translated to themselves."""
    document = TextLayout.of(seen.text, Split.NONEWLINES)
    sentences = [document.segment(index) for index in range(len(document.segments))]
    return document, written(seen, document, sentences)


@given(ANY_TEXT)
def test_html_whose_sentences_are_unchanged_is_the_text_again(text: str):
    assert unchanged(PlainText.of(read_html(text)))[1].text == text


@given(WELL_FORMED)
def test_xml_whose_sentences_are_unchanged_is_the_text_again(text: str):
    assert unchanged(PlainText.of(read_xml(text)))[1].text == text


@given(ANY_TEXT, st.integers(0, 9))
def test_the_spans_of_sentences_are_in_order_and_where_they_are_written(text: str, length: int):
    seen = PlainText.of(read_html(text))
    document = TextLayout.of(seen.text, Split.SENTENCES)
    result = written(seen, document, ["y" * length] * len(document.segments))
    joined = document.join(["y" * length] * len(document.segments))
    sources = [seen.raw_span(*span) for span in document.segments]
    targets = [result.span(*span) for span in joined.spans]
    for spans, whole in ((sources, text), (targets, result.text)):
        ends = [place for span in spans for place in span]
        assert ends == sorted(ends)
        assert not ends or (ends[0] >= 0 and ends[-1] <= len(whole))
    assert all(result.text[begin:end].count("y") >= length for begin, end in targets)


def test_what_is_left_as_it_is_may_change_places():
    seen = PlainText.of(read_html("<p>a <code>1</code> b <code>2</code></p>"))
    _, first, _, second = seen.text.split()
    document = TextLayout.of(seen.text, Split.SENTENCES)
    assert written(seen, document, [f"{second} A {first} B"]).text == "<p><code>2</code> A <code>1</code> B</p>"


def test_the_characters_that_stand_for_elements_are_not_in_the_text():
    text = "\U000f0000 &#xF0001; <code>x</code>"
    assert PlainText.of(read_html(text)).text == "\U000f0000 \U000f0001 \U000f0002"


def test_there_are_not_more_elements_than_characters_to_stand_for_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lingon.segments.markup._PRIVATE_USE", range(0xF0000, 0xF0002))
    with pytest.raises(TooManyKept):
        PlainText.of(read_html("a <code>1</code> <code>2</code> <code>3</code>"))
