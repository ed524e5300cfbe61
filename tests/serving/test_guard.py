"""The guard flags what is wrong with a translation, and lets good ones pass."""

from __future__ import annotations

import functools

import pytest

from lingon.bundle.manifest import Confidence, LengthRange, TextData
from lingon.bundle.names import PROFILE_BYTES
from lingon.bundle.store import open_bundle
from lingon.serving.guard import (
    DEGENERATE,
    FEATURES,
    SLACK,
    SPARE,
    Flag,
    Guard,
    Judgement,
    Languages,
    Lengths,
    PieceLanguages,
    Sentence,
    confidence,
    features,
    is_looping,
    judge,
    profile,
    similarity,
)
from tests.support.repository import ROOT
from tests.support.shipped_model import LINES, MODEL

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


GERMAN = (ROOT / "tests" / "data" / "tatoeba.de").read_text(encoding="utf-8").splitlines()
TEXT = TextData(
    (), (LengthRange(4, 0.25, 4.0), LengthRange(64, 0.5, 2.0)), Confidence(2.0, {"mean": 1.0, "total": 0.0}, 0.25, ())
)


@functools.cache
def languages() -> Languages:
    return Languages([profile(LINES[::2]), profile(GERMAN[::2])])


def judged(source: str, target: str, log_prob: float = -0.5) -> Judgement:
    """The judgement of a pair whose tokens are its words."""
    tokens: dict[str, int] = {}
    ids = [[tokens.setdefault(word, len(tokens) + 10) for word in text.split()] for text in (source, target)]
    log_probs = [log_prob] * (len(ids[1]) + 1)
    texts = {token: f" {word}" for word, token in tokens.items()}
    guard = Guard(frozenset(), TEXT, PieceLanguages(languages(), texts.__getitem__))
    return guard.judge(Sentence(source, target, *ids, log_probs))


def test_a_profile_has_a_byte_for_each_bucket_and_likelier_trigrams_have_smaller_ones() -> None:
    found = profile(["aaaa", "aaaa", "bbbb"])
    counted = sorted(set(found))
    assert len(found) == PROFILE_BYTES
    assert found.count(counted[-1]) >= PROFILE_BYTES - 6
    likely, unlikely = (min(each) for each in (profile(["aaaa"] * 9), profile(["ab", "cd"])))
    assert likely < unlikely


def test_languages_are_told_apart_on_text_that_the_profiles_have_not_seen() -> None:
    for lines, right in ((LINES[1::2], 0), (GERMAN[1::2], 1)):
        long = [line for line in lines if len(line) >= 20]
        found = [languages().surprise(line) for line in long]
        assert sum(each.index(min(each)) == right for each in found) >= 0.97 * len(long) > 0


def test_the_pieces_of_a_text_in_the_last_language_need_no_further_look() -> None:
    pieces = open_bundle(MODEL).tokenizer()
    quick = PieceLanguages(languages(), pieces.piece_text)
    for lines, other in ((LINES[1::2], True), (GERMAN[1::2], False)):
        found = [quick.may_be_other(pieces.encode_target(line)) for line in lines if len(line) >= 20]
        assert found.count(other) >= 0.9 * len(found) > 0


def test_a_text_without_letters_is_in_no_language() -> None:
    assert languages().excess("123 !? 😀") == pytest.approx(0, abs=8)
    assert languages().excess("") == 0


@pytest.mark.parametrize(
    ("source", "target", "usual"),
    [(4, 1, True), (4, 22, True), (4, 23, False), (40, 14, True), (40, 13, False), (40, 102, True), (40, 103, False)],
)
def test_a_length_is_unusual_outside_the_range_of_its_source(source: int, target: int, usual: bool) -> None:
    assert (SLACK, SPARE) == (1.25, 2)
    assert Lengths(TEXT.lengths).unusual(source, target) == (not usual)


def test_a_source_longer_than_all_ranges_has_the_last_one() -> None:
    assert not Lengths(TEXT.lengths).unusual(1000, 1000)
    assert Lengths(TEXT.lengths).unusual(1000, 3000)


def test_confidence_is_the_logistic_function_of_the_weighted_features() -> None:
    measured = features("four", "vier", [9], [-1.0, -4.0])
    assert measured[:3] == (-2.5, 1.5, -5.0)
    assert measured[4:] == (0.0, 0.0)
    assert confidence(Confidence(2.5, {"mean": 1.0}, 0.0, ()), measured) == 0.5
    assert confidence(Confidence(1e6, {"mean": 1e6}, 0.0, ()), measured) == pytest.approx(0, abs=1e-300)
    assert len(measured) == len(FEATURES)


def test_confidence_is_finite_for_tokens_of_probability_zero_and_for_no_tokens() -> None:
    for log_probs in ([float("-inf")], []):
        assert 0 <= confidence(TEXT.confidence, features("", "", [], log_probs)) <= 1


SOURCE = "I have never seen such a big house in this town."
TARGET = "Ich habe noch nie so ein großes Haus in dieser Stadt gesehen."


@pytest.mark.parametrize(
    ("target", "flag"),
    [
        ("", Flag.EMPTY),
        ("das ist " * 40, Flag.REPETITION),
        (f"{TARGET} {TARGET} {TARGET}", Flag.REPETITION),
        (SOURCE, Flag.COPY),
        ("Why do they want to know what the weather will be like?", Flag.WRONG_LANGUAGE),
        ("Nein.", Flag.LENGTH_RATIO),
        (TARGET + " Und 1999 war das auch schon so.", Flag.NUMBERS),
    ],
)
def test_planted_failures_are_flagged_and_degenerate_ones_have_no_confidence(target: str, flag: Flag) -> None:
    found = judged(SOURCE, target)
    assert flag in found.flags
    assert Flag.LOW_CONFIDENCE not in found.flags
    assert found.degenerate == (not DEGENERATE.isdisjoint(found.flags))
    assert found.confidence is not None
    assert (found.confidence == 0) == found.degenerate


def test_a_good_translation_passes_and_an_unlikely_one_has_low_confidence() -> None:
    assert judged(SOURCE, TARGET).flags == ()
    assert judged(SOURCE, TARGET, log_prob=-3.5).flags == (Flag.LOW_CONFIDENCE,)


def test_without_text_data_there_is_no_confidence_and_nothing_is_compared() -> None:
    guard = Guard(frozenset())
    assert guard.judge(Sentence(SOURCE, "Nein.", range(10, 20), [3], [-9.0])) == Judgement((), None)
