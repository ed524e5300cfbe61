"""The judgement of translations by text, tokens and log-probabilities, without a model: flags and confidence."""

from __future__ import annotations

import math
import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple, get_args

import numpy as np

from lingon.bundle.manifest import Confidence, Feature, LengthRange, TextData
from lingon.bundle.names import PROFILE_BYTES, PROFILES
from lingon.bundle.store import Bundle
from lingon.errors import BundleError
from lingon.text import UNK, Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

FEATURES: tuple[Feature, ...] = get_args(Feature)
LEAST_LOG_PROB = -50.0  # log-probability of a token, because a rule may force tokens of probability 0
GOOD = 50  # chrF of a translation from which on it counts as good


def features(
    source: str, target: str, source_ids: Sequence[int], log_probs: Sequence[float]
) -> tuple[float, float, float, float, float, float]:
    """Return the inputs of the confidence, in the order of FEATURES.

    mean: log-probability of a token
    root: mean root of -log-probability, in which an unlikely token counts less
    total: log-probability of the whole translation
    characters: logarithm of their number, in the translation
    ratio: logarithm of characters of the translation / characters of the source
    unknown: share of the source tokens that are unknown

    source_ids: ids without the end token; log_probs: natural log-probabilities of the target tokens and the end token
    """
    if log_probs and min(log_probs) < LEAST_LOG_PROB:
        log_probs = [max(value, LEAST_LOG_PROB) for value in log_probs]
    count, total = max(len(log_probs), 1), sum(log_probs)
    root = sum([math.sqrt(-value) for value in log_probs if value < 0]) / count
    characters = math.log(len(target) + 1)
    unknown = sum([token == UNK for token in source_ids]) / max(len(source_ids), 1)
    return total / count, root, total, characters, characters - math.log(len(source) + 1), unknown


def confidence(model: Confidence, found: Sequence[float]) -> float:
    """Return the probability, 0 to 1, that a translation with these `features` has a chrF of at least GOOD."""
    weights = model.weights
    log_odds = model.bias + sum([weights.get(name, 0.0) * value for name, value in zip(FEATURES, found, strict=True)])
    return 1 / (1 + math.exp(-max(min(log_odds, 700.0), -700.0)))


MIN_WORDS = 3  # one or two words are often the same in both languages
COPIED = 0.9  # similarity
LEAST_LENGTH = 0.7  # ratio of the shorter text's length to the longer one's; below it, similarity is under COPIED
ORDER, BETA = 6, 2  # longest n-gram of characters; weight of recall, as in chrF


def copies(source: str, target: str) -> bool:
    """Return whether a translation is a copy of its source, of at least MIN_WORDS words that are not all names."""
    if not LEAST_LENGTH * len(source) <= len(target) <= len(source) / LEAST_LENGTH:
        return False
    words = source.split()
    kinds = set(words)
    if len(words) < MIN_WORDS or 2 * len(kinds.intersection(target.split())) < len(kinds):
        return False
    return not all(map(_may_be_name, words)) and similarity(target, source) >= COPIED


def similarity(text: str, reference: str) -> float:
    """Return the F score of the character n-grams of two texts, 0 to 1: chrF of Popović (2015), with beta 2."""
    scores = []
    text, reference = "".join(text.split()), "".join(reference.split())
    for order in range(1, ORDER + 1):
        mine, wanted = _ngrams(text, order), _ngrams(reference, order)
        if not mine or not wanted:
            break
        common = (mine & wanted).total()
        precision, recall = common / mine.total(), common / wanted.total()
        weighted = BETA**2 * precision + recall
        scores.append((1 + BETA**2) * precision * recall / weighted if weighted else 0.0)
    return sum(scores) / len(scores) if scores else 0.0


def _ngrams(text: str, order: int) -> Counter[str]:
    return Counter(text[begin : begin + order] for begin in range(len(text) - order + 1))


def _may_be_name(word: str) -> bool:
    """Return whether a word is in title case, or has no letter: a name, a number or a sign."""
    return not any(letter.isalpha() for letter in word) or (word[0].isupper() and not word.isupper())


STEPS = 16  # units of a profile's bytes per nat: 255 is a log-probability of -15.9
EVIDENCE = 0.5  # share of the difference of two log-probabilities that counts, because trigrams overlap
CLEAR = 1.0  # nats per token by which a text must fit one language better than another to be certain
_OTHER = re.compile(r"[\W\d_]+")


def trigrams(text: str) -> np.ndarray:
    """Return the bucket of each trigram of a text, (trigrams). Digits and punctuation are one space."""
    return _buckets(_OTHER.sub(" ", f" {text.lower()} "))


def _buckets(text: str) -> np.ndarray:
    letters = np.frombuffer(text.encode("utf-32-le", "replace"), "<u4")
    if len(letters) <= 2:
        return np.zeros(0, np.uint32)
    first, second, third = letters[:-2], letters[1:-1], letters[2:]
    mixed = (first * np.uint32(0x9E3779B1) + second) * np.uint32(0x85EBCA6B) + third
    found: np.ndarray = (mixed * np.uint32(0xC2B2AE35)) >> np.uint32(32 - 13)
    return found


def profile(texts: Iterable[str]) -> bytes:
    """Return the profile of a language: for each bucket, -STEPS times its log-probability, at most 255."""
    counts = np.zeros(PROFILE_BYTES, np.int64)
    for text in texts:
        counts += np.bincount(trigrams(text), minlength=PROFILE_BYTES)
    surprise = -np.log((counts + 0.5) / (counts.sum() + 0.5 * PROFILE_BYTES))
    found: bytes = np.minimum(np.rint(STEPS * surprise), 255).astype(np.uint8).tobytes()
    return found


class Languages:
    """The profiles of several languages."""

    def __init__(self, profiles: Sequence[bytes]) -> None:
        """profiles: result of `profile` for each language."""
        table = np.frombuffer(b"".join(profiles), np.uint8).reshape(len(profiles), PROFILE_BYTES)
        self._surprise = table.T.astype(np.float32) / STEPS  # (PROFILE_BYTES, languages)

    def surprise(self, text: str) -> list[float]:
        """Return -log-probability of a text in each language, in nats. The smallest fits best."""
        return self._summed(trigrams(text))

    def fits(self, text: str) -> list[float]:
        """Return the log-likelihood of a text in each language up to a constant. Without letters all are equal."""
        return [-EVIDENCE * surprise for surprise in self.surprise(text)]

    def excess(self, text: str) -> float:
        """Return by how many nats another language fits a text better than the last one, negative if none does."""
        *others, own = self._summed(trigrams(text))
        return own - min(others)

    def excess_inside(self, piece: str) -> float:
        """Return `excess` for a part of a text with unknown neighbours."""
        *others, own = self._summed(_buckets(_OTHER.sub(" ", piece.lower())))
        return own - min(others)

    def _summed(self, buckets: np.ndarray) -> list[float]:
        found: list[float] = self._surprise[buckets].sum(axis=0).tolist()
        return found


class PieceLanguages:
    """A quick proof for most translations that tokens are in the last language, by the trigrams inside each token."""

    def __init__(self, languages: Languages, piece_of: Callable[[int], str]) -> None:
        """piece_of: returns the text of a token, with spaces."""
        self._languages, self._piece_of = languages, piece_of
        self._excesses: dict[int, float] = {}  # cache by token

    def excess(self, text: str, token_ids: Sequence[int]) -> float:
        """Return by how many nats another language fits a text of these tokens better, or 0 if none clearly does."""
        return self._languages.excess(text) if self.may_be_other(token_ids) else 0.0

    def may_be_other(self, token_ids: Sequence[int]) -> bool:
        """Return whether the trigrams inside the tokens do not clearly fit the last language best.

        The text must then be checked. A token of one or two letters has no trigram inside, so that it always needs the
        check.
        """
        known, total = self._excesses, 0.0
        for token in token_ids:
            excess = known.get(token)
            if excess is None:
                excess = known[token] = self._languages.excess_inside(self._piece_of(token))
            total += excess
        return total > -CLEAR * len(token_ids)


SLACK = 1.25  # factor of the ratio, because good translations vary more than training pairs
SPARE = 2  # tokens; any translation may be so much too short or too long


class Lengths:
    """The usual ratios of the lengths of translations and sources, in tokens without end tokens."""

    def __init__(self, ranges: Sequence[LengthRange]) -> None:
        self._ranges = tuple(ranges)
        self._bounds = [each.most_source for each in ranges]

    def unusual(self, source_tokens: int, target_tokens: int) -> bool:
        """Return whether a translation is clearly shorter or longer than all but one of 1,000 training pairs."""
        usual = self._ranges[min(bisect_left(self._bounds, source_tokens), len(self._ranges) - 1)]
        least = usual.least / SLACK * source_tokens - SPARE
        most = usual.most * SLACK * source_tokens + SPARE
        return not least <= target_tokens <= most


_THOUSANDS = re.compile(r"(?<=\d)[ .,'’\u00a0\u202f](?=\d{3}(?!\d))")
_DIGITS = re.compile(r"\d++")
LONG = 3  # digits: translations often have shorter numbers as words


def changes_numbers(source: str, target: str) -> bool:
    """Return whether a translation has other numbers than its source.

    It lacks a number of the source and has an additional one. Or only one of both holds, and the number has LONG or
    more digits. Shorter numbers may be written as words in one of the texts.
    """
    if not _DIGITS.search(source) and not _DIGITS.search(target):
        return False
    wanted, found = _numbers(source), _numbers(target)
    if wanted == found:
        return False
    lost, new = wanted - found, found - wanted
    return bool(lost and new) or any(len(number) >= LONG for number in lost | new)


def _numbers(text: str) -> Counter[str]:
    """Return the counts of the runs of digits without separators of thousands. 1.5 and 1,5 are the same two runs.

    Zeros at the begin do not count: 09:30 is 9:30.
    """
    return Counter(number.lstrip("0") or "0" for number in _DIGITS.findall(_THOUSANDS.sub("", text)))


NGRAM = 4
OFTENER = 2  # ratio of the counts of the commonest n-grams of a translation and its source, at least
COMPRESSED_BYTES = 200  # bytes of UTF-8; shorter texts do not compress well, whatever they contain
COMPRESSION = 2.4  # bytes of a text per compressed byte; looping text exceeds it


PERIODS = range(1, 17)  # tokens of a phrase that `is_looping` finds
TIMES = 4  # repetitions of a phrase, with at least TIMES * NGRAM tokens


def is_looping(source: Sequence[int], target: Sequence[int]) -> bool:
    """Return whether a translation ends with one repeated phrase that its source does not repeat."""
    count = len(target)
    if count < TIMES * NGRAM:
        return False
    last = target[-1]
    for period in PERIODS:
        length = TIMES * max(period, NGRAM)
        if length > count:
            return False
        if target[-1 - period] == last and target[count - length : -period] == target[count - length + period :]:
            return _commonest(source) < TIMES
    return False


def repeats(source: str, target: str, source_ids: Sequence[int], target_ids: Sequence[int]) -> bool:
    """Return whether a translation repeats itself more than its source does.

    The commonest 4-gram of words or tokens is compared as in Raunak et al. (2021), section 4.2, and the ratio of
    compression as in Radford et al. (2022), section 4.5.
    """
    if _commonest(target_ids) > 1 and (  # repeated words have repeated tokens
        _oscillates(source_ids, target_ids) or _oscillates(source.split(), target.split())
    ):
        return True
    return len(target) >= COMPRESSED_BYTES // 4 and _compression(target) > COMPRESSION >= _compression(source)


def _oscillates(source: Sequence[Hashable], target: Sequence[Hashable]) -> bool:
    found = _commonest(target)
    return found >= OFTENER and found >= _commonest(source) + OFTENER


def _commonest(items: Sequence[Hashable]) -> int:
    """Return the count of the commonest n-gram, or 0 for fewer than NGRAM items."""
    if len(items) < NGRAM or len(set(items)) == len(items):
        return int(len(items) >= NGRAM)
    grams = list(zip(*(items[begin:] for begin in range(NGRAM)), strict=False))
    return 1 if len(set(grams)) == len(grams) else max(Counter(grams).values())


def _compression(text: str) -> float:
    """Return the bytes of a text per compressed byte, or 0 for a text that is too short."""
    content = text.encode(errors="replace")
    return len(content) / len(zlib.compress(content)) if len(content) >= COMPRESSED_BYTES else 0.0


UNREADABLE_SHARE = 0.3  # share of the tokens of a source
EXCESS = 8.0  # nats by which the other language of the bundle fits a translation better: 2 of 10,000 human ones have it


class Flag(StrEnum):
    """The reason why a translation is suspect. The value is the label of the metric."""

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
        return pb.WarningCode.Value(f"WARNING_CODE_{self.name}")


REASONS: dict[str, pb.WarningCode.ValueType] = {
    **{flag: flag.code for flag in Flag},
    "retried": pb.WARNING_CODE_RETRIED,
}
"""Each action or suspicion of the guard as the label of the metric, with the code of its warning."""

DEGENERATE = frozenset({Flag.EMPTY, Flag.REPETITION, Flag.WRONG_LANGUAGE, Flag.LENGTH_RATIO})
"""The flags of translations that get another attempt and have a confidence of 0."""


class Sentence(NamedTuple):
    """A sentence and its translation. The ids are without end tokens.

    log_probs: log-probabilities of the target tokens that the model chose, and of the end token
    """

    source: str
    target: str
    source_ids: Sequence[int]
    target_ids: Sequence[int]
    log_probs: Sequence[float] = ()


class Judgement(NamedTuple):
    """The judgement of the guard about a sentence; confidence: 0 to 1, None without text data."""

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
        """Return the guard of a bundle. Raises BundleError if its profiles do not have the right size."""
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
        """Compare a translation with text to the language data of the bundle, and add to flags."""
        if self._languages is not None and self._languages.excess(sentence.target, sentence.target_ids) > EXCESS:
            flags.append(Flag.WRONG_LANGUAGE)
        if self._lengths is not None and self._lengths.unusual(len(sentence.source_ids), len(sentence.target_ids)):
            flags.append(Flag.LENGTH_RATIO)


def profiles_of(bundle: Bundle) -> tuple[bytes, bytes] | None:
    """Return the profiles of the source and the target language, or None if the bundle has none.

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

    unreadable: source ids that stand for a part of a character, or for an unknown one
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
