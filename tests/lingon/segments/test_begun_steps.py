"""What is kept of a sentence is behind the begin of its translation, whatever the model answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.segments.begun_steps import lacks_kept, translate_begun
from lingon.segments.protection import find_protected
from lingon.segments.sentence import TranslateStep
from tests.support.sentence_steps import run_steps

KEPT = ["https://x.de/a", "`ls -la`", "{name}", "1999", "a@b.de", "**"]
PARTS = st.sampled_from([*KEPT, "see", "the red car", "by", "(", ",", "and"])
TEXTS = st.lists(PARTS, min_size=1, max_size=8).map(" ".join)
BEGINS = st.sampled_from(["Sieh", "Der rote Wagen https://x.de/a", "1999", "** und **", "."])
ANSWERS = st.lists(st.sampled_from(["", "und", "Tom", "25", "1999", "Ende."]), max_size=4)


def translated(text: str, begin: str, answers: list[str] | None = None) -> str:
    """Return the translation; answers: what the model writes behind the begin, by default the source."""

    def answer(request: TranslateStep) -> list[str]:
        assert request.prefix in ("", begin)
        written = request.text if answers is None or not request.prefix else answers.pop() if answers else ""
        return [f"{request.prefix} {written}".strip()]

    names = ["Tom", "Mary", "Boston", "Ann", "Rome"]
    return run_steps(translate_begun(text, find_protected(text), names, begin), answer).text


@given(text=TEXTS, begin=BEGINS, answers=ANSWERS)
def test_the_translation_begins_with_its_begin_and_has_all_that_is_kept(text: str, begin: str, answers: list[str]):
    found = translated(text, begin, answers)
    assert found.startswith(begin)
    for begins, ends, _ in find_protected(text):
        assert found.count(text[begins:ends]) >= text.count(text[begins:ends])


@pytest.mark.parametrize(
    ("text", "begin", "expected"),
    [
        ("see 1999 at https://x.de/a now", "Sieh", "Sieh see 1999 at https://x.de/a now"),
        ("see https://x.de/a now", "Sieh https://x.de/a", "Sieh https://x.de/a see https://x.de/a now"),
        ("https://x.de/a", "Sieh", "Sieh https://x.de/a"),
    ],
)
def test_what_the_begin_has_is_not_kept_again(text: str, begin: str, expected: str):
    assert translated(text, begin) == expected


def test_a_string_that_the_model_does_not_write_divides_the_sentence():
    assert translated("see {name} by car.", "Sieh", ["Auto."]) == "Sieh {name} by car."


def test_strings_of_the_begin_are_not_missed():
    text = "see 1999 and 1999"
    spans = find_protected(text)
    assert lacks_kept(text, spans, "Sieh 1999", "Sieh 1999 und")
    assert not lacks_kept(text, spans, "Sieh 1999", "Sieh 1999 und 1999")
    assert not lacks_kept("see 1999", find_protected("see 1999"), "1999 1999", "1999 1999")
