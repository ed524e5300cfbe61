"""Which sentences of a request go to the second translator, and how many. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from lingon.errors import InvalidRequest
from lingon.serving.guard import Flag, Judgement
from lingon.translation.v1 import translation_pb2 as pb

Reason: TypeAlias = pb.SecondReason.ValueType

NOT_SUSPECTED = frozenset({Flag.LOW_CONFIDENCE})
"""What the threshold of the confidence decides, and no suspicion."""

FAULTS = frozenset(Flag) - NOT_SUSPECTED - {Flag.UNREADABLE}
"""What an answer must not have. UNREADABLE is a fault of the source."""


class SecondChoice(NamedTuple):
    """The sentences that may be sent.

    below: those with a lower confidence, 0 to 1, in addition to those that the guard suspects
    sentences: of a request at most
    characters: that a sentence has at least to be sent for its confidence
    """

    below: float = 0.0
    sentences: int = 0
    characters: int = 0

    def within(self, asked: pb.SecondOptions) -> SecondChoice:
        """Return the choice of a request within these bounds of the server. Raises InvalidRequest."""
        below, sentences = self.below, self.sentences
        if asked.HasField("below"):
            if not (math.isfinite(asked.below) and 0 <= asked.below <= 1):
                raise InvalidRequest("second.below", f"second.below must be 0 to 1, got {asked.below:g}")
            below = min(below, asked.below)
        if asked.HasField("sentences"):
            sentences = min(sentences, asked.sentences)
        return self._replace(below=below, sentences=0 if asked.never else sentences)

    def reason(self, judgement: Judgement, characters: int) -> Reason | None:
        """Return why a translation with this judgement is doubtful, or None if it is not.

        characters: of the sentence
        """
        if not NOT_SUSPECTED.issuperset(judgement.flags):
            return pb.SECOND_REASON_SUSPECT
        doubtful = judgement.confidence is not None and judgement.confidence < self.below
        return pb.SECOND_REASON_CONFIDENCE if doubtful and characters >= self.characters else None


def expected_gain(judgement: Judgement, characters: int) -> float:
    """Return by how much a better translation of a sentence may improve its text; larger is more.

    The doubt about each of its characters: with equal doubt, more is wrong in a longer sentence. Of the same number of
    sentences, those with the largest product gain 72 to 81 % of what all gain, those with the least confidence 53 to
    58 % (a fifth of Tatoeba and news, a person's translations judged against another person's).
    """
    sure = 0.0 if judgement.confidence is None or judgement.degenerate else judgement.confidence
    return (1.0 - sure) * characters


def faults(flags: Iterable[Flag]) -> list[Flag]:
    """Return what is wrong with an answer, in the order of its flags."""
    return [flag for flag in flags if flag in FAULTS]
