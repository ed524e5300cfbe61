"""What a client gets back: plain frozen values, read from the messages of the wire.

Log-probabilities are natural; spans are code points of the text as the server normalised it, end exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass

from lingon.errors import ServerError

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Token:
    """A target token as the vocabulary writes it (U+2581 is the space before a word), with its log-probability."""

    piece: str
    log_prob: float


@dataclass(frozen=True, slots=True)
class Link:
    """A piece of the target that was translated from a piece of the source; weight is 0 to 1."""

    source: Span
    target: Span
    weight: float


@dataclass(frozen=True, slots=True)
class Translation:
    """One hypothesis.

    score: log-probability / length ** length_penalty, length counting the end token
    finish_reason: "end", or "length" where the bound on the output was hit and the translation is not complete
    tokens: with return_tokens, without the end token
    alignment: with return_alignment
    """

    text: str
    score: float
    finish_reason: str
    tokens: tuple[Token, ...] = ()
    alignment: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class TextWarning:
    """What a caller should know of a result: "split" or "length", and one line for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class TextResult:
    """What became of one text: translations, best first, or the error that kept it from being translated.

    source_tokens, target_tokens: of the text and of all its translations, end tokens included
    model, version: what translated it
    shortlist: whether scores are among the pieces that the source calls for, not among all
    """

    translations: tuple[Translation, ...] = ()
    error: ServerError | None = None
    warnings: tuple[TextWarning, ...] = ()
    source_tokens: int = 0
    target_tokens: int = 0
    model: str = ""
    version: str = ""
    shortlist: bool = False

    @property
    def best(self) -> Translation:
        """The best translation; raises the error of a text that has none."""
        if self.error is not None:
            raise self.error
        return self.translations[0]

    @property
    def text(self) -> str:
        """The text of the best translation."""
        return self.best.text

    @property
    def score(self) -> float:
        """The score of the best translation."""
        return self.best.score


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """What the model thinks of a given translation.

    log_prob: sum over the tokens, the end token included
    tokens: of the target, the end token last
    """

    log_prob: float = 0.0
    tokens: tuple[Token, ...] = ()
    alignment: tuple[Link, ...] = ()
    error: ServerError | None = None
    model: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The first event of a stream: what translates."""

    model: str
    version: str
    source_language: str
    target_language: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the translation of text `index`; joined they are its text. Greedy decoding only."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class TextDone:
    """Text `index` is done; the result is complete in itself."""

    index: int
    result: TextResult


StreamEvent = StreamStart | TextDelta | TextDone


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that a server has.

    max_source_tokens: the longest text that it reads, the end token counted
    output_factor, output_extra: a translation has at most output_factor * source tokens + output_extra tokens
    has_shortlist: whether the option shortlist may be set
    beam_size, num_hypotheses, length_penalty, shortlist: its defaults
    """

    name: str
    version: str
    source_language: str
    target_language: str
    precision: str
    provider: str
    max_source_tokens: int
    output_factor: float
    output_extra: int
    max_beam_size: int
    beam_size: int
    num_hypotheses: int
    length_penalty: float
    has_shortlist: bool
    shortlist: bool
