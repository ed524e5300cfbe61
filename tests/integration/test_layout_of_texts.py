"""Marks of lists, columns, escapes and menus with a real model: each text has the translation that it has alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from lingon import Model, NormalisedText, TextDelta, TextDone
from lingon.client.results import TextResult
from tests.support.repository import scaled
from tests.support.shipped_model import LINES, MODEL

MARKS = ["•", "·", "-", "–", "*", "+", "#", "»", ">", "▪", "‣", "a)", "1)", "1.", "(a)", "(1)", "i.", "iv.", "IV."]
MARKS += ["[ ]", "[x]", "☐", "> -", "- [ ]", "① "]
TEXTS = ["Please close the window.", "bread", "The old man", "Tom lives in Boston. He is tall."]
SEPARATORS = ["\t", " \t ", "    ", r"\n", r"\r\n", r"\t", "\n", "\n\n"]
MENU_SIGNS = [" > ", " | ", " · ", " › ", " » ", " / "]
NAMES = ["Products", "About us", "Contact", "Chairs"]
WITHOUT_LETTERS = ["12:30", "•", "©", "§ 5", "!!!", "_____", "---", "**", "$1,299.99", "5 > 3", "½", "1.", "😀"]
WITHOUT_LETTERS += ["(705) 087-6307", "(70) 5", "1. 12:30", "> 10 20"]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(MODEL) as opened:
        yield opened


def translated(model: Model, text: str, written: str = "plain") -> str:
    return model.translate(text, format=written, beam_size=1).text


@pytest.mark.parametrize("mark", MARKS)
def test_the_mark_of_an_item_is_kept_before_the_translation_of_its_text(model: Model, mark: str):
    for text in TEXTS:
        assert translated(model, f"{mark} {text}") == f"{mark} {translated(model, text)}"
    html = mark.replace(">", "&gt;")
    for name in ("li", "td", "p"):
        text = f"<{name}>{html} {TEXTS[0]}</{name}>"
        assert translated(model, text, "html") == f"<{name}>{html} {translated(model, TEXTS[0])}</{name}>"
    assert translated(model, f"<a><b>{html} {TEXTS[0]}</b></a>", "xml") == (
        f"<a><b>{html} {translated(model, TEXTS[0])}</b></a>"
    )


@pytest.mark.parametrize("mark", ["•", "a)", "1.", "-"])
def test_a_tag_around_a_mark_stays_around_it(model: Model, mark: str):
    text = translated(model, "Please close the window.")
    found = translated(model, f"<p><b>{mark}</b> Please close the window.</p>", "html")
    assert found == f"<p><b>{mark}</b> {text}</p>"
    both = translated(model, f"<p><b>{mark} Please close the window.</b></p>", "html")
    assert both == f"<p><b>{mark} {text}</b></p>"


@pytest.mark.parametrize("separator", SEPARATORS)
def test_columns_and_written_line_breaks_are_kept_between_the_translations(model: Model, separator: str):
    for texts in itertools.permutations(TEXTS, 3):
        assert translated(model, separator.join(texts)) == separator.join(translated(model, text) for text in texts)


@pytest.mark.parametrize("sign", MENU_SIGNS)
def test_the_names_of_a_menu_are_translated_alone(model: Model, sign: str):
    for names in itertools.permutations(NAMES, 3):
        assert translated(model, sign.join(names)) == sign.join(translated(model, name) for name in names)


@pytest.mark.parametrize("text", WITHOUT_LETTERS)
@pytest.mark.parametrize("split", ["on", "nonewlines", "off"])
def test_a_text_without_letters_is_its_own_translation_without_a_warning(model: Model, text: str, split: str):
    result = model.translate(text, split_sentences=split, return_alignment=True, return_sentences=True)
    assert (result.text, result.warnings, result.sentences) == (text, (), ())
    cell = f"<table><tr><td>{text.replace('>', '&gt;')}</td></tr></table>"
    assert model.translate(cell, format="html", split_sentences=split).text == cell


def test_a_text_without_a_visible_character_has_a_warning(model: Model):
    assert [each.code for each in model.translate(" \u200b\n").warnings] == ["empty_source"]


@pytest.mark.parametrize(
    "text", ["We need:\n• bread\n• milk", r"Saved.\nPlease close the window.", "Name\tAge\tCity\t12:30", "a) One | Two"]
)
def test_spans_of_sentences_and_links_are_places_in_the_whole_text(model: Model, text: str):
    result = model.translate(text, return_sentences=True, return_alignment=True, beam_size=1)
    assert result.normalised_text == NormalisedText(text).text
    for sentence in result.sentences:
        source, target = text[slice(*sentence.source)], result.text[slice(*sentence.target)]
        assert target == translated(model, source)
    for link in result.best.alignment:
        places = [each for each in result.sentences if each.target[0] <= link.target[0] < each.target[1]]
        begin, end = NormalisedText(text).original_span(link.source)
        assert places[0].source[0] <= begin <= end <= places[0].source[1]


def test_a_stream_sends_marks_and_separators_too(model: Model):
    text = "- Please close the window.\\n- bread\n12:30\tbread |"
    events = list(model.translate_stream(text, beam_size=1, guard="warn"))
    (done,) = [event.result for event in events if isinstance(event, TextDone)]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == done.text
    assert done.text == translated(model, text)


@pytest.mark.parametrize("prefix", ["Machen", "- Machen", " - Machen", "-", ""])
def test_a_target_prefix_may_have_the_mark_or_not(model: Model, prefix: str):
    result = model.translate("- Please close the window.", target_prefix=prefix, beam_size=1)
    own = prefix.strip().removeprefix("-").strip()
    assert result.text == "- " + model.translate("Please close the window.", target_prefix=own, beam_size=1).text


PIECES = [*LINES[:60], *(f"{mark} {text}" for mark, text in zip(MARKS, LINES[60:], strict=False)), *WITHOUT_LETTERS]
PIECES += [
    "Hello {name}, see https://example.com/a.",
    "I LOVE YOU.",
    "Name\tAge",
    r"One.\nTwo.",
    "Home > Products > Chairs",
]
PIECES += ["", " \n", "It costs $1,299.99 in 2019.", "Tom left. He was sad.", "x" * 60, "Привет, мир", "%s of %d files"]


@pytest.mark.parametrize("written", ["plain", "html"])
def test_an_answer_does_not_depend_on_the_texts_beside_a_text(model: Model, written: str):
    def marked_up(text: str) -> str:
        escaped = text.replace("&", "&amp;").replace("<", "&lt;")
        first, _, rest = escaped.partition(" ")
        return f"<p><b>{first}</b> {rest}</p>" if written == "html" else text

    texts = [marked_up(piece) for piece in PIECES]
    alone = {text: _comparable(model.translate(text, format=written, beam_size=1)) for text in texts}
    chance = random.Random(3)
    for _ in range(scaled(4, 40)):
        mix = chance.choices(texts, k=chance.randint(2, 40))
        found = model.translate(mix, format=written, beam_size=1)
        assert [_comparable(result) for result in found] == [alone[text] for text in mix]
    one = "\n".join(PIECES)
    lines = model.translate(one, beam_size=1).text
    assert lines == "\n".join(translated(model, piece) if piece.strip() else piece for piece in PIECES)


def _comparable(result: TextResult) -> tuple[object, ...]:
    return result.text, result.score, result.warnings, result.confidence, result.source_tokens, result.target_tokens
