"""The text with which a translation begins, where the tokens of its target prefix spell another one.

A vocabulary without byte pieces lacks characters, and some vocabularies have a normalisation of their own, such as
NFKC: the model then reads tokens that stand for the prefix, and the translation begins with its own text all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lingon.errors import InvalidRequest
from lingon.text import Tokenizer, common_length


@dataclass(frozen=True, slots=True)
class Begin:
    """The begin of a translation.

    text: of the prefix, normalised
    tokens: those of the prefix; spelled: their text
    """

    text: str
    tokens: tuple[int, ...]
    spelled: str

    @classmethod
    def of(cls, text: str, tokens: tuple[int, ...], tokenizer: Tokenizer) -> Begin | None:
        """Return the begin of a translation with this prefix; None if its tokens spell it."""
        spelled = tokenizer.decode(tokens)
        return None if spelled.strip() == text else cls(text, tokens, spelled)

    def whole(self, tokens: Sequence[int], decoded: str, tokenizer: Tokenizer) -> str:
        """Return the text of tokens that begin with those of the prefix; decoded: the text that they spell."""
        rest = decoded.removeprefix(self.spelled).rstrip()
        return self.text + self.space(tokens[len(self.tokens) :], tokenizer) + rest

    def space(self, following: Sequence[int], tokenizer: Tokenizer) -> str:
        """Return the space before the first token after the prefix if decoding drops it: there is no text before it."""
        begins_word = bool(following) and tokenizer.piece_text(following[0]).startswith(" ")
        return " " if begins_word and not self.spelled else ""

    def difference(self) -> tuple[int, str]:
        """Return the place and the text of the first character that the tokens do not spell."""
        place = min(common_length(self.text, self.spelled), len(self.text) - 1)
        return place, self.text[place]

    def refusal(self, field: str, why: str) -> InvalidRequest:
        """Return the error of a request that needs tokens that spell the prefix."""
        place, character = self.difference()
        message = f"{field} has {character!r} at character {place + 1}, which the model's tokens do not spell; {why}"
        return InvalidRequest(field, message)


def text_of(tokenizer: Tokenizer, tokens: Sequence[int], begin: Begin | None = None) -> str:
    """Return the text of generated tokens, which begin with those of `begin` if there is one."""
    decoded = tokenizer.decode(tokens)
    return decoded.strip() if begin is None else begin.whole(tokens, decoded, tokenizer)
