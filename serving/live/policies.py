"""When a part of the translation of an open sentence is agreed. Pure: works on tokens, without a model.

A policy sees the drafts of the sentence, the newest last. A draft is the translation of the words of one moment, and
begins with the tokens that are agreed already. The policy returns how many tokens of the newest draft are agreed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from lingon.errors import InvalidRequest
from lingon.text import common_length
from lingon.translation.v1 import translation_pb2 as pb

PRIOR_WORDS = 20.0  # words in each language before the first sentence, so that a short one does not set the ratio
MOST_LAG = 20  # words
DEFAULT_LAGS = {
    pb.LIVE_POLICY_LOCAL_AGREEMENT: 3,
    pb.LIVE_POLICY_WAIT_K: 5,
    pb.LIVE_POLICY_ALIGNMENT: 3,
    pb.LIVE_POLICY_SENTENCES: 0,
}
"""The lag of each policy in source words; of LOCAL_AGREEMENT in updates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A translation of the words of one moment.

    tokens: without the end token
    word_ends: numbers of tokens after which a target word ends, ascending; without marks that end the sentence
    source_words: number of its source words
    looks_at: for each token, the source word that it looks at most, from 0; None without attention
    words_per_word: target words that a source word becomes on average
    """

    tokens: tuple[int, ...]
    word_ends: tuple[int, ...]
    source_words: int
    looks_at: Sequence[int] | None = None
    words_per_word: float = 1.0

    def words_end(self, tokens: int) -> int:
        """Return the largest number of tokens, at most `tokens`, after which a target word ends; 0 without one."""
        count = bisect_right(self.word_ends, tokens)
        return self.word_ends[count - 1] if count else 0


class Policy(Protocol):
    """A rule of agreement."""

    @property
    def drafts(self) -> int:
        """The number of drafts that are compared."""

    def agree(self, drafts: Sequence[Draft]) -> int:
        """Return the number of tokens of the newest draft that are agreed; those agreed before count too.

        drafts: at least one and at most `drafts`, the newest last
        """

    def may_agree(self, source_words: int) -> bool:
        """Return whether the next draft, of so many source words, may be agreed in part."""


@dataclass(frozen=True, slots=True)
class LocalAgreement:
    """Agrees on the words that the last drafts begin with alike.

    Liu et al. 2020, "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by Partial Hypothesis
    Selection", section 3, and Polak et al. 2022, "CUNI-KIT System for Simultaneous Speech Translation Task at IWSLT
    2022", section 3.
    """

    drafts: int = 2

    def agree(self, drafts: Sequence[Draft]) -> int:
        if len(drafts) < self.drafts:
            return 0
        common = min(common_length(drafts[-1].tokens, each.tokens) for each in drafts)
        shared = set(drafts[-1].word_ends).intersection(*(each.word_ends for each in drafts))
        return max((end for end in shared if end <= common), default=0)

    def may_agree(self, source_words: int) -> bool:
        return True  # this draft may be the one that the next draft is compared with


@dataclass(frozen=True, slots=True)
class WaitK:
    """Agrees on as many words as the source has, less the lag, scaled by the ratio of the lengths of the languages.

    Ma et al. 2019, "STACL: Simultaneous Translation with Implicit Anticipation and Controllable Latency using
    Prefix-to-Prefix Framework", section 3, with its catch-up (section 3.2) by the ratio.
    """

    lag: int
    drafts: int = 1

    def agree(self, drafts: Sequence[Draft]) -> int:
        newest = drafts[-1]
        words = min(int((newest.source_words - self.lag) * newest.words_per_word), len(newest.word_ends))
        return newest.word_ends[words - 1] if words > 0 else 0

    def may_agree(self, source_words: int) -> bool:
        return source_words > self.lag


@dataclass(frozen=True, slots=True)
class AlignmentGuided:
    """Agrees on the words before the first token that looks at one of the last source words.

    Papi et al. 2023, "AlignAtt: Using Attention-based Audio-Translation Alignments as a Guide for Simultaneous Speech
    Translation", section 2.
    """

    lag: int
    drafts: int = 1

    def agree(self, drafts: Sequence[Draft]) -> int:
        newest = drafts[-1]
        assert newest.looks_at is not None, "this policy is refused for models without attention"
        last = newest.source_words - self.lag
        looking = (token for token, word in enumerate(newest.looks_at) if word >= last)
        return newest.words_end(next(looking, len(newest.tokens)))

    def may_agree(self, source_words: int) -> bool:
        return source_words > self.lag


@dataclass(frozen=True, slots=True)
class WholeSentences:
    """Agrees on nothing before the sentence is complete."""

    drafts: int = 1

    def agree(self, drafts: Sequence[Draft]) -> int:
        return 0

    def may_agree(self, source_words: int) -> bool:
        return False


PolicyNumber: TypeAlias = pb.LivePolicy.ValueType


def policy_of(asked: PolicyNumber, lag: int) -> tuple[PolicyNumber, Policy]:
    """Return the number of a policy, with the default in place of 0, and the policy; lag: 0 is its default.

    Raises InvalidRequest.
    """
    number = asked or pb.LIVE_POLICY_LOCAL_AGREEMENT
    if number not in DEFAULT_LAGS:
        raise InvalidRequest("start.policy", f"start.policy has no value {number}")
    if lag > MOST_LAG:
        raise InvalidRequest("start.lag_words", f"start.lag_words must be 0 to {MOST_LAG}, got {lag}")
    lag = lag or DEFAULT_LAGS[number]
    if number == pb.LIVE_POLICY_LOCAL_AGREEMENT:
        return number, LocalAgreement(lag)
    if number == pb.LIVE_POLICY_WAIT_K:
        return number, WaitK(lag)
    return number, AlignmentGuided(lag) if number == pb.LIVE_POLICY_ALIGNMENT else WholeSentences()


class LengthRatio:
    """How many target words a source word becomes, from the sentences of one speaker."""

    def __init__(self) -> None:
        self._source = self._target = PRIOR_WORDS

    @property
    def value(self) -> float:
        return self._target / self._source

    def add(self, source_words: int, target_words: int) -> None:
        """Count a complete sentence."""
        self._source += source_words
        self._target += target_words
