"""From the words of a request to its rules. Every bound is checked first, since compiling takes time and memory."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property

from lingon.errors import InvalidRequest, Unsupported
from lingon.serving.constraints.forced import ForcedWords
from lingon.serving.constraints.pieces import REPLACEMENT, Pieces
from lingon.serving.constraints.rules import Rules
from lingon.serving.constraints.spelling import Spelling
from lingon.text import UNK, Tokenizer, common_length, normalise

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
        """Return the rules of a request; forbidden, forced: words as `checked_words` returns them.

        Raises InvalidRequest for words that contradict each other, or that the model cannot write, and Unsupported for
        any words if the model writes Moses tokens.
        """
        if self.tokenizer.moses is not None and (forced or forbidden):
            field = FORCED_WORDS if forced else FORBIDDEN_WORDS
            raise Unsupported(f"{field}: the model writes Moses tokens, whose text depends on the tokens after them")
        words = ForcedWords(
            self.pieces, [word.encode() for word in forced], [self._tokens(word, at) for at, word in enumerate(forced)]
        )
        for place, word in enumerate(forced):
            for other, bad in enumerate(forbidden):
                if bad in word:
                    message = f"{FORCED_WORDS}[{place}] contains {FORBIDDEN_WORDS}[{other}], so that both cannot hold"
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

    def _tokens(self, word: str, place: int) -> tuple[int, ...]:
        """Return the tokens that spell a forced word."""
        tokens = tuple(self.tokenizer.encode_target(word))
        written = self.tokenizer.decode(tokens)
        if min(tokens, default=0) <= UNK or written.strip() != word or REPLACEMENT in word.encode():
            at = common_length(word, written.strip())
            what = f"has {word[at]!r} at character {at + 1}" if at < len(word) else "has U+FFFD"
            raise InvalidRequest(FORCED_WORDS, f"{FORCED_WORDS}[{place}] {what}, which the model cannot write")
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
        """The rules of a part that follows another one: a forbidden word may reach from one to the other."""
        if not any(" " in word for word in self.forbidden):
            return self._first
        return self._first.with_spelling(Spelling(self._pieces, _spellings(self.forbidden), follows=True))

    def check_prefix(self, prefix: str, field: str) -> None:
        """Raise InvalidRequest if a target prefix has a forbidden word."""
        normalised = normalise(prefix)
        for place, word in enumerate(self.forbidden):
            if any(each.decode() in normalised for each in _spellings([word])):
                raise InvalidRequest(field, f"{field} has {FORBIDDEN_WORDS}[{place}] in it")

    def check_parts(self, parts: int, field: str) -> None:
        """Raise InvalidRequest if a text in several parts would need forced words: they belong to one of them."""
        if parts > 1 and self.forced:
            message = (
                f"{field} would be translated in {parts} parts; {FORCED_WORDS} needs a text that the model reads whole"
            )
            raise InvalidRequest(field, message)

    def missing(self, text: str) -> list[str]:
        """Return the forced words that are not in a translation."""
        spaced = " ".join(text.split())
        return [word for word in self.forced if word not in spaced]


def checked_words(words: Sequence[str], field: str, most: int) -> list[str]:
    """Return the words of a request normalised, each once; raises InvalidRequest, which names the bound.

    field: FORBIDDEN_WORDS or FORCED_WORDS
    most: the number of words that a request may have
    """
    if len(words) > most:
        raise InvalidRequest(field, f"{field} must have {most} words at most, got {len(words)}")
    for place, word in enumerate(words):
        if len(word) > MAX_CHARACTERS:
            message = f"{field}[{place}] must have 1 to {MAX_CHARACTERS} characters, got {len(word)}"
            raise InvalidRequest(field, message)
    normalised = [normalise(word) for word in words]
    for place, word in enumerate(normalised):
        if not word:
            raise InvalidRequest(field, f"{field}[{place}] is empty")
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
