"""The results of a client: plain frozen values, and the text that their spans refer to.

Log-probabilities are natural logarithms. Spans count code points. Their end is exclusive. Those of sentences refer to
the caller's own text. The other ones of a source refer to the text after the server normalised it, and
`lingon.NormalisedText` turns them into spans of the caller's own text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lingon.alignment import AttentionKind
from lingon.errors import LingonError, ServerError
from lingon.text import is_invisible, to_nfc

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

    score: log-probability / length ** length_penalty, length counting the end token; with coverage_penalty plus that
    finish_reason: "end", or "length" if the translation reached the bound on output tokens and is not complete
    tokens: if return_tokens was set. Without the end token
    alignment: if return_alignment was set
    missing_words: the forced_words that it does not have
    """

    text: str
    score: float
    finish_reason: str
    tokens: tuple[Token, ...] = ()
    alignment: tuple[Link, ...] = ()
    missing_words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """A document that was translated.

    content: of the file, of the same kind
    source: its language, as it was given or detected, empty if neither
    characters: of its texts
    failures: the texts that were not translated, which stay as they are, and why
    notes: lines about the file, such as its encoding if that is not UTF-8, and what stays as it is for another reason
    without_terms: the texts whose translation lacks a term
    """

    content: bytes
    source: str
    characters: int
    failures: tuple[tuple[str, ServerError], ...] = ()
    notes: tuple[str, ...] = ()
    without_terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextWarning:
    """A warning about a result.

    code: "split", "length", "forced_words", "empty", "repetition", "copy", "numbers", "unreadable", "markup_split",
        "wrong_language", "length_ratio", "low_confidence", "retried", "empty_source", "term_missed", "from_memory",
        "second" or "not_guided".
        WarningCode of the API says what each means
    message: one line for people
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class SecondOutcome:
    """What the second translator of the server did for a sentence.

    reason: why it was to be asked: "confidence" or "suspect"
    result: "taken" if its answer is the translation; else "rejected", "timed_out", "failed", "no_answer" or
        "over_budget", and the translation is that of the model
    model: the name of the model there
    detail: what is wrong with the answer, or why there is none, in one line; empty if it is taken
    """

    reason: str
    result: str
    model: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the caller's text, its position in the best translation, and its score.

    confidence: the probability, 0 to 1, that it is well translated, or None if the model has no confidence, or for an
        answer of the second translator
    warnings: what the server suspects of it, such as "repetition", or "retried"
    second: what the second translator did for it, or None if it was not to be asked
    """

    source: Span
    target: Span
    score: float
    confidence: float | None = None
    warnings: tuple[str, ...] = ()
    second: SecondOutcome | None = None


@dataclass(frozen=True, slots=True)
class TermOutcome:
    """What became of a term at one place of a text.

    source, target: as in the term
    glossary: the name of the glossary that has it, empty for one of the option `terms`
    source_span: in the caller's text
    target_span: in the best translation, or None if that lacks the term
    means: how the term came into the translation: "free" if the model wrote it without being told, "repaired",
        "constrained", "trained", "kept" if the source is its own target, or "missed" if it did not
    """

    source: str
    target: str
    glossary: str
    source_span: Span
    target_span: Span | None
    means: str


@dataclass(frozen=True, slots=True)
class MemoryMatch:
    """An earlier translation of a sentence, or of a similar one.

    memory: the name of the translation memory
    source, target: the segment and its translation
    score: 50 to 101; 100 is an exact match, 101 one with the same neighbours
    source_span: the sentence in the caller's text
    used: whether the translation was made of it
    origin: what the memory says about where it is from
    """

    memory: str
    source: str
    target: str
    score: int
    source_span: Span
    used: bool
    origin: str


@dataclass(frozen=True, slots=True)
class TextResult:
    """The translations of one text, best first, or the error that prevented them. Alternatives: likeliest token first.

    source_tokens, target_tokens: tokens of the text and of all its translations, end tokens included
    model, version: the model that translated, or the two through a pivot language, joined by "+"
    shortlist: whether the target vocabulary was restricted to a shortlist, so that scores are relative to it
    normalised_text: if return_alignment was set, the text to which the source spans of links refer
    sentences: if return_sentences was set, those of the text in their order
    confidence: the lowest one of its sentences, or None if the model has no confidence
    source: the language of the text, given, detected or that of the model, empty if the server does not say it. A text
        that was detected to be in the target language is its own translation, with the score 0 and without a model.
        One with nothing to translate has the score 0 too, and the warning "empty_source"
    terms: what became of the terms that the text has, in the order of their places
    matches: what translation memories have for its sentences, in their order, the best match of each first
    """

    translations: tuple[Translation, ...] = ()
    error: ServerError | None = None
    warnings: tuple[TextWarning, ...] = ()
    source_tokens: int = 0
    target_tokens: int = 0
    model: str = ""
    version: str = ""
    shortlist: bool = False
    normalised_text: str = ""
    sentences: tuple[Sentence, ...] = ()
    confidence: float | None = None
    source: str = ""
    terms: tuple[TermOutcome, ...] = ()
    matches: tuple[MemoryMatch, ...] = ()

    @property
    def best(self) -> Translation:
        """The best translation. Raises the error if there is none."""
        if self.error is not None:
            raise self.error
        return self.translations[0]

    @property
    def text(self) -> str:
        """The text of the best translation."""
        return self.best.text

    @property
    def lacks_terms(self) -> bool:
        """Whether the best translation lacks a term, or has a word that one forbids."""
        return any(warning.code == "term_missed" for warning in self.warnings)

    @property
    def score(self) -> float:
        """The score of the best translation."""
        return self.best.score


@dataclass(frozen=True, slots=True)
class Piece:
    """A token as the vocabulary writes it, and its span in the normalised text. That of the end token is empty."""

    piece: str
    span: Span


@dataclass(frozen=True, slots=True)
class AttentionMatrix:
    """The attention of a head, or the mean of several heads if head is None.

    kind: what rows and columns are. The tokens of a text include its end token, which is the last
        encoder: row and column i are token i of the source
        decoder: row i predicts token i of the target. Column 0 is the begin token, column j is token j-1 of the target
        cross: row i predicts token i of the target. Column j is token j of the source
    weights: the rows. Each sums to one, or to less with the local attention of Luong et al. (2015), and without the
        language tokens of a model of several languages
    """

    kind: AttentionKind
    layer: int
    head: int | None
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """The log-probability that the model gives to a translation.

    log_prob: sum over the target tokens, end token included
    tokens: target tokens, the end token last
    normalised_source, normalised_target: if return_alignment or attention was set, the texts to which spans refer
    attention: if it was set, the matrices in the order of kind, layer, head
    source_pieces, target_pieces: if attention was set, the tokens of both texts. The end token is last, with an empty
        span. A source has none if the model reads none
    warnings: "empty_source" for a pair whose source is empty: its log_prob is 0 and it has no tokens; "empty" for one
        whose target is
    """

    log_prob: float = 0.0
    tokens: tuple[Token, ...] = ()
    alignment: tuple[Link, ...] = ()
    error: ServerError | None = None
    model: str = ""
    version: str = ""
    normalised_source: str = ""
    normalised_target: str = ""
    attention: tuple[AttentionMatrix, ...] = ()
    source_pieces: tuple[Piece, ...] = ()
    target_pieces: tuple[Piece, ...] = ()
    warnings: tuple[TextWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The first event of a stream: the model that translates, or two, as in TextResult.

    With source="auto" there is one before the texts of each language that are translated.
    """

    model: str
    version: str
    source_language: str
    target_language: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the translation of text `index`. All pieces joined are its text. Greedy search only.

    A text that stays as it is, because it is in the target language, has one piece.
    """

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class TextDone:
    """Text `index` is done; result holds the whole translation."""

    index: int
    result: TextResult


StreamEvent = StreamStart | TextDelta | TextDone


@dataclass(frozen=True, slots=True)
class LiveWord:
    """A word of a speaker, without white space inside; punctuation is part of it.

    begin_ms, end_ms: when it was spoken, in milliseconds since the speaker began; 0 if it is not known
    """

    text: str
    begin_ms: int = 0
    end_ms: int = 0


@dataclass(frozen=True, slots=True)
class LiveReady:
    """How a speaker is translated.

    model, version: the model that translates
    policy: when text is agreed, see `lingon.LiveOptions`
    lag_words: its lag
    """

    model: str
    version: str
    source_language: str
    target_language: str
    policy: str
    lag_words: int


@dataclass(frozen=True, slots=True)
class LiveUpdate:
    """New text of a speaker, of one sentence. The `agreed` of all updates, joined, are the translation.

    agreed: text to append to what was agreed before, with the white space before it. It is never taken back
    tentative: the rest of the translation of the words so far. It replaces that of the update before
    sentence: number of the sentence, from 0
    is_complete: whether nothing follows in the sentence
    words: number of words, since the start, of which this is the translation
    first_word: number of the first word of the sentence
    agreed_words: number of words, since the start, that the agreed text covers
    late_words: words of the last messages that came too late, because their sentence was complete
    failure: why an update before it failed, empty if none did
    """

    agreed: str
    tentative: str
    sentence: int
    is_complete: bool
    words: int
    first_word: int
    agreed_words: int
    late_words: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class LiveDone:
    """The end of a speaker.

    words: that were translated
    source_tokens, target_tokens: that were read and written; words that were translated again count again
    """

    words: int
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True, slots=True)
class DetectedLanguage:
    """A language that a text may be in; confidence: its probability, 0 to 1, among the languages of the server.

    If the likeliest one has a confidence below 0.85, the text does not tell its language.
    """

    language: str
    confidence: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that a server serves.

    max_source_tokens: tokens of the longest text that it reads, end token included
    output_factor, output_extra: a translation has at most output_factor * source tokens + output_extra tokens
    has_shortlist: whether the option shortlist may be set
    has_confidence: whether results have a confidence
    beam_size, num_hypotheses, length_penalty, shortlist: defaults of the options
    source_language, target_language: "mul" for several
    source_languages, target_languages: those of a model of several languages, empty for a model of one pair
    loaded: whether it is in memory; another one is loaded for its first request
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
    has_confidence: bool = False
    source_languages: tuple[str, ...] = ()
    target_languages: tuple[str, ...] = ()
    loaded: bool = False


Letter = tuple[str, int, int]
"""A character of a normalised text, and the begin and the end of what it was read from."""

FIRST_THAT_JOINS = "\u0300"
"""Smaller code points neither combine with the character before them nor are reordered by NFC."""


class NormalisedText:
    """A text as the server reads it.

    original: the caller's text
    text: its normalised form, to which the spans of a reply refer

        source = NormalisedText(text)
        result = client.translate(text, return_alignment=True)
        places = [source.original_span(link.source) for link in result.best.alignment]
    """

    def __init__(self, original: str) -> None:
        """original: any text. The time for it grows linearly with its length."""
        self.original = original
        letters = list(_with_single_spaces(_letters(original)))
        self.text = "".join(letter for letter, _, _ in letters)
        self._spans = [(begin, end) for _, begin, end in letters]  # in `original`, of each character of `text`

    def original_span(self, span: Span) -> Span:
        """Return the span of `original` that a span of `text` was read from.

        Removed characters and further white space inside the span belong to it. Characters that NFC joined or
        reordered belong together: the span covers all of them. Raises LingonError for a span that is not in `text`.
        """
        begin, end = span
        if not 0 <= begin <= end <= len(self.text):
            raise LingonError(f"span must be within 0 and {len(self.text)}, the length of the text, got {span}")
        if begin == end:
            position = self._spans[begin][0] if begin < len(self._spans) else len(self.original)
            return position, position
        return self._spans[begin][0], self._spans[end - 1][1]


def _with_single_spaces(letters: Iterable[Letter]) -> Iterator[Letter]:
    """Yield one space for each run of white space, and none at the begin and the end."""
    begun, gap = False, None  # gap: the white space since the last letter
    for letter, begin, end in letters:
        if letter.isspace():
            gap = (gap[0] if gap else begin), end
            continue
        if gap and begun:
            yield " ", *gap
        yield letter, begin, end
        begun, gap = True, None


def _letters(original: str) -> Iterator[Letter]:
    """Yield the characters of the NFC form without invisible ones, each with the span that it comes from."""
    piece, positions = "", list[int]()  # characters that NFC may change together
    for position, character in enumerate(original):
        if is_invisible(character):
            continue
        # Nothing joins with white space before it. Kept apart, it is no part of the span of the letters after it.
        if piece and (piece.isspace() or not _joins(piece, character)):
            yield from _of_piece(piece, positions)
            piece, positions = "", []
        piece += character
        positions.append(position)
    yield from _of_piece(piece, positions)


def _of_piece(piece: str, positions: list[int]) -> Iterator[Letter]:
    """Yield the characters of a piece that begins and ends where NFC joins and reorders nothing."""
    normalised = to_nfc(piece)
    if normalised == piece:
        yield from ((letter, position, position + 1) for letter, position in zip(piece, positions, strict=True))
    else:
        yield from ((letter, positions[0], positions[-1] + 1) for letter in normalised)


def _joins(piece: str, character: str) -> bool:
    """Return whether NFC may change a character together with those before it (Unicode Standard Annex 15, section
    9.1).
    """
    if character < FIRST_THAT_JOINS:
        return False
    if unicodedata.combining(unicodedata.normalize("NFD", character)[0]):
        return True
    return to_nfc(piece + character) != to_nfc(piece) + to_nfc(character)
