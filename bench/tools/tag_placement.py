"""How well tags are placed: words that people linked get a tag, which is placed in the given translation.

    python -m lingon.bench.tools.tag_placement models/en-de test.en test.de test.align

Each source word with sure links to neighbouring target words gets a tag of its own. It is placed twice by the same
attention: as the service does it, and by links. Each target piece has a link to the source piece with the greatest
weight, and a tag is around the longest run of words with a link. A tag is exact if it is around the linked words and no
others. Overlap is the number of common words, divided by the number of words in the tag or linked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lingon.alignment import GoldLinks, Span, piece_links, read_links, word_links
from lingon.bench.options import ToolResults
from lingon.bench.results_file import keep, show
from lingon.files import read_parallel
from lingon.segments.placing import place
from lingon.segments.placing_alignment import Aligned, Inline
from lingon.serving.in_process import LocalTranslator
from lingon.serving.translation.attention import word_weights
from lingon.translation.v1 import translation_pb2 as pb

PAIRS = 4  # in one request, whose attention is bounded
NAMES = ("exact_percent", "overlap_percent", "around_no_word_percent")
_WORD = re.compile(r"\S+")
Words = frozenset[int]


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair as the model reads it: normalised texts, the spans of their pieces, and the attention between these."""

    source: str
    target: str
    sources: Sequence[Span]
    targets: Sequence[Span]
    attention: np.ndarray


def read(translator: LocalTranslator, pairs: Sequence[tuple[str, str]]) -> Iterator[Pair | None]:
    """Yield each pair with its attention; None for one that the model cannot read."""
    selection = pb.AttentionSelection(alignment=True)
    for begin in range(0, len(pairs), PAIRS):
        asked = [pb.ScorePair(source=source, target=target) for source, target in pairs[begin : begin + PAIRS]]
        for result in translator.score(pb.ScoreRequest(pairs=asked, attention=selection)).results:
            yield None if result.status.code else _pair(result)


def linked_words(pair: Pair, gold: GoldLinks) -> Iterator[tuple[int, Words]]:
    """Yield the source words with sure links to target words that follow one another, and these."""
    words = _WORD.findall(pair.source)
    for source in sorted({source for source, _ in gold.sure}):
        targets = frozenset(target for each, target in gold.sure if each == source)
        if max(targets) - min(targets) + 1 == len(targets) and any(map(str.isalnum, words[source])):
            yield source, targets


def by_weights(pair: Pair) -> dict[int, Words]:
    """Return the target words in the tag of each source word, as the service places it."""
    weights = word_weights(pair.attention, pair.sources, pair.targets, pair.source, pair.target)
    segment = Aligned((0, len(pair.source)), (0, len(pair.target)), weights)
    found = {}
    for number, word in enumerate(_WORD.finditer(pair.source)):
        begin, end = (tag.place for tag in place(pair.source, pair.target, [segment], [Inline(*word.span())]))
        words = enumerate(_WORD.finditer(pair.target))
        found[number] = frozenset(at for at, each in words if each.start() < end and begin < each.end())
    return found


def by_links(pair: Pair) -> dict[int, Words]:
    """Return the longest run of target words that have a link from each source word."""
    attended = pair.attention[: len(pair.targets)].argmax(axis=1).tolist()
    linked = piece_links(attended, len(pair.sources))
    pieces = ((pair.sources[source], pair.targets[target]) for source, target in linked)
    links = word_links(pieces, pair.source, pair.target)
    words = range(len(_WORD.findall(pair.source)))
    return {word: _longest_run(target for source, target in links if source == word) for word in words}


def compare(pairs: Iterable[tuple[Pair | None, GoldLinks]]) -> list[dict[str, Any]]:
    """Return a row for each way to place tags."""
    ways = {"weights of words": by_weights, "links of pieces": by_links}
    exact, overlap, empty = (dict.fromkeys(ways, 0.0) for _ in range(3))
    tags = read_pairs = 0
    for pair, gold in pairs:
        if pair is None:
            continue
        read_pairs += 1
        wanted = list(linked_words(pair, gold))
        tags += len(wanted)
        for way, placed in ((way, find(pair)) for way, find in ways.items()):
            for source, words in wanted:
                exact[way] += placed[source] == words
                overlap[way] += len(placed[source] & words) / len(placed[source] | words)
                empty[way] += not placed[source]
    return [
        {"way": way, "pairs": read_pairs, "tags": tags}
        | {name: 100 * found[way] / max(tags, 1) for name, found in zip(NAMES, (exact, overlap, empty), strict=True)}
        for way in ways
    ]


def _pair(result: pb.ScoreResult) -> Pair:
    (matrix,) = result.attention
    attention = np.array(matrix.weights, np.float32).reshape(matrix.rows, matrix.columns)
    sources, targets = (
        [(piece.span.begin, piece.span.end) for piece in pieces][:-1]  # without the end token
        for pieces in (result.source_pieces, result.target_pieces)
    )
    return Pair(result.normalised_source, result.normalised_target, sources, targets, attention)


def _longest_run(places: Iterable[int]) -> Words:
    best, run = list[int](), list[int]()
    for each in sorted(set(places)):
        run = [*run, each] if run and each == run[-1] + 1 else [each]
        best = max(best, run, key=len)
    return frozenset(best)


def main(
    model: Annotated[Path, typer.Argument(help="A bundle whose model has attention.")],
    source: Annotated[Path, typer.Argument(help="Sentences, one a line, plain or packed.")],
    target: Annotated[Path, typer.Argument(help="Their translations, line by line.")],
    links: Annotated[Path, typer.Argument(help="Their links: i-j is sure, ipj possible.")],
    results: ToolResults = None,
) -> None:
    """Print how well tags are placed, and save it if there is a folder."""
    pairs, gold = list(read_parallel(source, target)), list(read_links(links))
    with LocalTranslator(model, precision="fp32") as translator:
        rows = compare(zip(read(translator, pairs), gold, strict=True))
    show(rows)
    keep("tag-placement", rows, results)


if __name__ == "__main__":
    typer.run(main)
