"""Thresholds for a second translator: what they send, what they are worth, and that they are measured on other text."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from lingon.errors import SettingsError
from lingon.export.second_threshold import (
    BEST,
    BY_CONFIDENCE,
    CHOSEN,
    Candidate,
    Sentences,
    Threshold,
    best_threshold,
    halves,
    report,
)

WORDS = ["Haus", "Baum", "Wasser", "Licht", "Fenster", "Brot", "Straße", "Garten", "Schule", "Winter", "Regen"]


def candidate(draw: random.Random, *, words: int = 6, wrong: float = 0.0, confidence: float = 0.5) -> Candidate:
    """Return a sentence of so many words, of which the own model has a share wrong, and the other one none."""
    target = draw.choices(WORDS, k=words)
    ours = ["falsch" if draw.random() < wrong else word for word in target]
    source = " ".join(word.lower() for word in target) + f" {draw.random()}"
    return Candidate(source, " ".join(target), confidence, False, " ".join(ours), " ".join(target))


def text(count: int = 400, seed: int = 1, *, long: int = 6) -> list[Candidate]:
    """Return sentences of which the least confident ones have the most wrong words; long: words of one in four."""
    draw = random.Random(seed)
    confidences = [draw.random() for _ in range(count)]
    lengths = [long if number % 4 == 0 else 6 for number in range(count)]
    return [
        candidate(draw, words=words, wrong=(1 - sure) ** 2, confidence=sure)
        for words, sure in zip(lengths, confidences, strict=True)
    ]


def test_the_halves_have_no_source_in_common_and_all_sentences() -> None:
    found = text(50) * 2
    in_first = halves(found)
    assert (halves(found) == in_first).all()
    first, second = ({each.source for each, own in zip(found, in_first, strict=True) if own == half} for half in (1, 0))
    assert first.isdisjoint(second)
    assert abs(in_first.sum() - len(found) / 2) <= 1


@pytest.mark.parametrize("share", [0.0, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("by_length", [False, True])
def test_a_threshold_sends_at_most_its_share_of_what_it_is_chosen_on(share: float, by_length: bool) -> None:
    found = [replace(each, suspect=number % 50 == 0) for number, each in enumerate(text(long=30))]
    sentences = Sentences(found, "de")
    sent = sentences.sent(best_threshold(sentences, share, by_length=by_length))
    assert sent.sum() <= max(share * len(found), sentences.suspect.sum())
    assert sent[sentences.suspect].all()


def test_a_whole_share_sends_all() -> None:
    sentences = Sentences(text(), "de")
    assert sentences.sent(best_threshold(sentences, 1.0)).all()


def test_suspects_are_sent_whatever_the_threshold_is() -> None:
    found = [replace(each, suspect=True, confidence=1.0) for each in text(10)]
    assert Sentences(found, "de").sent(Threshold(0.0, 10_000)).all()


def test_a_least_length_is_chosen_where_long_sentences_have_more_to_gain() -> None:
    sentences = Sentences(text(long=40), "de")
    threshold = best_threshold(sentences, 0.2)
    assert threshold.characters > 50  # of six words, most sentences have fewer
    alone = best_threshold(sentences, 0.2, by_length=False)
    assert alone.characters == 0
    assert sentences.gain[sentences.sent(threshold)].sum() > 1.2 * sentences.gain[sentences.sent(alone)].sum()


def test_each_half_is_measured_with_the_threshold_of_the_other_half() -> None:
    """In one half the second translator helps with the surest sentences, which promises nothing for the other half."""
    found = text(600)
    in_first = halves(found)
    turned = [
        replace(each, confidence=1 - each.confidence) if own else each
        for each, own in zip(found, in_first, strict=True)
    ]
    made = report(turned, 0.2, "de")
    sent = np.zeros(len(turned), bool)
    for half in (True, False):
        others = [each for each, own in zip(turned, in_first, strict=True) if own != half]
        threshold = best_threshold(Sentences(others, "de"), 0.2)
        sent[in_first == half] = Sentences(turned, "de").sent(threshold)[in_first == half]
    assert made.sentences == 600
    assert made.chosen.sent == sent.mean()
    assert (made.chosen.chrf, made.chosen.bleu) == Sentences(turned, "de").scores(sent)
    assert made.chosen.threshold == best_threshold(Sentences(turned, "de"), 0.2)


def test_the_report_goes_from_no_gain_to_all_of_it() -> None:
    made = report(text(long=20), 0.2, "de")
    assert (made.nothing.sent, made.nothing.gain_chrf, made.nothing.gain_bleu) == (0, 0, 0)
    assert (made.all.sent, made.all.gain_chrf, made.all.gain_bleu) == (1, 1, 1)
    assert made.all.chrf == pytest.approx(100)
    for curve in made.curves.values():
        gains = [point.gain_chrf for point in curve]
        assert gains == sorted(gains)
        assert 0 < gains[0] < gains[-1] <= 1
    low, high = made.bounds
    assert 0 < low < made.chosen.gain_chrf < high < 1


def test_a_choice_by_the_references_is_the_best_and_a_least_length_helps() -> None:
    made = report(text(1200, long=30), 0.2, "de")
    best, chosen, alone = (made.curves[name][3].gain_chrf for name in (BEST, CHOSEN, BY_CONFIDENCE))
    assert best > chosen > alone > 0.2


def test_a_second_translator_that_is_no_better_has_no_share_of_a_gain() -> None:
    made = report([replace(each, theirs=each.ours) for each in text()], 0.2, "de")
    assert made.all.chrf == made.nothing.chrf
    assert math.isnan(made.chosen.gain_chrf)
    assert all(map(math.isnan, made.bounds))


def test_a_second_translator_that_is_worse_is_sent_suspects_alone() -> None:
    found = [replace(each, ours=each.theirs, theirs="falsch", suspect=each.confidence < 0.01) for each in text()]
    sentences = Sentences(found, "de")
    assert (sentences.sent(best_threshold(sentences, 0.2)) == sentences.suspect).all()


def test_too_few_sentences_are_refused() -> None:
    with pytest.raises(SettingsError, match="a threshold needs 200 sentences with references, got 199"):
        report(text(199), 0.2, "de")
