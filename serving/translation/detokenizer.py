"""Translations as they grow: what a stream hands out of tokens, never to take it back."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from lingon.text import Tokenizer


class TextGrowth:
    """The text of one part, token by token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._certain = 0  # ids whose text no later token can change
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown = ""

    def add(self, token: int) -> None:
        """One more token was decided."""
        self._ids.append(token)
        if not self._tokenizer.target.is_byte(token):
            self._bytes.reset()
        else:
            piece = str(self._tokenizer.target.id_to_piece(token))  # <0xE2>
            self._bytes.decode(bytes([int(piece[1:-1], 16)]))
            if self._bytes.getstate()[0]:
                return  # in the middle of a character
        self._certain = len(self._ids)

    def take(self) -> str:
        """The text that is certain by now and was not taken yet; white space waits for what follows it."""
        return self._advance(self._tokenizer.decode(self._ids[: self._certain]).strip())

    def rest(self, text: str) -> str:
        """What was not taken yet of the whole text."""
        return self._advance(text)

    def _advance(self, text: str) -> str:
        assert text.startswith(self._shown), "a delta would take something back"
        more = text[len(self._shown) :]
        self._shown += more
        return more


class JoinedGrowth:
    """The text of all parts in their order: a later one is held back until those before it are done."""

    def __init__(self, tokenizer: Tokenizer, parts: int) -> None:
        self._parts = [TextGrowth(tokenizer) for _ in range(parts)]
        self._done: list[str | None] = [None] * parts
        self._turn = 0
        self._shown = False  # anything yet
        self._begun = False  # the part whose turn it is

    def add(self, part: int, token: int) -> None:
        """One more token of a part was decided."""
        self._parts[part].add(token)

    def finish(self, part: int, text: str) -> None:
        """A part is done, and this is its text."""
        self._done[part] = text

    def take(self) -> str:
        """What can be handed out now."""
        grown = ""
        while self._turn < len(self._parts):
            done = self._done[self._turn]
            part = self._parts[self._turn]
            grown += self._spaced(part.take() if done is None else part.rest(done))
            if done is None:
                break
            self._turn += 1
            self._begun = False
        return grown

    def _spaced(self, text: str) -> str:
        """A space before a part's first text, unless nothing is before it."""
        if not text:
            return ""
        space = " " if self._shown and not self._begun else ""
        self._begun = self._shown = True
        return space + text


def join(texts: Sequence[str]) -> tuple[str, list[int]]:
    """The texts of parts joined by spaces, empty ones left out, and where each begins."""
    joined, begins = "", []
    for text in texts:
        space = " " if joined and text else ""
        begins.append(len(joined) + len(space))
        joined += space + text
    return joined, begins
