"""Word alignments: links in Pharaoh form, from the attention between pieces to words, and how they are judged.

A link (i, j) says that source word i and target word j translate each other. Both count from 0. Words are separated by
white space.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from lingon.errors import CorpusError
from lingon.files import read_lines
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb

Span = tuple[int, int]  # code points of a text; the end is exclusive
WordLink = tuple[int, int]  # source word, target word

SYMMETRISATIONS = ("intersection", "union", "grow-diag-final-and")

_LINK = re.compile(r"([0-9]{1,9})([-p])([0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class GoldLinks:
    """The links of a pair as people gave them (Och and Ney, 2003, section 5.1). Sure links are possible too."""

    sure: frozenset[WordLink]
    possible: frozenset[WordLink]


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """How many links were found and are sure, and how many of those found are sure or possible. Sums over pairs."""

    found: int = 0
    sure: int = 0
    found_and_sure: int = 0
    found_and_possible: int = 0

    def __add__(self, other: LinkCounts) -> LinkCounts:
        return LinkCounts(
            self.found + other.found,
            self.sure + other.sure,
            self.found_and_sure + other.found_and_sure,
            self.found_and_possible + other.found_and_possible,
        )

    @property
    def precision(self) -> float:
        """|A and P| / |A|, or 1 if no link was found."""
        return self.found_and_possible / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """|A and S| / |S|, or 1 if no link is sure."""
        return self.found_and_sure / self.sure if self.sure else 1.0

    @property
    def error_rate(self) -> float:
        """The alignment error rate AER = 1 - (|A and S| + |A and P|) / (|A| + |S|) of Och and Ney (2003), equation 12.

        A is the set of the links found, S of the sure and P of the possible ones. It is 0 if both A and S are empty.
        """
        wanted = self.found + self.sure
        return 1 - (self.found_and_sure + self.found_and_possible) / wanted if wanted else 0.0


def agreement(found: Iterable[WordLink], gold: GoldLinks) -> LinkCounts:
    """Compare the links found for a pair with those that people gave."""
    links = set(found)
    return LinkCounts(len(links), len(gold.sure), len(links & gold.sure), len(links & gold.possible))


def parse_links(line: str, where: str) -> GoldLinks:
    """Return the links of a line: `i-j` is sure, `ipj` possible, separated by white space.

    where: the file and the number of the line, for the errors
    """
    sure, possible = set[WordLink](), set[WordLink]()
    for written in line.split():
        parts = _LINK.fullmatch(written)
        if parts is None:
            raise CorpusError(f"{where}: a link must be i-j or ipj with i and j from 0 to 999999999, got {written!r}")
        (sure if parts[2] == "-" else possible).add((int(parts[1]), int(parts[3])))
    return GoldLinks(frozenset(sure), frozenset(sure | possible))


def read_links(path: Path) -> Iterator[GoldLinks]:
    """Yield the links of each line of a file, plain or packed."""
    for number, line in enumerate(read_lines(path), start=1):
        yield parse_links(line, f"{path}:{number}")


def check_range(links: Iterable[WordLink], source_words: int, target_words: int, where: str) -> None:
    """Raise CorpusError for a link to a word that the pair does not have; where: the file and the number of the line.

    source_words, target_words: of the pair
    """
    for source, target in sorted(links):
        for side, word, words in (("source", source, source_words), ("target", target, target_words)):
            if word >= words:
                raise CorpusError(f"{where}: link {source}-{target}: the {side} has {words} words, counted from 0")


def format_links(links: Iterable[WordLink]) -> str:
    """Return links in Pharaoh form, `i-j` separated by spaces, in ascending order."""
    return " ".join(f"{source}-{target}" for source, target in sorted(set(links)))


def symmetrise(forward: AbstractSet[WordLink], backward: AbstractSet[WordLink], method: str) -> set[WordLink]:
    """Return one alignment of a pair made of two. Koehn et al. (2005), section 2.1, describe the methods.

    forward, backward: such as those of models of both directions, both as (source word, target word)
    method: of SYMMETRISATIONS
    """
    both, either = set(forward & backward), set(forward | backward)
    if method == "intersection":
        return both
    if method == "union":
        return either
    assert method == "grow-diag-final-and", method
    found = _grow_diagonally(both, either)
    sources, targets = _words_of(found)
    for links in (forward, backward):
        for source, target in sorted(links):
            if source not in sources and target not in targets:
                found.add((source, target))
                sources.add(source)
                targets.add(target)
    return found


def _grow_diagonally(both: set[WordLink], either: set[WordLink]) -> set[WordLink]:
    """Return the links with those of `either` beside them, also diagonally, that link a word without a link."""
    found, (sources, targets) = set(both), _words_of(both)
    grown = sorted(found)
    while grown:
        beside, grown = grown, []
        for source, target in beside:
            for near in ((source + i, target + j) for i in (-1, 0, 1) for j in (-1, 0, 1)):
                new = near in either and near not in found
                if new and not (near[0] in sources and near[1] in targets):
                    found.add(near)
                    sources.add(near[0])
                    targets.add(near[1])
                    grown.append(near)
        grown.sort()
    return found


def _words_of(links: AbstractSet[WordLink]) -> tuple[set[int], set[int]]:
    return {source for source, _ in links}, {target for _, target in links}


def word_at(text: str, end: int) -> int:
    """Return the word of a piece that ends at `end` of a normalised text.

    A piece begins with the space before its word, so its end decides.
    """
    return text.count(" ", 0, end)


def caller_words(text: str) -> list[int]:
    """Return the position in `text.split()` of each word of the normalised text.

    A word that consists of invisible characters is not in the normalised text.
    """
    return [position for position, word in enumerate(text.split()) if normalise(word)]


def strongest(weights: Sequence[float]) -> int:
    """Return the position of the greatest weight, the first one of equals as in NumPy's argmax."""
    return max(range(len(weights)), key=weights.__getitem__)


def piece_links(attended: Iterable[int], sources: int) -> list[tuple[int, int]]:
    """Return (source piece, target piece) for each target piece that attends most to a source piece.

    A piece that attends most to the end token of the source has no link.

    attended: for each target piece, the position of the source token with the greatest weight, `strongest`
    sources: source pieces, without the end token, whose index is `sources` if the model reads one
    """
    return [(source, target) for target, source in enumerate(attended) if source < sources]


def word_links(links: Iterable[tuple[Span, Span]], source: str, target: str) -> set[WordLink]:
    """Return the links between words: two words are linked if any of their pieces are.

    Zenkel et al. (2019), section 4, and Garg et al. (2019), section 5, make word alignments of subword units so.

    links: the spans of linked pieces in source and target
    source, target: normalised texts
    """
    spaces, target_spaces = ([space.start() for space in re.finditer(" ", text)] for text in (source, target))
    return {(bisect_left(spaces, piece[1]), bisect_left(target_spaces, other[1])) for piece, other in links}


AttentionKind: TypeAlias = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder or of the decoder, or the attention of the decoder to the source."""

KINDS: dict[AttentionKind, pb.AttentionKind.ValueType] = {
    "encoder": pb.ATTENTION_KIND_ENCODER,
    "decoder": pb.ATTENTION_KIND_DECODER,
    "cross": pb.ATTENTION_KIND_CROSS,
}
