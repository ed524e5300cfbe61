"""The flags of a translated sentence: what is wrong with it, as far as text and tokens show."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lingon.serving.guard.copies import copies
from lingon.serving.guard.numbers import changes_numbers
from lingon.serving.guard.repetition import repeats
from lingon.translation.v1 import translation_pb2 as pb

UNREADABLE_SHARE = 0.3  # of the tokens of a source


class Flag(StrEnum):
    """Why a translation is suspect; the value is the label of the metric."""

    EMPTY = "empty"
    REPETITION = "repetition"
    COPY = "copy"
    NUMBERS = "numbers"
    UNREADABLE = "unreadable"

    @property
    def code(self) -> pb.WarningCode.ValueType:
        """The code of its warning."""
        return pb.WarningCode.Value(f"WARNING_CODE_{self.name}")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence and its translation; the ids are without end tokens."""

    source: str
    target: str
    source_ids: Sequence[int]
    target_ids: Sequence[int]


def judge(sentence: Sentence, unreadable: Container[int]) -> list[Flag]:
    """Return the flags of a translation, in the order of Flag.

    unreadable: source ids that stand for a part of a character, or for one that the vocabulary has not
    """
    source, target = sentence.source, sentence.target
    if not target.strip() and source.strip():
        return [Flag.EMPTY, *_unreadable(sentence, unreadable)]
    flags = []
    if repeats(source, target, sentence.source_ids, sentence.target_ids):
        flags.append(Flag.REPETITION)
    if copies(source, target):
        flags.append(Flag.COPY)
    if changes_numbers(source, target):
        flags.append(Flag.NUMBERS)
    return flags + _unreadable(sentence, unreadable)


def _unreadable(sentence: Sentence, unreadable: Container[int]) -> list[Flag]:
    unread = sum(token in unreadable for token in sentence.source_ids)
    return [Flag.UNREADABLE] if unread and unread >= UNREADABLE_SHARE * len(sentence.source_ids) else []
