"""Moses tokens cut into pieces by byte-pair encoding, behind the methods of a sentencepiece model that Lingon calls.

Models before sentencepiece read text this way: those of fairseq for WMT19, the first ones of OPUS-MT, and some of Argos
Translate, which leaves punctuation and hyphens of words as they are. Byte-pair
encoding: Sennrich et al., 2016, https://aclanthology.org/P16-1162, algorithm 1. Moses: the package sacremoses.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from lingon.errors import BundleError
from lingon.extras import name_missing_extra

WORD_END = "</w>"  # at the end of the last piece of a token
HYPHEN = "@-@"  # within a word, a token of its own
KIND = "moses-bpe"
CACHED, LONGEST_CACHED = 2**16, 64  # tokens whose pieces are kept, and the characters of the longest of them
REACH = 32  # characters beyond the last token within which the next one is looked for


@dataclass(frozen=True, slots=True)
class SurfacePiece:
    """A piece and the part of the text that it stands for, as sentencepiece names them."""

    piece: str
    id: int
    surface: str


@dataclass(frozen=True, slots=True)
class SegmentedText:
    """A text and its pieces. Their surfaces together are the text."""

    text: str
    pieces: list[SurfacePiece] = field(default_factory=list)


class MosesPieces:
    """A vocabulary of pieces, the merges that make them, and the language whose rules Moses applies."""

    def __init__(self, content: bytes, name: str, unknown: int) -> None:
        """Read what `serialised` wrote. Raises BundleError.

        name: of the file, for errors
        unknown: the id of the unknown piece, the last special one
        """
        values = _parsed(content, name)
        if len(values["pieces"]) <= unknown:
            raise BundleError(f"{name}: must have more than {unknown} pieces, has {len(values['pieces'])}")
        self._unknown = unknown
        self.language: str = values["language"]
        self._pieces: list[str] = values["pieces"]
        self._controls = frozenset(values["controls"])
        self._all_ids = {piece: number for number, piece in enumerate(self._pieces)}
        self._ids = {piece: number for piece, number in self._all_ids.items() if not self.is_control(number)}
        pairs = (tuple(each.split(" ", 1)) for each in values["merges"])
        self._ranks = {pair: rank for rank, pair in reversed(list(enumerate(pairs)))}
        self._cached = functools.lru_cache(CACHED)(self._cut)
        with name_missing_extra(f"the tokenizer {name}", ["moses"]):
            from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
        self._plain_rules = bool(values.get("plain", False))
        replaces = not self._plain_rules
        self._normalizer = MosesPunctNormalizer(lang=self.language, pre_replace_unicode_punct=replaces)
        self._tokenizer = MosesTokenizer(lang=self.language)
        self._detokenizer = MosesDetokenizer(lang=self.language)

    @property
    def merges(self) -> list[str]:
        """The merges in the order in which they are applied, as `serialised` takes them."""
        return [" ".join(pair) for pair in sorted(self._ranks, key=self._ranks.__getitem__)]

    def get_piece_size(self) -> int:
        """Return the number of pieces."""
        return len(self._pieces)

    def id_to_piece(self, token: int) -> str:
        """Return a piece. The last one of a Moses token ends with WORD_END."""
        return self._pieces[token]

    def piece_to_id(self, piece: str) -> int:
        """Return the id of a piece, that of the unknown one if there is none."""
        return self._all_ids.get(piece, self._unknown)

    def get_score(self, token: int) -> float:
        """Return 0: the pieces have no probabilities."""
        return 0.0

    def is_byte(self, token: int) -> bool:
        """Return False: no piece is a byte."""
        return False

    def is_control(self, token: int) -> bool:
        """Return whether no text may become a piece."""
        return token <= self._unknown or token in self._controls

    @overload
    def encode(self, text: str) -> list[int]: ...
    @overload
    def encode(self, text: list[str]) -> list[list[int]]: ...
    @overload
    def encode(self, text: str, return_type: str) -> SegmentedText: ...
    def encode(self, text: str | list[str], return_type: str = "") -> list[int] | list[list[int]] | SegmentedText:
        """Return the ids of a text or of several, or with the return type "proto" its pieces with their surfaces."""
        if not isinstance(text, str):
            return [self.encode(each) for each in text]
        words = [
            self._cached(token) if len(token) <= LONGEST_CACHED else self._cut(token) for token in self._tokens(text)
        ]
        if return_type:
            return self._segmented(text, words)
        return [self._ids.get(piece, self._unknown) for word in words for piece in word]

    @overload
    def decode(self, ids: Sequence[int]) -> str: ...
    @overload
    def decode(self, ids: Sequence[int], return_type: str) -> SegmentedText: ...
    def decode(self, ids: Sequence[int], return_type: str = "") -> str | SegmentedText:
        """Return the text of ids, or with the return type "proto" its pieces with their surfaces."""
        words: list[list[str]] = [[]]
        for token in ids:
            words[-1].append(self._pieces[token])
            if words[-1][-1].endswith(WORD_END):
                words.append([])
        words = [word for word in words if word]
        text = str(self._detokenizer.detokenize(["".join(word).removesuffix(WORD_END) for word in words]))
        return self._segmented(text, words) if return_type else text

    def certain(self, ids: Sequence[int]) -> str:
        """Return the beginning of the text of ids that no later id can change.

        How a token is joined to those before it depends on the next one, and a hyphen makes one token of its
        neighbours. In Czech sacremoses looks at the last tokens of the text too, so that nothing is certain.
        """
        words = [
            0,
            *(position for position, token in enumerate(ids, start=1) if self._pieces[token].endswith(WORD_END)),
        ]
        tokens = ["".join(self._pieces[each] for each in ids[begin:end]) for begin, end in itertools.pairwise(words)]
        hyphens = [token == HYPHEN + WORD_END for token in tokens]
        for position in range(len(tokens) - 1, 0, -1) if self.language != "cs" else ():
            if not hyphens[position - 1] and not hyphens[position]:
                return self.decode(ids[: words[position]])
        return ""

    def _tokens(self, text: str) -> list[str]:
        """Return the Moses tokens of a text, with the special characters escaped."""
        text = self._normalizer.normalize(text)
        text = "".join(each for each in text if not unicodedata.category(each).startswith("C"))
        return list(self._tokenizer.tokenize(text, aggressive_dash_splits=not self._plain_rules, escape=True))

    def _cut(self, token: str) -> tuple[str, ...]:
        return tuple(apply_merges([*token[:-1], token[-1] + WORD_END], self._ranks))

    def _segmented(self, text: str, words: Sequence[Sequence[str]]) -> SegmentedText:
        """Find the tokens in a text. A token that is not there as it is shares the surface of the next one."""
        found = SegmentedText(text)
        done = 0
        for word in words:
            plain = self._plain("".join(word).removesuffix(WORD_END))
            begin = text.find(plain, done, done + len(plain) + REACH)
            ends = [done] * len(word) if begin < 0 else _ends(word, begin, len(plain))
            for piece, end in zip(word, ends, strict=True):
                found.pieces.append(SurfacePiece(piece, self.piece_to_id(piece), text[done:end]))
                done = end
        if found.pieces and done < len(text):
            last = found.pieces.pop()
            found.pieces.append(SurfacePiece(last.piece, last.id, last.surface + text[done:]))
        return found

    def _plain(self, token: str) -> str:
        """Return a token as it stands in a text."""
        return "-" if token == HYPHEN else str(self._detokenizer.unescape_xml(token))


def serialised(
    language: str, pieces: Sequence[str], controls: Sequence[int], merges: Sequence[str], *, plain: bool = False
) -> bytes:
    """Return a vocabulary as a file.

    language: a code of Moses, such as de
    pieces: by their ids. The first four are the special ones
    controls: ids besides that no text may become
    merges: two pieces with a space between them, the first one is applied first
    plain: whether punctuation beyond ASCII is kept, and a word with hyphens is one token
    """
    values: dict[str, object] = {"kind": KIND, "language": language, "controls": list(controls), "pieces": list(pieces)}
    values |= {"plain": True} if plain else {}
    return json.dumps({**values, "merges": list(merges)}, ensure_ascii=False, indent=0).encode()


def apply_merges(symbols: Sequence[str], ranks: dict[tuple[str, ...], int]) -> list[str]:
    """Merge neighbours, those of the lowest rank first, and of one rank from left to right.

    Takes O(n log n) steps for n symbols: a user's text may be one word of thousands of letters.
    """
    parts: list[str] = list(symbols)
    before, after = list(range(-1, len(parts) - 1)), [*range(1, len(parts)), -1]
    heap = [(ranks[pair], position) for position, pair in enumerate(itertools.pairwise(parts)) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, positions = heap[0][0], []
        while heap and heap[0][0] == rank:
            positions.append(heapq.heappop(heap)[1])
        for position in _merged(parts, before, after, ranks, rank, positions):
            for left in (before[position], position):
                if left >= 0 and parts[left] and after[left] >= 0:
                    pair = (parts[left], parts[after[left]])
                    if pair in ranks:
                        heapq.heappush(heap, (ranks[pair], left))
    return [part for part in parts if part]


def _merged(
    parts: list[str],
    before: list[int],
    after: list[int],
    ranks: dict[tuple[str, ...], int],
    rank: int,
    positions: Sequence[int],
) -> list[int]:
    """Merge the pairs of one rank in place and return where the merged symbols are. A symbol that is gone is ""."""
    found: dict[int, None] = {}
    for position in positions:
        right = after[position]
        if position in found or not parts[position] or right < 0:
            continue
        if ranks.get((parts[position], parts[right])) != rank:
            continue
        parts[position], parts[right] = parts[position] + parts[right], ""
        after[position] = after[right]
        if after[right] >= 0:
            before[after[right]] = position
        found[position] = None
    return list(found)


def _ends(word: Sequence[str], begin: int, length: int) -> list[int]:
    """Return where the pieces of a token end. Those of one with escaped characters end together."""
    sizes = [len(piece.removesuffix(WORD_END)) for piece in word]
    if sum(sizes) != length:
        return [begin] * (len(word) - 1) + [begin + length]
    return [begin + end for end in itertools.accumulate(sizes)]


def _parsed(content: bytes, name: str) -> dict[str, Any]:
    """Return the values of a file. Raises BundleError unless they are those of a vocabulary."""
    try:
        values: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise BundleError(f"{name}: not a vocabulary of Moses pieces (it is not JSON)") from None
    if values.get("kind") != KIND or not isinstance(values.get("language"), str):
        raise BundleError(f"{name}: kind must be {KIND!r} and language a code of Moses")
    for key in ("pieces", "merges"):
        listed = values.get(key)
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            raise BundleError(f"{name}: {key} must be a list of texts")
    pieces, controls = values["pieces"], values.get("controls")
    if len(set(pieces)) != len(pieces) or "" in pieces:
        raise BundleError(f"{name}: pieces must be different texts that are not empty")
    if any("\ud800" <= each <= "\udfff" for piece in pieces for each in piece):  # no reply could have them
        raise BundleError(f"{name}: pieces must be Unicode, which has no lone surrogates")
    if not isinstance(controls, list) or not all(type(each) is int and 0 <= each < len(pieces) for each in controls):
        raise BundleError(f"{name}: controls must be ids of pieces, 0 to {len(pieces) - 1:,}")
    if wrong := next((each for each in values["merges"] if len(each.split(" ")) != 2 or not all(each.split(" "))), ""):
        raise BundleError(f"{name}: a merge must be two pieces with a space between them, is {wrong[:60]!r}")
    return dict(values)
