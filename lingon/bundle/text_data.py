"""What a bundle knows about texts, measured at export; a server judges its translations by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from lingon.bundle.schema import MaxLength, Pattern, Range

Feature = Literal["mean", "root", "total", "characters", "ratio", "unknown"]
Share = Annotated[float, Range(0, 1)]
Weight = Annotated[float, Range(-1e6, 1e6)]
TokenRatio = Annotated[float, Range(0, 1e6)]
Word = Annotated[str, Pattern(r"\w{1,64}", "a word of at most 64 letters and digits")]


@dataclass(frozen=True, slots=True)
class LengthRange:
    """The usual lengths of translations of sources with at most `most_source` tokens.

    least, most: target tokens / source tokens, without end tokens; one pair of 1,000 is below, and one is above
    """

    most_source: Annotated[int, Range(1, 2**15)]
    least: TokenRatio
    most: TokenRatio


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Sentences of held-out text with a similar confidence.

    confidence: their mean; right: the share of them whose chrF is at least 50
    """

    sentences: Annotated[int, Range(1, 2**31)]
    confidence: Share
    right: Share


@dataclass(frozen=True, slots=True)
class Confidence:
    """A logistic regression for the probability that a translation has a chrF of at least 50.

    The probability is 1 / (1 + exp(-(bias + sum of weight * feature))).

    weights: of each feature; `lingon.serving.guard.confidence` computes the features
    low: below it a translation has LOW_CONFIDENCE; 1 % of held-out text of the bundle's own kind is below
    reliability: what the confidence was worth on held-out text of the bundle's own kind, ascending
    """

    bias: Weight
    weights: dict[Feature, Weight]
    low: Share
    reliability: Annotated[tuple[ReliabilityBin, ...], MaxLength(100)]


@dataclass(frozen=True, slots=True)
class TextData:
    """See the fields.

    words: words that translate to themselves, the surest first
    lengths: ascending by most_source; the last one holds for longer sources too; empty if they were not measured
    confidence: None if it was not fitted

    The profiles of the two languages are in PROFILES, if there was enough training text.
    """

    words: Annotated[tuple[Word, ...], MaxLength(64)]
    lengths: Annotated[tuple[LengthRange, ...], MaxLength(64)] = ()
    confidence: Confidence | None = None
