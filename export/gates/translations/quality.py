"""The gates that compare translations with those of the fp32 graphs: tokens of exact precisions, BLEU of lossy parts.

Needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lingon.errors import ParityError
from lingon.export.differences import LOG_PROBS, Differences, finite
from lingon.export.gates.translations.decode import engine_scores
from lingon.scoring import score
from lingon.serving.decoding.job import Hypothesis
from lingon.serving.runtime.runner import Runner
from lingon.text import EOS

MAX_BLEU_LOSS, MAX_CHRF_LOSS = 0.2, 0.3  # points
LEAST_LIKE_BLEU, LEAST_LIKE_CHRF = 85.0, 93.0  # of lossy translations against those of fp32
LEAST_WORDS = 4  # of a sentence, on average, for a bound of BLEU: it counts runs of 4 words
NEAR_TIE = 1e-4  # difference of two scores that two implementations may rank differently
MAX_NEAR_TIES = 0.005  # share of the sentences
MIN_IDENTICAL = 0.75  # share of the sentences, of lossy arithmetic; it was 0.93 for int8 of models/en-de


@dataclass(frozen=True, slots=True)
class Agreement:
    """The number of sentences with identical tokens, and how far the log-probabilities of these tokens differ.

    near_ties: the sentences, from 1, that differ by a near tie
    """

    sentences: int
    identical: int
    near_ties: tuple[int, ...]
    largest: float
    mean: float

    def __str__(self) -> str:
        ties = f", {len(self.near_ties)} near ties" if self.near_ties else ""
        return (
            f"{self.identical} of {self.sentences} sentences identical{ties}, log-probabilities differ by up to "
            f"{self.largest:.1e}"
        )


@dataclass(frozen=True, slots=True)
class ExactSearch:
    """What the fp32 graphs find for some sources with a search.

    sources: ids as the tokenizer frames them
    found: the best hypothesis of each source
    """

    runner: Runner
    sources: Sequence[tuple[int, ...]]
    found: Sequence[Hypothesis]
    beam_size: int
    length_penalty: float
    forced: tuple[int, ...] = ()  # see `decode_all`

    def is_near_tie(self, index: int, other: Hypothesis) -> bool:
        """Whether another hypothesis for a source differs by a decision whose candidates fp32 has within NEAR_TIE.

        In beam search the decision is the ranking of the two hypotheses, in greedy search the first token that differs.
        """
        longest = self.runner.limits.max_target_tokens - 1 - len(self.forced)  # the scorer reads BOS, too
        pair = [self.found[index], other]
        given = [(self.sources[index], each.tokens[:longest]) for each in pair]
        scored = engine_scores(self.runner, given, self.forced)
        one, two = (each.log_probs[: len(tie.log_probs)] for each, tie in zip(scored, pair, strict=True))
        if self.beam_size > 1:
            return _near(*(float(each.sum()) / len(each) ** self.length_penalty for each in (one, two)))
        labels = zip(*([*each.tokens, EOS][: len(each.log_probs)] for each in pair), strict=False)
        place = next((place for place, (mine, theirs) in enumerate(labels) if mine != theirs), None)
        return place is not None and place < min(len(one), len(two)) and _near(float(one[place]), float(two[place]))


def check_agreement(precision: str, found: Sequence[Hypothesis], expected: ExactSearch, *, exact: bool) -> Agreement:
    """Compare the best hypotheses of a precision, token by token, with those of the fp32 graphs.

    exact: whether all must be identical but for near ties; otherwise MIN_IDENTICAL of them must

    Raises ParityError if too few are identical, or the log-probabilities of identical ones differ too much.
    """
    label = f"{precision}: beam size {expected.beam_size}"
    different, log_probs = [], Differences()
    for index, (mine, theirs) in enumerate(zip(found, expected.found, strict=True)):
        if (mine.tokens, mine.finished) != (theirs.tokens, theirs.finished):
            different.append(index)
            continue
        mine_finite = finite(np.array(mine.log_probs), f"{label}: log-probabilities of translations")
        log_probs.add(np.abs(mine_finite - np.array(theirs.log_probs)))
    if exact:
        _check_near_ties(label, found, expected, different)
    elif len(found) - len(different) < MIN_IDENTICAL * len(found):
        raise ParityError(
            f"{label}: {len(found) - len(different)} of {len(found)} sentences have the tokens of fp32, at least "
            f"{MIN_IDENTICAL:.0%} must"
        )
    log_probs.check(f"{label}: log-probabilities of translations", LOG_PROBS[precision])
    ties = tuple(index + 1 for index in different) if exact else ()
    return Agreement(len(found), len(found) - len(different), ties, log_probs.largest, log_probs.mean)


def check_quality(
    what: str, found: Sequence[str], exact: Sequence[str], references: Sequence[str], language: str = ""
) -> dict[str, Any]:
    """Compare translations with those of the fp32 graphs without a shortlist; return the scores of both.

    what: the precision, for the message of the ParityError if the scores are too much lower, or the translations are
        not like those of fp32: against references that fit neither, both have a score of about 0
    language: of the translations, for the tokens of BLEU
    """
    lossy, fp32 = score(found, references, language), score(exact, references, language)
    if fp32.bleu - lossy.bleu > MAX_BLEU_LOSS or fp32.chrf - lossy.chrf > MAX_CHRF_LOSS:
        raise ParityError(
            f"{what}: BLEU {lossy.bleu:.2f} and chrF {lossy.chrf:.2f} are not within {MAX_BLEU_LOSS} and "
            f"{MAX_CHRF_LOSS} of fp32's {fp32.bleu:.2f} and {fp32.chrf:.2f}"
        )
    return check_likeness(what, found, exact, language) | {
        "bleu": lossy.bleu,
        "chrf": lossy.chrf,
        "fp32_bleu": fp32.bleu,
        "fp32_chrf": fp32.chrf,
        "signature": lossy.bleu_signature,
    }


def check_likeness(what: str, found: Sequence[str], exact: Sequence[str], language: str = "") -> dict[str, Any]:
    """Compare translations with those of the fp32 graphs as their references; return the scores.

    what: the precision, for the message of the ParityError if the scores are too low

    Sentences of few words, as in languages that write no blanks between words, have no bound of BLEU: it may be 0 even
    if all are identical.
    """
    likeness = score(found, exact, language)
    wordy = sum(len(text.split()) for text in exact) >= LEAST_WORDS * len(exact)
    if (wordy and likeness.bleu < LEAST_LIKE_BLEU) or likeness.chrf < LEAST_LIKE_CHRF:
        raise ParityError(
            f"{what}: against the translations of fp32, BLEU {likeness.bleu:.2f} and chrF {likeness.chrf:.2f} are not "
            f"at least {LEAST_LIKE_BLEU:g} and {LEAST_LIKE_CHRF:g}"
        )
    return {
        "sentences": len(exact),
        "identical": sum(one == other for one, other in zip(found, exact, strict=True)),
        "bleu_against_fp32": likeness.bleu,
        "chrf_against_fp32": likeness.chrf,
    }


def max_near_ties(sentences: int) -> int:
    """Return how many sentences may be near ties: one at least, because one of few sentences may be one by chance."""
    return max(int(MAX_NEAR_TIES * sentences), 1)


def _check_near_ties(label: str, found: Sequence[Hypothesis], expected: ExactSearch, different: Sequence[int]) -> None:
    """Raise ParityError if one of the sentences that differ is no near tie, or if there are too many."""
    for index in different:
        if not expected.is_near_tie(index, found[index]):
            raise ParityError(f"{label}: sentence {index + 1} of {len(found)} has other tokens than in fp32")
    if len(different) > max_near_ties(len(found)):
        raise ParityError(
            f"{label}: {len(different)} of {len(found)} sentences are near ties, at most {max_near_ties(len(found))} "
            f"may be"
        )


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR_TIE
