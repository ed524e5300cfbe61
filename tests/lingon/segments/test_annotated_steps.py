"""Terms in a sentence of a model that was trained with annotated sources: what it is asked, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lingon.segments.sentence import Restored, SentenceRequest, SentenceSteps, TranslateStep, translations
from lingon.segments.term_steps import SentenceTerms, with_terms
from lingon.terms.annotation import OPUS_TRAINER_FORM
from lingon.terms.term import Term
from lingon.translation.v1 import translation_pb2 as pb

TERMS = [Term("dog", "Köter"), Term("cats", "Kater", forbid=("Katzen",)), Term("mouse", forbid=("Maus",))]
FREE, TRAINED = "Der Hund jagt Katzen.", "Der Köter jagt Kater."


def whole(text: str) -> SentenceSteps:
    """Translate a text as it is."""
    request = TranslateStep(text)
    output, *_ = yield from translations(request)
    return Restored(output, outputs=((request, output),))


def run(text: str, trained: Sequence[str], *, free: str = FREE) -> tuple[Restored, list[TranslateStep]]:
    """Return the translation of a text and the translations that were asked for.

    trained: answers to annotated sources. Other requests than for the free translation get no answer
    """
    steps = with_terms(whole(text), SentenceTerms.of(TERMS, "en", "de"), form=OPUS_TRAINER_FORM)
    asked, request = list[TranslateStep](), next(steps)
    try:
        while True:
            if isinstance(request, TranslateStep):
                asked.append(request)
            request = steps.send(_answer(request, trained, free if len(asked) == 1 else ""))
    except StopIteration as done:
        return done.value, asked


def _answer(request: SentenceRequest, trained: Sequence[str], free: str) -> list[str]:
    if not isinstance(request, TranslateStep):
        return []
    return [*trained] if request.annotated else [free] if free else []


def test_all_terms_with_targets_are_beside_their_sources_and_forbidden_words_stay_out() -> None:
    restored, asked = run("The dog chases cats.", [TRAINED])
    assert [each.annotated for each in asked] == [
        "",
        "The __source__ dog __target__ Köter __done__ chases __source__ cats __target__ Kater __done__.",
    ]
    assert asked[1].text == asked[0].text
    assert "Katzen" in asked[1].forbidden
    assert restored.text == TRAINED
    assert [use.means for use in restored.terms] == [pb.TERM_MEANS_TRAINED] * 2


def test_a_free_translation_that_has_the_terms_asks_for_nothing_more() -> None:
    restored, asked = run("The dog chases cats.", [], free=TRAINED)
    assert len(asked) == 1
    assert [use.means for use in restored.terms] == [pb.TERM_MEANS_FREE] * 2


def test_what_the_free_translation_has_already_is_not_called_trained() -> None:
    restored, _ = run("The dog chases cats.", [TRAINED], free="Der Köter jagt Katzen.")
    assert [use.means for use in restored.terms] == [pb.TERM_MEANS_FREE, pb.TERM_MEANS_TRAINED]


@pytest.mark.parametrize("trained", [[], [FREE]])
def test_a_source_that_is_too_long_or_that_does_not_help_is_followed_by_the_other_means(trained: list[str]) -> None:
    restored, asked = run("The dog chases cats.", trained)
    assert asked[1].annotated
    assert len(asked) > 2
    assert not any(each.annotated for each in asked[2:])
    assert restored.text == FREE


@pytest.mark.parametrize("text", ["The dog says __done__.", "A mouse."])
def test_a_text_with_a_marker_or_without_a_target_is_not_annotated(text: str) -> None:
    _, asked = run(text, [TRAINED], free="Die Maus sagt __done__.")
    assert len(asked) > 1
    assert not any(each.annotated for each in asked)
