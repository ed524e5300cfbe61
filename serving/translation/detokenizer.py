"""Incremental detokenisation for streams: the text of tokens as they are decided, of which no part is taken back."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from lingon.text import UNK, Tokenizer


class PartDetokenizer:
    """The text of one part, token by token.

    A token costs the same wherever it stands in the text: only a window is decoded, from the last token before the new
    ones that has text of its own. Sentencepiece drops a space at the beginning of what it decodes, and puts the bytes
    of a character together; the window begins before both.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._certain = 0  # ids of the window whose text no later token can change
        self._window_text = ""  # of the ids of the window that were decoded before
        self._space = ""  # white space that is shown when text follows it
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown: list[str] = []

    def add(self, token: int) -> None:
        """Add the next token; special ids have no text, and `Tokenizer.decode` skips them."""
        if token <= UNK:
            return
        self._window.append(token)
        if not self._tokenizer.target.is_byte(token):
            self._bytes.reset()
        else:
            piece = str(self._tokenizer.target.id_to_piece(token))  # <0xE2>
            self._bytes.decode(bytes([int(piece[1:-1], 16)]))
            if self._bytes.getstate()[0]:
                return  # the character is not complete
        self._certain = len(self._window)

    def take(self) -> str:
        """Return the text that is certain and was not returned yet, without white space at its end."""
        if not self._certain:
            return ""
        text = self._tokenizer.decode(self._window[: self._certain])
        more = self._space + text[len(self._window_text) :]
        self._window_text = text
        self._shorten_window()
        if not self._shown:
            more = more.lstrip()
        shown = more.rstrip()
        self._space = more[len(shown) :]
        if shown:
            self._shown.append(shown)
        return shown

    def rest(self, text: str) -> str:
        """Return what was not returned yet of the part's whole text."""
        shown = "".join(self._shown)
        assert text.startswith(shown), "a delta would be taken back"
        self._shown = [text]
        return text[len(shown) :]

    def _shorten_window(self) -> None:
        """Begin the window at its last certain token, if that has text."""
        last = self._window[self._certain - 1]
        if self._tokenizer.target.is_byte(last):
            return
        if text := self._tokenizer.decode_token(last):
            self._window = self._window[self._certain - 1 :]
            self._window_text, self._certain = text, 1


class IncrementalDetokenizer:
    """The text of all parts in their order: a part waits until those before it are done."""

    def __init__(self, tokenizer: Tokenizer, parts: int) -> None:
        self._parts = [PartDetokenizer(tokenizer) for _ in range(parts)]
        self._done: list[str | None] = [None] * parts
        self._current = 0
        self._any_shown = False
        self._current_shown = False

    def add(self, part: int, token: int) -> None:
        """Add the next token of a part."""
        self._parts[part].add(token)

    def finish(self, part: int, text: str) -> None:
        """Set the whole text of a part that is done."""
        self._done[part] = text

    def take(self) -> str:
        """Return the text that was not returned yet."""
        found = ""
        while self._current < len(self._parts):
            done = self._done[self._current]
            part = self._parts[self._current]
            found += self._spaced(part.take() if done is None else part.rest(done))
            if done is None:
                break
            self._current += 1
            self._current_shown = False
        return found

    def _spaced(self, text: str) -> str:
        """Put a space before a part's first text, unless it is the first text of all."""
        if not text:
            return ""
        space = " " if self._any_shown and not self._current_shown else ""
        self._current_shown = self._any_shown = True
        return space + text


def join(texts: Sequence[str]) -> tuple[str, list[int]]:
    """Join the texts of parts by spaces, without empty ones; returns the text and the place where each part begins."""
    joined, begins = "", []
    for text in texts:
        space = " " if joined and text else ""
        begins.append(len(joined) + len(space))
        joined += space + text
    return joined, begins
