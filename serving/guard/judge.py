"""The flags of a translated sentence and its confidence: what is wrong with it, as far as text and tokens show."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple

from lingon.bundle import PROFILE_BYTES, PROFILES, Bundle, TextData
from lingon.errors import BundleError
from lingon.serving.guard.confidence import confidence, features
from lingon.serving.guard.copies import copies
from lingon.serving.guard.languages import Languages, PieceLanguages
from lingon.serving.guard.lengths import Lengths
from lingon.serving.guard.numbers import changes_numbers
from lingon.serving.guard.repetition import repeats
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

UNREADABLE_SHARE = 0.3  # of the tokens of a source
EXCESS = 8.0  # nats by which the other language of the bundle fits a translation better: 2 of 10,000 human ones have it


class Flag(StrEnum):
    """Why a translation is suspect; the value is the label of the metric."""

    EMPTY = "empty"
    REPETITION = "repetition"
    WRONG_LANGUAGE = "wrong_language"
    LENGTH_RATIO = "length_ratio"
    COPY = "copy"
    NUMBERS = "numbers"
    UNREADABLE = "unreadable"
    LOW_CONFIDENCE = "low_confidence"

    @property
    def code(self) -> pb.WarningCode.ValueType:
        """The code of its warning."""
        return pb.WarningCode.Value(f"WARNING_CODE_{self.name}")


REASONS: dict[str, pb.WarningCode.ValueType] = {
    **{flag: flag.code for flag in Flag},
    "retried": pb.WARNING_CODE_RETRIED,
}
"""What the guard does or suspects, as the label of the metric, and the code of its warning."""

DEGENERATE = frozenset({Flag.EMPTY, Flag.REPETITION, Flag.WRONG_LANGUAGE, Flag.LENGTH_RATIO})
"""The flags of translations that are worth another attempt, and whose confidence is 0."""


class Sentence(NamedTuple):
    """A sentence and its translation; the ids are without end tokens.

    log_probs: of the target tokens that the model chose, and of the end token
    """

    source: str
    target: str
    source_ids: Sequence[int]
    target_ids: Sequence[int]
    log_probs: Sequence[float] = ()


class Judgement(NamedTuple):
    """What the guard finds about a sentence; confidence: 0 to 1, None without text data."""

    flags: tuple[Flag, ...] = ()
    confidence: float | None = None

    @property
    def degenerate(self) -> bool:
        """Whether another attempt makes sense."""
        return not DEGENERATE.isdisjoint(self.flags)


class Guard:
    """The guard of a model. Without text data it does not compare languages and lengths, and has no confidence."""

    def __init__(
        self,
        unreadable: AbstractSet[int],
        text: TextData | None = None,
        languages: PieceLanguages | None = None,
    ) -> None:
        """unreadable: see `judge`; languages: with the target language last, if there are profiles."""
        self._unreadable, self._languages = unreadable, languages
        self._lengths = Lengths(text.lengths) if text and text.lengths else None
        self._confidence = text.confidence if text else None

    @classmethod
    def of(cls, bundle: Bundle, tokenizer: Tokenizer) -> Guard:
        """The guard of a bundle. Raises BundleError if its profiles do not have the right size."""
        text, profiles = bundle.manifest.text, profiles_of(bundle)
        if profiles is None:
            return cls(tokenizer.unreadable, text)
        return cls(tokenizer.unreadable, text, PieceLanguages(Languages(profiles), tokenizer.piece_text))

    def judge(self, sentence: Sentence) -> Judgement:
        """Return the flags and the confidence of a translation."""
        flags = judge(sentence, self._unreadable)
        if Flag.EMPTY not in flags:
            self._compare(sentence, flags)
        sure = None
        if self._confidence is not None and sentence.log_probs:
            sure = 0.0 if flags and not DEGENERATE.isdisjoint(flags) else self._sure(sentence)
            if 0 < sure < self._confidence.low:
                flags.append(Flag.LOW_CONFIDENCE)
        if not flags:
            return Judgement((), sure)
        return Judgement(tuple(flag for flag in Flag if flag in flags), sure)

    def _sure(self, sentence: Sentence) -> float:
        assert self._confidence is not None
        measured = features(sentence.source, sentence.target, sentence.source_ids, sentence.log_probs)
        return confidence(self._confidence, measured)

    def _compare(self, sentence: Sentence, flags: list[Flag]) -> None:
        """Compare a translation that has text with what the bundle knows of its languages; adds to flags."""
        if self._languages is not None and self._languages.excess(sentence.target, sentence.target_ids) > EXCESS:
            flags.append(Flag.WRONG_LANGUAGE)
        if self._lengths is not None and self._lengths.unusual(len(sentence.source_ids), len(sentence.target_ids)):
            flags.append(Flag.LENGTH_RATIO)


def profiles_of(bundle: Bundle) -> tuple[bytes, bytes] | None:
    """Return the profiles of the source and the target language; None if the bundle has none.

    Raises BundleError if they do not have the right size.
    """
    if PROFILES not in bundle.manifest.checksums:
        return None
    content = bundle.read(PROFILES)
    if len(content) != 2 * PROFILE_BYTES:
        raise BundleError(f"{bundle.folder / PROFILES}: must have {2 * PROFILE_BYTES:,} bytes, has {len(content):,}")
    return content[:PROFILE_BYTES], content[PROFILE_BYTES:]


def judge(sentence: Sentence, unreadable: AbstractSet[int]) -> list[Flag]:
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


def _unreadable(sentence: Sentence, unreadable: AbstractSet[int]) -> list[Flag]:
    if unreadable.isdisjoint(sentence.source_ids):
        return []
    unread = sum(token in unreadable for token in sentence.source_ids)
    return [Flag.UNREADABLE] if unread and unread >= UNREADABLE_SHARE * len(sentence.source_ids) else []
