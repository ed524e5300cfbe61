"""Sources that are annotated with terms: where the markers are, and which vocabularies have them."""

from __future__ import annotations

import random

import pytest

from lingon.terms.annotation import (
    OPUS_TRAINER_FORM,
    OWN_FORM,
    AnnotationForm,
    Place,
    annotated,
    unread_marker,
)
from lingon.text import Tokenizer, normalise
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.tokenizer import train_tokenizer

FORM = AnnotationForm("[", "=", "]")
LINES = ["the dog barks", "a cat sleeps", "“dogs” and cats, or birds.", "犬が吠える"]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer that was learnt with the markers of Lingon."""
    settings = TokenizerSettings(kind=request.param, vocab_size=290, character_coverage=1.0)
    return train_tokenizer([Pair(line, line) for line in LINES * 20], settings, markers=OWN_FORM.markers)


@pytest.mark.parametrize(
    ("text", "places", "expected"),
    [
        ("the dog barks", [Place(4, 7, "Hund")], "the [ dog = Hund ] barks"),
        ("dog", [Place(0, 3, "Hund")], "[ dog = Hund ]"),
        ("dog, cat.", [Place(0, 3, "Hund"), Place(5, 8, "Katze")], "[ dog = Hund ], [ cat = Katze ]."),
        ("“dog”", [Place(1, 4, "der Hund")], "“ [ dog = der Hund ]”"),
        ("犬が", [Place(0, 1, "Hund"), Place(1, 2, "er")], "[ 犬 = Hund ] [ が = er ]"),
        ("nothing", [], "nothing"),
    ],
)
def test_a_translation_is_beside_its_phrase(text: str, places: list[Place], expected: str) -> None:
    assert annotated(text, places, FORM) == expected


def test_without_the_annotations_a_source_is_as_before() -> None:
    draw = random.Random(3)
    for _ in range(200):
        text = " ".join(draw.choice(LINES) for _ in range(draw.randint(1, 3)))
        cuts = sorted(draw.sample(range(len(text) + 1), 2 * draw.randint(0, 3)))
        places = [Place(begin, end, "x y") for begin, end in zip(cuts[::2], cuts[1::2], strict=True)]
        found = annotated(text, places, FORM)
        assert [part.split(" = ")[0] for part in found.split("[ ")[1:]] == [text[begin:end] for begin, end, _ in places]
        assert "".join(found.replace(" = x y ]", "").replace("[ ", "").split()) == "".join(text.split())


def test_each_marker_is_one_piece_and_all_others_are_those_of_the_words(tokenizer: Tokenizer) -> None:
    text = annotated("the dog, barks", [Place(4, 7, "cats")], OWN_FORM)
    parts = ["the", "dog", "cats", ", barks"]
    words = [tokenizer.source_pieces(tokenizer.source.encode(part)) for part in parts]
    after = words[3] if words[3][0] != "\u2581" else words[3][1:]
    begin, middle, end = (f"\u2581{marker}" for marker in OWN_FORM.markers)
    assert tokenizer.source_pieces(tokenizer.source.encode(text)) == [
        *words[0],
        begin,
        *words[1],
        middle,
        *words[2],
        end,
        *(piece.removeprefix("\u2581") if number == 0 else piece for number, piece in enumerate(after)),
    ]


def test_a_vocabulary_reads_the_markers_that_it_was_learnt_with_and_no_others(tokenizer: Tokenizer) -> None:
    assert unread_marker(OWN_FORM, tokenizer) is None
    assert unread_marker(OPUS_TRAINER_FORM, tokenizer) == "__source__"


def test_no_normalised_text_has_a_marker_of_lingon() -> None:
    assert not OWN_FORM.is_in(normalise(" ".join(OWN_FORM.markers)))
    assert OWN_FORM.is_in(f"a{OWN_FORM.middle}b")


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (AnnotationForm("a", "b", "c"), None),
        (AnnotationForm("", "b", "c"), "terms.begin must have 1 to 64 characters, got 0"),
        (AnnotationForm("a", "b" * 65, "c"), "terms.middle must have 1 to 64 characters, got 65"),
        (AnnotationForm("a", "b", "c d"), "terms.end must have no blank, comma or ▁, got 'c d'"),
        (AnnotationForm("a", "b,", "c"), "terms.middle must have no blank, comma or ▁, got 'b,'"),
        (AnnotationForm("a", "b", "a"), "terms.begin, middle and end must differ, got 'a', 'b', 'a'"),
    ],
)
def test_a_form_that_cannot_be_one_is_named(form: AnnotationForm, problem: str | None) -> None:
    assert form.problem() == problem
