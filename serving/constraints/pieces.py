"""The text of every target piece in bytes, and which byte pieces spell valid UTF-8.

Everything here works on bytes, since a character may be spelled in byte pieces. UTF-8 is self-synchronising: a word is
in a text if and only if its bytes are in the bytes of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from lingon.text import UNK, Tokenizer

REPLACEMENT = "\ufffd".encode()
_SPACES = re.compile(r"\s+")
_SEPARATOR = b"\n"  # in no text of a piece, where white space is a space


class TokenSet(NamedTuple):
    """Token ids, ascending, as an array and as a set."""

    ids: np.ndarray
    members: frozenset[int]

    @classmethod
    def of(cls, ids: Iterable[int]) -> TokenSet:
        """Return the set of these ids."""
        members = frozenset(ids)
        return cls(np.array(sorted(members), np.int64), members)


@dataclass(frozen=True, eq=False)
class Pieces:
    """The target pieces of a model.

    texts: by token id, the UTF-8 text that the piece adds to a translation, with any white space as one space; empty
        for special pieces
    bytes_of: the value of each byte piece by its token id
    """

    texts: Sequence[bytes]
    bytes_of: dict[int, int]
    _ordered: list[bytes] = field(init=False, repr=False)
    _ids: np.ndarray = field(init=False, repr=False)  # token ids in the order of _ordered
    _joined: bytes = field(init=False, repr=False)  # all texts, each after a separator
    _begins: list[int] = field(init=False, repr=False)  # by token id, where its text begins in _joined
    token_of: dict[int, int] = field(init=False, repr=False)  # the byte pieces by their value

    def __post_init__(self) -> None:
        order = sorted(range(len(self.texts)), key=self.texts.__getitem__)
        lengths = (len(text) + len(_SEPARATOR) for text in self.texts)
        for name, value in (
            ("_ordered", [self.texts[token] for token in order]),
            ("_ids", np.array(order, np.int64)),
            ("_joined", _SEPARATOR.join(self.texts)),
            ("_begins", [0, *accumulate(lengths)][: len(self.texts)]),
            ("token_of", {value: token for token, value in self.bytes_of.items()}),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Pieces:
        """Return the target pieces of a tokenizer; takes 25 ms for a vocabulary of 6,000."""
        target = tokenizer.target
        texts, bytes_of = [], {}
        for token, piece in enumerate(tokenizer.target_pieces(range(tokenizer.target_vocab))):
            if token <= UNK or target.is_control(token):
                texts.append(b"")
            elif target.is_byte(token):
                bytes_of[token] = int(piece[1:-1], 16)  # <0xE2>
                value = bytes([bytes_of[token]])
                texts.append(b" " if value.isspace() else value)
            else:
                texts.append(_SPACES.sub(" ", piece.replace("\u2581", " ")).encode())
        return cls(texts, bytes_of)

    def beginning_with(self, begin: bytes) -> list[int]:
        """Return the tokens whose text begins with these bytes; their last one is below 255."""
        after = begin[:-1] + bytes([begin[-1] + 1])
        found = self._ids[bisect_left(self._ordered, begin) : bisect_left(self._ordered, after)]
        return [int(token) for token in found]

    def containing(self, part: bytes) -> list[int]:
        """Return the tokens whose text has these bytes in it."""
        found = []
        place = self._joined.find(part)
        while place >= 0:
            token = bisect_right(self._begins, place) - 1
            found.append(token)
            if token + 1 == len(self._begins):
                break
            place = self._joined.find(part, self._begins[token + 1])
        return found


class Utf8State(NamedTuple):
    """What may follow the bytes of a character that is not complete: the state after each byte that may come next."""

    following: dict[int, int]


def _states() -> tuple[Utf8State, ...]:
    """Return the states of a reader of UTF-8 (RFC 3629, section 4), without U+FFFD; 0 is between two characters."""
    tail = range(0x80, 0xC0)
    between, one, two, three, e0, ed, ef, efbf, f0, f4 = range(10)
    begin = dict.fromkeys(range(0x80), between) | dict.fromkeys(range(0xC2, 0xE0), one)
    begin |= dict.fromkeys(range(0xE0, 0xF0), two) | {0xE0: e0, 0xED: ed, 0xEF: ef}
    begin |= {0xF0: f0, 0xF1: three, 0xF2: three, 0xF3: three, 0xF4: f4}
    following: dict[int, dict[int, int]] = {
        between: begin,
        one: dict.fromkeys(tail, between),
        two: dict.fromkeys(tail, one),
        three: dict.fromkeys(tail, two),
        e0: dict.fromkeys(range(0xA0, 0xC0), one),  # others would be longer than necessary
        ed: dict.fromkeys(range(0x80, 0xA0), one),  # others would be surrogates
        ef: dict.fromkeys(tail, one) | {REPLACEMENT[1]: efbf},
        efbf: {byte: between for byte in tail if byte != REPLACEMENT[2]},
        f0: dict.fromkeys(range(0x90, 0xC0), two),  # others would be longer than necessary
        f4: dict.fromkeys(range(0x80, 0x90), two),  # others would be beyond U+10FFFF
    }
    return tuple(Utf8State(following[number]) for number in range(10))


UTF8 = _states()
BETWEEN = 0
"""The state of UTF8 between two characters."""

MISSING_BYTES = (0, 1, 2, 3, 2, 2, 2, 1, 3, 3)
"""By state of UTF8, the bytes that complete the character."""
