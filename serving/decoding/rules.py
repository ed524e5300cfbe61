"""The rules of one request, from its words and bounds, and their effect on the next token of a hypothesis.

Every bound on words is checked first, because compiling them takes time and memory.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from lingon.errors import InvalidRequest, Unsupported
from lingon.serving.decoding.spelling import (
    BETWEEN,
    REPLACEMENT,
    ROOT,
    Automaton,
    Pieces,
    Spelling,
    SpellingState,
    TokenSet,
    repeating,
)
from lingon.text import EOS, UNK, Tokenizer, common_length, normalise


class ForcedProgress(NamedTuple):
    """The progress of a translation towards the forced words.

    words: the state of the automaton
    met: the words in its text, one bit each
    current, taken: the translation ends with the first `taken` tokens of word `current`
    committed: whether the word must be completed before anything else
    """

    words: int = ROOT
    met: int = 0
    current: int = 0
    taken: int = 0
    committed: bool = False


class ForcedWords:
    """Words that the text of a translation must have.

    A word is present as soon as its characters are, in any pieces. The engine adds it with its own tokens.
    """

    def __init__(self, pieces: Pieces, words: Sequence[bytes], tokens: Sequence[tuple[int, ...]]) -> None:
        """words: UTF-8 with single spaces inside and none at the ends; tokens: the spelling of each word."""
        self._pieces, self.tokens = pieces, tuple(tokens)
        self._words = Automaton(words)
        self._all = (1 << len(words)) - 1
        self.total = sum(map(len, tokens))  # tokens of all words

    def read(self, progress: ForcedProgress, token: int) -> ForcedProgress:
        """Return the progress after another token."""
        words, ended = self._words.read(progress.words, self._pieces.texts[token])
        met = progress.met | ended
        current, taken = self._follow(progress, token, met)
        committed = progress.committed and taken > 0
        return ForcedProgress(words, met, current, taken, committed)

    def is_met(self, progress: ForcedProgress) -> bool:
        """Return whether the translation has all words."""
        return progress.met == self._all

    def missing(self, progress: ForcedProgress) -> int:
        return (self._all ^ progress.met).bit_count()

    def tokens_needed(self, progress: ForcedProgress) -> int:
        """Return a number of tokens that suffices for the missing words, begun ones from their beginning."""
        return sum(len(tokens) for word, tokens in enumerate(self.tokens) if not progress.met >> word & 1)

    def advancing(self, progress: ForcedProgress) -> list[int]:
        """Return the tokens that continue the current word, or begin a missing one if there is none, ascending."""
        begun = self.tokens[progress.current][: progress.taken]
        return sorted({self.tokens[word][len(begun)] for word in self._beginning_with(begun, progress.met)})

    def _follow(self, progress: ForcedProgress, token: int, met: int) -> tuple[int, int]:
        """Return a missing word and the number of its first tokens with which the translation ends."""
        begun = (*self.tokens[progress.current][: progress.taken], token)
        for candidate in (begun, (token,)):
            for word in self._beginning_with(candidate, met):
                return word, len(candidate)
        return 0, 0

    def _beginning_with(self, begin: tuple[int, ...], met: int) -> list[int]:
        """Return the missing words whose tokens begin with these and continue."""
        return [
            word
            for word, tokens in enumerate(self.tokens)
            if not met >> word & 1 and len(tokens) > len(begin) and tokens[: len(begin)] == begin
        ]


_END = TokenSet.of([EOS])
_NONE = TokenSet.of([])


class Progress(NamedTuple):
    """The state of the text of a hypothesis for the rules."""

    spelling: SpellingState
    forced: ForcedProgress = ForcedProgress()


class TokenLimits(NamedTuple):
    """The permitted next tokens: none of `banned`, and if `only` is not None, only tokens in it."""

    banned: list[TokenSet]
    only: TokenSet | None = None

    def permits(self, token: int) -> bool:
        """Return whether a token may come next."""
        if self.only is not None and token not in self.only.members:
            return False
        return not any(token in banned.members for banned in self.banned)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Rules:
    """The restrictions of a request. `lingon.translation.v1.DecodingOptions` defines each rule.

    vocab: number of target pieces; further logits are padding
    min_tokens: smallest number of generated tokens, with the end token
    no_repeat_ngram: size of the n-grams that are not repeated; 0 means none
    repetition_penalty: see `penalise`; 1 means none
    """

    spelling: Spelling
    vocab: int
    min_tokens: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    forced: ForcedWords | None = None

    @property
    def restricts(self) -> bool:
        """Whether there is a rule in addition to valid UTF-8."""
        numbers = self.min_tokens > 1 or self.no_repeat_ngram > 0 or self.repetition_penalty != 1
        return numbers or self.forced is not None or self.spelling.has_words

    def with_spelling(self, spelling: Spelling) -> Rules:
        """Return the same rules with other words."""
        return replace(self, spelling=spelling)

    def start(self, prefix: Sequence[int]) -> Progress:
        """Return the progress of a translation that begins with these tokens."""
        progress = Progress(self.spelling.start)
        for token in prefix:
            progress = self.read(progress, token)
        return progress

    def read(self, progress: Progress, token: int) -> Progress:
        """Return the progress after another token. The end token does not change it."""
        if token == EOS:
            return progress
        forced = self.forced.read(progress.forced, token) if self.forced else progress.forced
        return Progress(self.spelling.read(progress.spelling, token), forced)

    def limits(self, progress: Progress, tokens: Sequence[int], generated: int, remaining: int) -> TokenLimits:
        """Return the limits of the next token.

        tokens: of the translation so far, with its prefix; generated: their number without the prefix
        remaining: tokens that the translation may still have, with the next one

        If no token is left, the translation ends, even if a rule forbids the end token.
        """
        repeated = repeating(tokens, self.no_repeat_ngram) if self.no_repeat_ngram else _NONE
        if self.lacks_words(progress):
            assert self.forced is not None
            spare = remaining - self.forced.tokens_needed(progress.forced) - 1
            if progress.forced.committed or spare <= 0:
                allowed = self._allowed(progress, repeated, remaining, min_tokens=0)
                if left := [token for token in self.forced.advancing(progress.forced) if allowed.permits(token)]:
                    return TokenLimits([], TokenSet.of(left))
            if spare > 0 and progress.spelling[0] == BETWEEN:  # an incomplete character already has its tokens
                remaining = spare
        return self._allowed(progress, repeated, remaining, self.min_tokens - generated)

    def lacks_words(self, progress: Progress) -> bool:
        """Return whether a forced word is missing."""
        return self.forced is not None and not self.forced.is_met(progress.forced)

    def _allowed(self, progress: Progress, repeated: TokenSet, remaining: int, min_tokens: int) -> TokenLimits:
        """Return the limits of the next token, without those of missing forced words."""
        if progress.spelling[0] != BETWEEN:
            only = self.spelling.continuing(progress.spelling, remaining)
            left = only.members - repeated.members
            return TokenLimits([], TokenSet.of(left) if left else only)  # completes an incomplete character
        banned = [self.spelling.banned(progress.spelling, remaining), repeated]
        return TokenLimits([*banned, _END] if min_tokens > 1 and remaining > 1 else banned)


FORBIDDEN_WORDS = "options.forbidden_words"
FORCED_WORDS = "options.forced_words"
MAX_FORBIDDEN_WORDS = 64
MAX_FORCED_WORDS = 8
MAX_CHARACTERS = 64  # code points of one word
MAX_ALL_CHARACTERS = 1000  # code points of all forbidden words, decomposed; they compile in about 10 ms


class Vocabulary:
    """The target pieces of a model, for the rules of all its requests."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.pieces = Pieces.of(tokenizer)
        self.spelling = Spelling(self.pieces)

    def rules(
        self,
        *,
        forbidden: Sequence[str] = (),
        forced: Sequence[str] = (),
        min_tokens: int = 0,
        no_repeat_ngram: int = 0,
        repetition_penalty: float = 1.0,
    ) -> RequestRules:
        """Return the rules of a request; forbidden, forced: results of `checked_words`.

        Raises InvalidRequest for words that contradict each other, or that the model cannot write, and Unsupported for
        any words if the model writes Moses tokens.
        """
        if self.tokenizer.moses is not None and (forced or forbidden):
            field = FORCED_WORDS if forced else FORBIDDEN_WORDS
            raise Unsupported(f"{field}: the model writes Moses tokens, whose text depends on the tokens after them")
        words = ForcedWords(
            self.pieces, [word.encode() for word in forced], [self._tokens(word, at) for at, word in enumerate(forced)]
        )
        for index, word in enumerate(forced):
            for other, bad in enumerate(forbidden):
                if bad in word:
                    message = f"{FORCED_WORDS}[{index}] contains {FORBIDDEN_WORDS}[{other}], so that both cannot hold"
                    raise InvalidRequest(FORCED_WORDS, message)
        spelled = _spellings(forbidden)
        first = Rules(
            spelling=Spelling(self.pieces, spelled) if spelled else self.spelling,
            vocab=len(self.pieces.texts),
            min_tokens=min_tokens,
            no_repeat_ngram=no_repeat_ngram,
            repetition_penalty=repetition_penalty,
            forced=words if forced else None,
        )
        return RequestRules(self.pieces, first, forbidden, forced)

    def _tokens(self, word: str, index: int) -> tuple[int, ...]:
        """Return the tokens that spell a forced word."""
        tokens = tuple(self.tokenizer.encode_target(word))
        written = self.tokenizer.decode(tokens)
        if min(tokens, default=0) <= UNK or written.strip() != word or REPLACEMENT in word.encode():
            at = common_length(word, written.strip())
            what = f"has {word[at]!r} at character {at + 1}" if at < len(word) else "has U+FFFD"
            raise InvalidRequest(FORCED_WORDS, f"{FORCED_WORDS}[{index}] {what}, which the model cannot write")
        return tokens


class RequestRules:
    """The rules of a request for each part of a text.

    forbidden, forced: the words
    """

    def __init__(self, pieces: Pieces, first: Rules, forbidden: Sequence[str], forced: Sequence[str]) -> None:
        self.forbidden, self.forced = tuple(forbidden), tuple(forced)
        self._pieces, self._first = pieces, first

    @property
    def forced_tokens(self) -> int:
        """The number of tokens of all forced words."""
        return self._first.forced.total if self._first.forced else 0

    def of_part(self, part: int) -> Rules:
        """Return the rules of the part with this index."""
        return self._later if part else self._first

    @cached_property
    def _later(self) -> Rules:
        """The rules of a part that follows another one, because a forbidden word may reach across both."""
        if not any(" " in word for word in self.forbidden):
            return self._first
        return self._first.with_spelling(Spelling(self._pieces, _spellings(self.forbidden), follows=True))

    def check_prefix(self, prefix: str, field: str) -> None:
        """Raise InvalidRequest if a target prefix has a forbidden word."""
        normalised = normalise(prefix)
        for index, word in enumerate(self.forbidden):
            if any(each.decode() in normalised for each in _spellings([word])):
                raise InvalidRequest(field, f"{field} has {FORBIDDEN_WORDS}[{index}] in it")

    def check_parts(self, parts: int, field: str) -> None:
        """Raise InvalidRequest if a text in several parts has forced words, because they belong to one part."""
        if parts > 1 and self.forced:
            message = (
                f"{field} would be translated in {parts} parts; {FORCED_WORDS} needs a text that the model reads whole"
            )
            raise InvalidRequest(field, message)

    def missing(self, text: str) -> list[str]:
        """Return the forced words that a translation lacks."""
        spaced = " ".join(text.split())
        return [word for word in self.forced if word not in spaced]


def checked_words(words: Sequence[str], field: str, most: int) -> list[str]:
    """Return the words of a request, normalised and without duplicates. Raises InvalidRequest, which names the bound.

    field: FORBIDDEN_WORDS or FORCED_WORDS
    most: the largest number of words of a request
    """
    if len(words) > most:
        raise InvalidRequest(field, f"{field} must have {most} words at most, got {len(words)}")
    for index, word in enumerate(words):
        if len(word) > MAX_CHARACTERS:
            message = f"{field}[{index}] must have 1 to {MAX_CHARACTERS} characters, got {len(word)}"
            raise InvalidRequest(field, message)
    normalised = [normalise(word) for word in words]
    for index, word in enumerate(normalised):
        if not word:
            raise InvalidRequest(field, f"{field}[{index}] is empty")
    characters = sum(len(unicodedata.normalize("NFD", word)) for word in normalised)
    if field == FORBIDDEN_WORDS and characters > MAX_ALL_CHARACTERS:
        raise InvalidRequest(
            field, f"{field} must have {MAX_ALL_CHARACTERS} characters at most (in NFD), got {characters}"
        )
    return list(dict.fromkeys(normalised))


def _spellings(words: Sequence[str]) -> list[bytes]:
    """Return words in UTF-8, composed (NFC) and decomposed (NFD)."""
    forms = (unicodedata.normalize(form, word).encode() for word in words for form in ("NFC", "NFD"))
    return list(dict.fromkeys(forms))
