"""Characters that the shipped models cannot read come back as they were, and cost the rest of a sentence nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lingon.client.messages import TextResult, text_results, translate_request
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.repository import ROOT
from tests.support.shipped_model import LINES

PAIRS = ["en-de", "en-fr"]
BEAMS = [1, 4]
WORDS = ["Nguyễn", "Łukasz", "東京", "Москва", "Αθήνα", "مرحبا", "สวัสดี", "안녕", "AT&T", "#tag", "x^2"]
NUMBERS = ["~5", "≤ 10", "< 30", "20 m²", "25°C", "£20", "¥500", "± 3", "½", "5 × 3", "6′", "5′ 11″", "\u22125"]
FRAMES = ["Tom saw {} in Boston.", "This is {}.", "She said: {}", "Why is {} here?"]
SIGNS = ["›", "|", "•", "→", ">", "‣"]
NAMES = ["Home", "Help", "Contact"]
TWINS = {
    "The of\ufb01ce is old.": "The office is old.",
    "The co\u2011operation is good.": "The co-operation is good.",
    "He drinks H₂O.": "He drinks H2O.",
    "Ｔｏｍ is my friend.": "Tom is my friend.",
    "𝐓𝐨𝐦 is my friend.": "Tom is my friend.",
    "I don\u00b4t know.": "I don’t know.",
    "It is ‹good›.": "It is ’good’.",
}


@pytest.fixture(scope="module", params=PAIRS)
def translator(request: Any) -> Iterator[LocalTranslator]:
    with LocalTranslator(ROOT / "models" / request.param) as opened:
        yield opened


def results(translator: LocalTranslator, texts: Sequence[str], **options: Any) -> list[TextResult]:
    request = translate_request(pb.TranslateRequest, texts, [], {"beam_size": 1, **options})
    return list(text_results(translator.translate(request)))


def translate(translator: LocalTranslator, texts: Sequence[str], **options: Any) -> list[str]:
    return [result.text for result in results(translator, texts, **options)]


@pytest.mark.parametrize("beam_size", BEAMS)
@pytest.mark.parametrize("string", [*WORDS, *NUMBERS])
def test_a_string_comes_back_once_and_the_sentence_is_translated(
    translator: LocalTranslator, string: str, beam_size: int
):
    sent = [frame.format(string) for frame in FRAMES]
    for text, found in zip(sent, translate(translator, sent, beam_size=beam_size), strict=True):
        assert found.count(string) == 1, (text, found)
        assert "\ufffd" not in found
        assert len(found) < 3 * len(text) + 20
        assert found != text, text


@pytest.mark.parametrize("sign", SIGNS)
def test_what_a_sign_separates_is_translated_as_if_alone(translator: LocalTranslator, sign: str):
    (found,) = translate(translator, [f" {sign} ".join(NAMES)])
    assert found.split(f" {sign} ") == translate(translator, NAMES)


@pytest.mark.parametrize("mark", ["•", "‣", "①", "⑵", "●", "▪"])
def test_a_mark_at_the_begin_does_not_change_the_sentence(translator: LocalTranslator, mark: str):
    lines = LINES[:5]
    marked = translate(translator, [f"{mark} {line}" for line in lines])
    assert marked == [f"{mark} {each}" for each in translate(translator, lines)]


@pytest.mark.parametrize("sent", TWINS)
def test_a_sentence_is_translated_as_its_twin(translator: LocalTranslator, sent: str):
    found, twin = translate(translator, [sent, TWINS[sent]])
    assert found == twin


@pytest.mark.parametrize(
    "text", ["Привет, как дела?", "東京は日本の首都です。", "مرحبا بالعالم", "• Москва", "Γειά σου!"]
)
def test_a_text_in_another_script_stays_with_a_warning(translator: LocalTranslator, text: str):
    (found,) = results(translator, [text])
    assert found.text == text
    assert "unreadable" in [each.code for each in found.warnings]


def test_tags_stay_around_the_words_that_are_kept(translator: LocalTranslator):
    text = "<p>My friend <b>Nguyễn</b> lives here.</p><p><i>Москва</i></p>"
    (found,) = translate(translator, [text], format="html")
    assert "<b>Nguyễn</b>" in found
    assert "<p><i>Москва</i></p>" in found


@pytest.mark.parametrize("text", ["Tom saw Nguyễn • 東 here.", "Москва", "\ufb01 ~5 ≤ m² ½ ①", "\u200e\ufe0f", "ﬁ"])
@pytest.mark.parametrize("beam_size", BEAMS)
def test_without_protection_no_character_is_broken(translator: LocalTranslator, text: str, beam_size: int):
    (found,) = translate(translator, [text], protect=False, beam_size=beam_size)
    assert "\ufffd" not in found


def test_sentences_that_the_model_reads_take_no_steps(translator: LocalTranslator):
    readable = [line for line in LINES if line.isascii()][:30]
    as_before = translate(translator, readable, protect=False)
    assert translate(translator, readable) == as_before
