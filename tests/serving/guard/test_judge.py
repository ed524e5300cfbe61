"""The guard flags what is wrong with a translation, and lets good ones pass."""

from __future__ import annotations

import pytest

from lingon.serving.guard.copies import similarity
from lingon.serving.guard.judge import Flag, Sentence, judge
from lingon.serving.guard.repetition import is_looping
from tests.support.shipped_model import LINES

WORDS: dict[str, int] = {}


def flags(source: str, target: str, unreadable: frozenset[int] = frozenset()) -> list[Flag]:
    """The flags of a pair whose tokens are its words."""
    ids = [[WORDS.setdefault(word, len(WORDS)) for word in text.split()] for text in (source, target)]
    return judge(Sentence(source, target, *ids), unreadable)


@pytest.mark.parametrize("target", ["", " "])
def test_a_translation_without_text_is_flagged(target: str) -> None:
    assert flags("Save your work.", target) == [Flag.EMPTY]
    assert flags("", target) == []


LOOP = "Das Haus ist sehr alt und das Haus ist sehr alt und das Haus ist sehr alt und das Haus ist sehr alt."


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("The house is old.", LOOP),
        ("Stop.", "halt " * 8),
        ("He laughed.", "ha " * 12),
        ("A list.", "".join(f"eins zwei drei {number} " for number in range(30))),
    ],
)
def test_a_translation_that_repeats_itself_is_flagged(source: str, target: str) -> None:
    assert Flag.REPETITION in flags(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("na na na na na na na na na hey", "na na na na na na na na na hey Leute"),
        ("The house is old and the house is big.", "Das Haus ist alt und das Haus ist groß."),
        ("one " * 70, "eins " * 70),
    ],
)
def test_a_translation_that_repeats_what_its_source_repeats_is_not_flagged(source: str, target: str) -> None:
    assert Flag.REPETITION not in flags(source, target)


@pytest.mark.parametrize(
    ("source", "target", "flagged"),
    [
        ("I have never seen this house.", "I have never seen this house.", True),
        ("I have never seen this house.", "I have never seen this house", True),
        ("I have never seen this house.", "Ich habe dieses Haus nie gesehen.", False),
        ("Old house.", "Old house.", False),  # two words
        ("Anna Maria Schmidt, Berlin", "Anna Maria Schmidt, Berlin", False),  # names
        ("I HAVE NEVER SEEN THIS HOUSE", "I HAVE NEVER SEEN THIS HOUSE", True),
    ],
)
def test_a_copy_of_the_source_is_flagged(source: str, target: str, flagged: bool) -> None:
    assert (flags(source, target) == [Flag.COPY]) == flagged


@pytest.mark.parametrize(
    ("source", "target", "flagged"),
    [
        ("Call 777123.", "Rufe 770 an.", True),
        ("We met in 1999.", "Wir trafen uns.", True),
        ("There are 41 pens.", "Es gibt 42 Stifte.", True),
        ("He paid 5 and 5.", "Er zahlte 5 und 6.", True),
        ("There are 2 pens.", "Es gibt zwei Stifte.", False),
        ("It costs 1,250.50 dollars.", "Es kostet 1.250,50 Dollar.", False),
        ("It has 629,313 inhabitants.", "Es hat 629 313 Einwohner.", False),
        ("On 2010-11-03 at 09:30.", "Am 03.11.2010 um 9.30 Uhr.", False),
        ("Version 1.5 is out.", "Version 1,5 ist da.", False),
    ],
)
def test_changed_numbers_are_flagged(source: str, target: str, flagged: bool) -> None:
    assert (Flag.NUMBERS in flags(source, target)) == flagged


def test_a_source_of_unknown_characters_is_flagged() -> None:
    unknown = frozenset({WORDS.setdefault("日本", len(WORDS))})
    assert flags("日本 to me", "nach mir", unknown) == [Flag.UNREADABLE]
    assert flags("日本 to me and you", "nach mir und dir", unknown) == []
    assert flags("日本", "", unknown) == [Flag.EMPTY, Flag.UNREADABLE]


def test_good_sentences_pass() -> None:
    sources = list(LINES)
    assert [line for line in sources if flags(line, line[::-1]) not in ([], [Flag.NUMBERS])] == []


def test_similarity_is_one_of_the_same_text_and_zero_of_another() -> None:
    assert similarity("ein Haus", "einHaus") == 1
    assert similarity("abc", "xyz") == 0
    assert similarity("", "xyz") == 0
    assert 0.4 < similarity("ein altes Haus", "ein neues Haus") < 0.7


@pytest.mark.parametrize(
    ("source", "target", "looping"),
    [
        ([1, 2, 3], [9, *[5] * 16], True),
        ([1, 2, 3], [9, *[5] * 15], False),
        ([1, 2, 3], [9, *[5, 6, 7] * 6], True),
        ([1, 2, 3], [9, *[5, 6, 7] * 5], False),
        ([1, 2, 3], [*range(20, 40)] * 4, False),
        ([1, 2, 3], [*range(20, 36)] * 4, True),
        ([8] * 8, [9, *[5] * 16], False),
        ([1, 2, 3], [*[5] * 16, 6], False),
        ([1, 2, 3], [], False),
        ([1, 2, 3], [5], False),
    ],
)
def test_a_loop_is_a_phrase_that_comes_four_times_at_the_end(
    source: list[int], target: list[int], looping: bool
) -> None:
    assert is_looping(source, target) == looping
