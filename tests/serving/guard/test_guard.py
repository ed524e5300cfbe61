"""With text data the guard also compares languages and lengths, and says how sure a translation is."""

from __future__ import annotations

import functools

import pytest

from lingon.bundle import PROFILE_BYTES, Confidence, LengthRange, TextData, open_bundle
from lingon.serving.guard.confidence import FEATURES, confidence, features
from lingon.serving.guard.judge import DEGENERATE, Flag, Guard, Judgement, Sentence
from lingon.serving.guard.languages import Languages, PieceLanguages, profile
from lingon.serving.guard.lengths import SLACK, SPARE, Lengths
from tests.support.repository import ROOT
from tests.support.shipped_model import LINES, MODEL

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
