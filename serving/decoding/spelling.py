"""The tokens that may come next in a text of valid UTF-8, without U+FFFD and without forbidden words.

Everything here works on bytes, because a character may be spelled in byte pieces. UTF-8 is self-synchronising: a word
is in a text if and only if its bytes are in the bytes of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np

from lingon.text import FORBIDDEN, UNK, Tokenizer, of_all_pieces

REPLACEMENT = "\ufffd".encode()
_SPACES = re.compile(r"\s+")
_SEPARATOR = b"\n"  # not in the text of any piece, where white space is a space


class TokenSet(NamedTuple):
    """Token ids, ascending, as an array and as a set."""

    ids: np.ndarray
    members: frozenset[int]

    @classmethod
    def of(cls, ids: Iterable[int]) -> TokenSet:
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
    _joined: bytes = field(init=False, repr=False)  # all texts, each after a separator
    token_of: dict[int, int] = field(init=False, repr=False)  # the byte pieces by their value

    def __post_init__(self) -> None:
        for name, value in (
            ("_joined", _SEPARATOR.join(self.texts)),
            ("token_of", {value: token for token, value in self.bytes_of.items()}),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Pieces:
        """Return the target pieces of a tokenizer. It takes 10 ms for a vocabulary of 32,000."""
        target, table = tokenizer.target, tokenizer.target_table
        plain = [piece.replace("\u2581", " ") for piece in table]
        for token, text in enumerate(plain):
            if not text.isprintable() or "  " in text:  # which few pieces are
                plain[token] = _SPACES.sub(" ", text)
        texts = [text.encode() for text in plain]
        is_control, is_byte = (of_all_pieces(target, ask) for ask in (target.is_control, target.is_byte))
        for token in (token for token, control in enumerate(is_control) if control or token <= UNK):
            texts[token] = b""
        bytes_of = {}
        for token in (token for token, byte in enumerate(is_byte) if byte):
            bytes_of[token] = int(table[token][1:-1], 16)  # <0xE2>
            value = bytes([bytes_of[token]])
            texts[token] = b" " if value.isspace() else value
        return cls(tuple(texts), bytes_of)

    @cached_property
    def _order(self) -> list[int]:
        """Token ids in the order of their texts. Few requests need it, and for 32,000 pieces it takes 10 ms."""
        return sorted(range(len(self.texts)), key=self.texts.__getitem__)

    @cached_property
    def _begins(self) -> list[int]:
        """By token id, where its text begins in _joined."""
        lengths = (len(text) + len(_SEPARATOR) for text in self.texts)
        return [0, *accumulate(lengths)][: len(self.texts)]

    def beginning_with(self, begin: bytes) -> list[int]:
        """Return the tokens whose text begins with these bytes. The last byte is below 255."""
        after = begin[:-1] + bytes([begin[-1] + 1])
        first, last = (bisect_left(self._order, each, key=self.texts.__getitem__) for each in (begin, after))
        return self._order[first:last]

    def containing(self, part: bytes) -> list[int]:
        """Return the tokens whose text contains these bytes."""
        found = []
        index = self._joined.find(part)
        while index >= 0:
            token = bisect_right(self._begins, index) - 1
            found.append(token)
            if token + 1 == len(self._begins):
                break
            index = self._joined.find(part, self._begins[token + 1])
        return found


class Utf8State(NamedTuple):
    """A state inside an incomplete character: the state after each byte that may come next."""

    following: dict[int, int]


def _states() -> tuple[Utf8State, ...]:
    """Return the states of a reader of UTF-8 (RFC 3629, section 4), without U+FFFD. 0 is between two characters."""
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
        e0: dict.fromkeys(range(0xA0, 0xC0), one),  # other bytes would make an overlong encoding
        ed: dict.fromkeys(range(0x80, 0xA0), one),  # other bytes would make a surrogate
        ef: dict.fromkeys(tail, one) | {REPLACEMENT[1]: efbf},
        efbf: {byte: between for byte in tail if byte != REPLACEMENT[2]},
        f0: dict.fromkeys(range(0x90, 0xC0), two),  # other bytes would make an overlong encoding
        f4: dict.fromkeys(range(0x80, 0x90), two),  # other bytes would be beyond U+10FFFF
    }
    return tuple(Utf8State(following[number]) for number in range(10))


UTF8 = _states()
BETWEEN = 0
"""The state of UTF8 between two characters."""

MISSING_BYTES = (0, 1, 2, 3, 2, 2, 2, 1, 3, 3)
"""By state of UTF8, the bytes that complete the character."""


ROOT = 0
"""The state of a text that ends with no beginning of a word."""


class Automaton:
    """An automaton in which a state stands for the longest beginning of a word at the end of the text.

    A run of spaces in the text counts as one. A text that follows an unknown text has further states, which are made
    when they are reached. They stand for all beginnings that may end there.
    """

    def __init__(self, words: Sequence[bytes]) -> None:
        """words: without spaces at the ends and without two spaces in a row."""
        self.words = tuple(words)
        self._next: list[dict[int, int]] = [{}]
        self._failure = [ROOT]  # the state of the next shorter beginning at the end of the text
        self._spaced = [False]  # whether a space at the end of the text was already read
        self._ends: list[int] = [0]  # the complete words, one bit each
        self._inside: list[list[tuple[int, int]]] = [[]]  # words that begin like the state, and its length
        for number, word in enumerate(words):
            self._add(number, word)
        self._link()
        # The further states: the state of the text alone, and the possible states after the other text.
        self._further: dict[int, tuple[int, frozenset[int]]] = {}
        self._numbers: dict[tuple[int, frozenset[int]], int] = {}
        self._unused = count(len(self._next))

    def after_other_text(self) -> int:
        """Return the state at the beginning of a text that follows another one and a space."""
        spaces = (state for state in range(1, len(self._next)) if self._spaced[state])
        return self._also(ROOT, frozenset(spaces))

    def read(self, state: int, text: bytes) -> tuple[int, int]:
        """Return the state after more text, and the words that ended in it, one bit each."""
        ended = 0
        for byte in text.lstrip(b" ") if self.spaced(state) else text:
            state = self._step(state, byte)
            if state:  # most bytes of a text lead back to the root
                for each in self._all(state):
                    ended |= self._ends[each]
        return state, ended

    def spaced(self, state: int) -> bool:
        """Return whether the text ends with a space, so that further spaces do not count."""
        if state == ROOT:
            return False
        return any(self._spaced[each] for each in self._all(state))

    def rests(self, state: int) -> set[bytes]:
        """Return the remaining bytes of all words of which the text ends with a beginning."""
        found: set[bytes] = set()
        for each in self._all(state):
            while each != ROOT:
                found.update(self.words[number][length:] for number, length in self._inside[each])
                each = self._failure[each]
        return found - {b""}

    def _all(self, state: int) -> tuple[int, ...]:
        if state < len(self._next):
            return (state,)
        known, possible = self._further[state]
        return (known, *possible)

    def _also(self, known: int, possible: frozenset[int]) -> int:
        if not possible:
            return known
        number = self._numbers.get((known, possible))
        if number is None:
            number = next(self._unused)
            self._further[number] = known, possible
            self._numbers[known, possible] = number
        return number

    def _step(self, state: int, byte: int) -> int:
        if state >= len(self._next):
            known, possible = self._further[state]
            after = (self._next[each].get(byte) for each in possible)
            return self._also(self._step(known, byte), frozenset(each for each in after if each is not None))
        while (following := self._next[state].get(byte)) is None:
            if state == ROOT:
                return ROOT
            state = self._failure[state]
        return following

    def _add(self, number: int, word: bytes) -> None:
        state = ROOT
        for length, byte in enumerate(word, 1):
            following = self._next[state].get(byte)
            if following is None:
                following = self._next[state][byte] = len(self._next)
                self._next.append({})
                self._failure.append(ROOT)
                self._spaced.append(byte == 0x20)
                self._ends.append(0)
                self._inside.append([])
            state = following
            self._inside[state].append((number, length))
        self._ends[state] |= 1 << number

    def _link(self) -> None:
        """Set the failure of every state, the shorter ones first."""
        for parent, byte, state in self._by_length():
            if parent != ROOT:
                self._failure[state] = self._step(self._failure[parent], byte)
            self._ends[state] |= self._ends[self._failure[state]]

    def _by_length(self) -> Iterator[tuple[int, int, int]]:
        level = [ROOT]
        while level:
            below = [(parent, byte, state) for parent in level for byte, state in self._next[parent].items()]
            yield from below
            level = [state for _, _, state in below]


LONGEST = 4  # bytes of the longest character

SpellingState = tuple[int, int]
"""The state of the incomplete character (see UTF8), and of the automaton of the forbidden words."""


class Spelling:
    """The tokens that spell permitted text. Results are cached by state.

    It guarantees for each forbidden word that it is not in the text in any pieces or bytes. A space of the word stands
    for any run of white space.
    """

    def __init__(self, pieces: Pieces, words: Sequence[bytes] = (), *, follows: bool = False) -> None:
        """words: forbidden words in UTF-8, with single spaces inside and none at the ends.

        follows: whether the text follows another one and a space, so that it must not begin with the end of a word
        """
        self._pieces = pieces
        self._words = Automaton(words)
        self.start: SpellingState = (BETWEEN, self._words.after_other_text() if follows else ROOT)
        self._replacement = frozenset(pieces.containing(REPLACEMENT))
        self._uncertain = self._replacement.union(pieces.bytes_of)  # all other tokens spell valid UTF-8
        never = {*FORBIDDEN, *self._replacement}
        never.update(token for token, byte in pieces.bytes_of.items() if byte not in UTF8[BETWEEN].following)
        self._never = never.union(*(pieces.containing(word) for word in words))
        self._banned: dict[tuple[int, int], TokenSet] = {}
        self._continuing: dict[tuple[int, int, int], TokenSet] = {}

    @property
    def has_words(self) -> bool:
        return bool(self._words.words)

    def has_bytes(self, tokens: Sequence[int]) -> bool:
        """Return whether tokens have byte pieces, or pieces with U+FFFD."""
        return not self._uncertain.isdisjoint(tokens)

    def character_after(self, character: int, token: int) -> int | None:
        """Return the state of UTF8 after another token, or None if it breaks a character, or has U+FFFD."""
        byte = self._pieces.bytes_of.get(token)
        if byte is not None:
            return UTF8[character].following.get(byte)
        return BETWEEN if character == BETWEEN and token not in self._replacement else None

    def whole(self, tokens: Sequence[int], prefix: int = 0) -> int:
        """Return the number of tokens before the first character that is broken, incomplete, or U+FFFD.

        prefix: the number of tokens at the beginning that count as whole characters
        """
        if not self.has_bytes(tokens):
            return len(tokens)
        whole, character = prefix, BETWEEN
        for index, token in enumerate(tokens[prefix:], prefix + 1):
            following = self.character_after(character, token)
            if following is None:
                break
            character = following
            if character == BETWEEN:
                whole = index
        return whole

    def read(self, state: SpellingState, token: int) -> SpellingState:
        """Return the state after another token."""
        character, words = state
        byte = self._pieces.bytes_of.get(token)
        character = BETWEEN if byte is None else UTF8[character].following.get(byte, BETWEEN)
        return character, self._words.read(words, self._pieces.texts[token])[0]

    def banned(self, state: SpellingState, remaining: int) -> TokenSet:
        """Return the forbidden tokens between two characters.

        remaining: tokens that the translation may still have, with this one
        """
        key = state[1], min(remaining, LONGEST)
        found = self._banned.get(key)
        if found is None:
            tokens = self._never | self._completing(state[1])
            for byte, following in UTF8[BETWEEN].following.items():
                token = self._pieces.token_of.get(byte)
                if following != BETWEEN and token is not None and token not in tokens:
                    after = following, self._words.read(state[1], bytes([byte]))[0]
                    if not self._can_complete(after, key[1] - 1):
                        tokens.add(token)
            found = self._banned[key] = TokenSet.of(tokens)
        return found

    def continuing(self, state: SpellingState, remaining: int) -> TokenSet:
        """Return the byte pieces that may come next within a character. There is at least one."""
        key = *state, min(remaining, LONGEST)
        found = self._continuing.get(key)
        if found is None:
            tokens = (token for token, after in self._bytes_after(state) if self._can_complete(after, key[2] - 1))
            found = self._continuing[key] = TokenSet.of(tokens)
        return found

    def _can_complete(self, state: SpellingState, remaining: int) -> bool:
        """Return whether `remaining` byte pieces can complete the character."""
        if state[0] == BETWEEN:
            return True
        if MISSING_BYTES[state[0]] > remaining:
            return False
        return any(self._can_complete(after, remaining - 1) for _, after in self._bytes_after(state))

    def _bytes_after(self, state: SpellingState) -> Iterator[tuple[int, SpellingState]]:
        """Yield the byte pieces that continue a character and complete no word, each with the state after it."""
        completing = self._completing(state[1])
        for byte, after in UTF8[state[0]].following.items():
            token = self._pieces.token_of.get(byte)
            if token is not None and token not in completing:
                yield token, (after, self._words.read(state[1], bytes([byte]))[0])

    def _completing(self, words: int) -> set[int]:
        """Return the tokens that complete a word of which the text ends with a beginning."""
        found: set[int] = set()
        for rest in self._words.rests(words):
            found.update(self._pieces.beginning_with(rest))
            if self._words.spaced(words):
                found.update(self._pieces.beginning_with(b" " + rest))
        return found


def repeating(tokens: Sequence[int], size: int) -> TokenSet:
    """Return the tokens that would repeat an n-gram of this size (Paulus et al. 2017, section 2.5)."""
    if len(tokens) < size:
        return TokenSet.of(())
    begin = list(tokens[len(tokens) - size + 1 :])
    return TokenSet.of(
        tokens[end] for end in range(size - 1, len(tokens)) if list(tokens[end - size + 1 : end]) == begin
    )


def penalise(logits: np.ndarray, tokens: Sequence[int], penalty: float) -> None:
    """Lower the logits (vocab) of tokens that a translation has, in place.

    Keskar et al. 2019, section 4.1, divide the logit by the penalty. Negative logits are multiplied by it, because a
    division would raise them.
    """
    chosen = np.unique(np.asarray(tokens, np.int64))
    values = logits[chosen]
    logits[chosen] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
