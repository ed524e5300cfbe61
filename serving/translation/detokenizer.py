"""Incremental detokenisation for streams: the text of tokens as they are decided. Shown text never changes later."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from lingon.segments.layout import Joiner, TextLayout
from lingon.serving.translation.plans import Begin
from lingon.text import UNK, Tokenizer


class PartDetokenizer:
    """The text of one part, token by token.

    The cost of a token does not depend on its position. Only a window is decoded, from the last token with text before
    the new ones. Sentencepiece drops a space at the beginning of what it decodes, and joins the bytes of a character,
    so that the window begins before both.
    """

    def __init__(self, tokenizer: Tokenizer, begin: Begin | None = None) -> None:
        """begin: text of the part's begin, if the first tokens spell another text."""
        self._tokenizer, self._begin = tokenizer, begin
        self._added = 0  # tokens
        self._own = begin.text if begin else ""  # text of the first tokens, until it is shown
        self._window: list[int] = []
        self._certain = 0  # ids of the window with text that no later token can change
        self._window_text = ""  # text of the ids of the window that were decoded before
        self._space = ""  # white space that is shown when text follows
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._shown: list[str] = []

    def add(self, token: int) -> None:
        """Add the next token. Special ids have no text, and `Tokenizer.decode` skips them."""
        self._added += 1
        if self._begin is not None and self._added <= len(self._begin.tokens) + 1:
            if self._added <= len(self._begin.tokens):
                return
            self._begin_window(self._begin, token)
        if token <= UNK:
            return
        self._window.append(token)
        if self._tokenizer.moses is not None:
            return
        if not self._tokenizer.target.is_byte(token):
            self._bytes.reset()
        else:
            piece = str(self._tokenizer.target.id_to_piece(token))  # <0xE2>
            self._bytes.decode(bytes([int(piece[1:-1], 16)]))
            if self._bytes.getstate()[0]:
                return  # the character is incomplete
        self._certain = len(self._window)

    def take(self) -> str:
        """Return the certain text that was not returned yet, without white space at its end."""
        if self._tokenizer.moses is not None:
            return self._extended(self._tokenizer.moses.certain(self._window))
        if not self._certain:
            return ""
        text = self._tokenizer.decode(self._window[: self._certain])
        more = self._space + text[len(self._window_text) :]
        self._window_text = text
        self._shorten_window()
        if not self._shown and self._begin is None:
            more = more.lstrip()
        more, self._own = self._own + more, ""
        shown = more.rstrip()
        self._space = more[len(shown) :]
        if shown:
            self._shown.append(shown)
        return shown

    def _begin_window(self, begin: Begin, following: int) -> None:
        """Put the tokens of a begin into the window; following: the first token after them."""
        self._window = [token for token in begin.tokens if token > UNK]
        self._window_text, self._certain = begin.spelled, len(self._window)
        self._space = begin.space([following], self._tokenizer)

    def rest(self, text: str) -> str:
        """Return the rest of the part's whole text that was not returned yet."""
        shown = "".join(self._shown)
        assert text.startswith(shown), "a delta would be taken back"
        self._shown = [text]
        return text[len(shown) :]

    def _extended(self, text: str) -> str:
        """Return the part of a text after the returned part, which is final."""
        shown = "".join(self._shown)
        if not text.startswith(shown):
            return ""
        self._shown = [text]
        return text[len(shown) :]

    def _shorten_window(self) -> None:
        """Begin the window at its last certain token, if that token has text."""
        last = self._window[self._certain - 1]
        if self._tokenizer.target.is_byte(last):
            return
        if text := self._tokenizer.decode_token(last):
            self._window = self._window[self._certain - 1 :]
            self._window_text, self._certain = text, 1


class PieceJoiner:
    """The pieces of one part, token by token, separated by blanks: see TEXT_FORMAT_PIECES."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._shown = ""

    def add(self, token: int) -> None:
        self._tokens.append(token)

    def take(self) -> str:
        """Return the pieces that were not returned yet."""
        return self.rest(" ".join(self._tokenizer.target_pieces(self._tokens)))

    def rest(self, text: str) -> str:
        """Return the rest of the part's pieces that was not returned yet."""
        assert text.startswith(self._shown), "a delta would be taken back"
        more, self._shown = text[len(self._shown) :], text
        return more


class IncrementalDetokenizer:
    """The text of all parts in order. A part waits until the parts before it are done."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        document: TextLayout,
        sentences: Sequence[int],
        begin: Begin | None = None,
        *,
        in_pieces: bool = False,
    ) -> None:
        """document: the translated text; sentences: the index of the sentence of each part.

        begin: text of the first part's begin, see PartDetokenizer
        in_pieces: whether texts are pieces, which are joined unchanged
        """
        self._parts: list[PartDetokenizer | PieceJoiner] = [
            PieceJoiner(tokenizer) if in_pieces else PartDetokenizer(tokenizer, None if index else begin)
            for index in range(len(sentences))
        ]
        self._sentences = sentences
        self._joiner = Joiner(document)
        self._done: list[str | None] = [None] * len(sentences)
        self._current = 0
        self._shown = -1  # the last part with returned text

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
            found += self._placed(part.take() if done is None else part.rest(done))
            if done is None:
                break
            self._current += 1
            if self._current == len(self._parts):
                found += self._joiner.end()
        return found

    def _placed(self, text: str) -> str:
        """Prefix a part's first text with its separator: a space within a sentence."""
        if not text:
            return ""
        sentence, shown, self._shown = self._sentences[self._current], self._shown, self._current
        follows = 0 <= shown < self._current and self._sentences[shown] == sentence
        return self._joiner.add(sentence, " " + text if follows else text)
