"""The rules of one request, and what they mean for the next token of a hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lingon.serving.constraints.forced import ForcedProgress, ForcedWords
from lingon.serving.constraints.pieces import BETWEEN, TokenSet
from lingon.serving.constraints.spelling import Spelling, SpellingState, repeating
from lingon.text import EOS

_END = TokenSet.of([EOS])
_NONE = TokenSet.of([])


class Progress(NamedTuple):
    """What the rules have to know of the text of a hypothesis."""

    spelling: SpellingState
    forced: ForcedProgress = ForcedProgress()


class TokenLimits(NamedTuple):
    """Which tokens may come next: none of `banned`; if `only` is not None, nothing but these."""

    banned: list[TokenSet]
    only: TokenSet | None = None

    def permits(self, token: int) -> bool:
        """Return whether a token may come next."""
        if self.only is not None and token not in self.only.members:
            return False
        return not any(token in banned.members for banned in self.banned)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Rules:
    """How a request restricts its translations; `lingon.translation.v1.DecodingOptions` defines each rule.

    vocab: number of target pieces; what logits have beyond is padding
    min_tokens: generated tokens before which a translation does not end, the end token counted
    no_repeat_ngram: size of the n-grams that are not repeated; 0 is none
    repetition_penalty: see `penalise`; 1 is none
    """

    spelling: Spelling
    vocab: int
    min_tokens: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    forced: ForcedWords | None = None

    @property
    def restricts(self) -> bool:
        """Whether there is a rule beyond that of valid UTF-8."""
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
        """Return the progress after another token; of the end token, the same."""
        if token == EOS:
            return progress
        forced = self.forced.read(progress.forced, token) if self.forced else progress.forced
        return Progress(self.spelling.read(progress.spelling, token), forced)

    def limits(self, progress: Progress, tokens: Sequence[int], generated: int, remaining: int) -> TokenLimits:
        """Return which tokens may come next.

        tokens: of the translation so far, with its prefix; generated: their number without the prefix
        remaining: tokens that the translation may still have, the next one counted

        If no token is left, the translation ends: a rule that forbids the end token then yields.
        """
        repeated = repeating(tokens, self.no_repeat_ngram) if self.no_repeat_ngram else _NONE
        if self.lacks_words(progress):
            assert self.forced is not None
            spare = remaining - self.forced.tokens_needed(progress.forced) - 1
            if progress.forced.committed or spare <= 0:
                allowed = self._allowed(progress, repeated, remaining, min_tokens=0)
                if left := [token for token in self.forced.advancing(progress.forced) if allowed.permits(token)]:
                    return TokenLimits([], TokenSet.of(left))
            if spare > 0 and progress.spelling[0] == BETWEEN:  # a character that is begun has its tokens already
                remaining = spare
        return self._allowed(progress, repeated, remaining, self.min_tokens - generated)

    def lacks_words(self, progress: Progress) -> bool:
        """Return whether a forced word is missing."""
        return self.forced is not None and not self.forced.is_met(progress.forced)

    def _allowed(self, progress: Progress, repeated: TokenSet, remaining: int, min_tokens: int) -> TokenLimits:
        """Return which tokens may come next, whatever forced words are missing."""
        if progress.spelling[0] != BETWEEN:
            only = self.spelling.continuing(progress.spelling, remaining)
            left = only.members - repeated.members
            return TokenLimits([], TokenSet.of(left) if left else only)  # a character that is begun is completed
        banned = [self.spelling.banned(progress.spelling, remaining), repeated]
        return TokenLimits([*banned, _END] if min_tokens > 1 and remaining > 1 else banned)
