"""Word alignments of pairs from attention: the work of `lingon align`, which prints links or judges them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lingon.alignment import (
    GoldLinks,
    LinkCounts,
    WordLink,
    agreement,
    caller_words,
    check_range,
    format_links,
    piece_links,
    read_links,
    strongest,
    symmetrise,
    word_links,
)
from lingon.cli.backend import ListTranslator
from lingon.cli.lines import answer_non_blank
from lingon.client.options import AttentionSelection, ScoreOptions
from lingon.client.results import AttentionMatrix, Piece, ScoreResult
from lingon.errors import CorpusError, ServerError
from lingon.text import normalise

TextPair = tuple[str, str]
Weights = Sequence[Sequence[float]]


class AlignmentHeads(NamedTuple):
    """The attention that links are made of: the mean of these heads of a layer.

    layer: None is that of the bundle, with its heads
    heads: empty is all
    shift: a target token is linked by the step that reads it, not by the step that predicts it (Chen et al., 2020,
        section 3.2)
    """

    layer: int | None = None
    heads: tuple[int, ...] = ()
    shift: bool = False

    def columns(self) -> tuple[str, str, str]:
        """Layer, heads and shift as a table shows them."""
        layer = "bundle" if self.layer is None else str(self.layer)
        heads = "bundle" if self.layer is None else ",".join(map(str, self.heads)) or "all"
        return layer, heads, "yes" if self.shift else "no"


@dataclass(frozen=True, slots=True)
class LinkFile:
    """The links of all pairs, as a file has them."""

    path: Path
    lines: Sequence[GoldLinks]

    @classmethod
    def read(cls, path: Path) -> LinkFile:
        """Return the links of a file, plain or packed."""
        return cls(path, list(read_links(path)))

    def of(self, number: int, pair: TextPair) -> GoldLinks:
        """Return the links of a pair, by its line number. Raises CorpusError if there are none or they do not fit."""
        if number > len(self.lines):
            raise CorpusError(f"{self.path}:{number}: ends here, but the pairs go on")
        links = self.lines[number - 1]
        check_range(links.possible, len(pair[0].split()), len(pair[1].split()), f"{self.path}:{number}")
        return links

    def check_end(self, pairs: int) -> None:
        """Raise CorpusError if the file has more lines than there are pairs."""
        if pairs < len(self.lines):
            raise CorpusError(f"{self.path}: has {len(self.lines)} lines, but there are {pairs} pairs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Aligner:
    """A maker of links between the words of the caller, by the attention of pairs.

    options: of the requests. They ask for alignments, or for the attention of which links are made
    reverse: whether the model translates from target to source
    other: further links of the pairs, which `symmetrisation` combines with those of attention
    """

    options: ScoreOptions
    reverse: bool = False
    other: LinkFile | None = None
    symmetrisation: str = "grow-diag-final-and"

    def answer(self, translator: ListTranslator, items: list[TextPair]) -> list[ScoreResult]:
        """Return the results with alignments or attention. A pair of two empty texts is not sent."""
        blank = [not any(map(normalise, pair)) for pair in items]

        def score(pairs: list[TextPair]) -> list[ScoreResult]:
            turned = [(target, source) for source, target in pairs] if self.reverse else pairs
            return _score(translator, turned, self.options)

        return answer_non_blank(items, blank, score, ScoreResult())

    def caller_links(self, number: int, pair: TextPair, links: set[WordLink]) -> set[WordLink]:
        """Return the links of words of the normalised texts, as links of the words of a pair, combined with the
        others.
        """
        sources, targets = map(caller_words, pair)
        if self.reverse:
            links = {(source, target) for target, source in links}
        found = {(sources[source], targets[target]) for source, target in links}
        if self.other is None:
            return found
        return symmetrise(found, self.other.of(number, pair).possible, self.symmetrisation)

    def check_end(self, pairs: int) -> None:
        """Raise CorpusError if there are links of more pairs."""
        if self.other is not None:
            self.other.check_end(pairs)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintLinks:
    """A printer of the links of each pair.

    shift: see `AlignmentHeads`
    lines: the numbers of the pairs, filled as results come
    """

    aligner: Aligner
    shift: bool
    as_json: bool
    lines: list[int] = field(default_factory=list)

    def answer(self, translator: ListTranslator, numbers: list[int], items: list[TextPair]) -> list[ScoreResult]:
        """See `Aligner`."""
        return self.aligner.answer(translator, items)

    def render(self, number: int, item: TextPair, result: ScoreResult) -> str:
        """Return one line in Pharaoh form, or one JSON object."""
        self.lines.append(number)
        links = self.aligner.caller_links(number, item, links_of(result, shift=self.shift))
        if not self.as_json:
            return format_links(links)
        values: dict[str, Any] = {"line": number, "source": item[0], "target": item[1]}
        if result.error is not None:
            return json.dumps({**values, "error": str(result.error)}, ensure_ascii=False)
        return json.dumps({**values, "links": sorted(links)}, ensure_ascii=False)

    def summary(self) -> str:
        """Nothing."""
        self.aligner.check_end(len(self.lines))
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeLinks:
    """A comparison of the links of all pairs with those that people gave, without printed links.

    gold: the right links
    heads: what the links of a result are made of. None judges all cross-attention of a result
    lines, totals: the numbers of the pairs, and the figures of what was judged. Filled as results come
    """

    aligner: Aligner
    gold: LinkFile
    heads: AlignmentHeads | None
    as_json: bool
    lines: list[int] = field(default_factory=list)
    totals: dict[AlignmentHeads, LinkCounts] = field(default_factory=dict)

    def answer(self, translator: ListTranslator, numbers: list[int], items: list[TextPair]) -> list[ScoreResult]:
        """See `Aligner`."""
        return self.aligner.answer(translator, items)

    def render(self, number: int, item: TextPair, result: ScoreResult) -> None:
        """Add a pair. One that could not be aligned is left out."""
        self.lines.append(number)
        gold = self.gold.of(number, item)
        for heads, links in self._candidates(result) if result.error is None else ():
            found = agreement(self.aligner.caller_links(number, item, links), gold)
            self.totals[heads] = self.totals.get(heads, LinkCounts()) + found

    def summary(self) -> str:
        """Return the error rate, precision and recall of the whole; of all heads, as a table whose first row is the
        best.
        """
        self.aligner.check_end(len(self.lines))
        self.gold.check_end(len(self.lines))
        if not self.totals:
            raise CorpusError(f"{self.gold.path}: no pair was aligned, so that nothing can be judged")
        rows = sorted(self.totals.items(), key=lambda row: row[1].error_rate)
        if self.as_json:
            return "".join(f"{json.dumps(_row_values(*row, len(self.lines)))}\n" for row in rows)
        shown: list[tuple[str, ...]] = [("layer", "heads", "shift", "AER", "precision", "recall", "links", "sure")]
        shown += [(*heads.columns(), *_figures(found)) for heads, found in rows]
        return "".join(f"{'  '.join(f'{cell:>9}' for cell in row)}\n" for row in shown)

    def _candidates(self, result: ScoreResult) -> Iterator[tuple[AlignmentHeads, set[WordLink]]]:
        """Yield the links of a result by the attention that they are made of."""
        if self.heads is not None:
            yield self.heads, links_of(result, shift=self.heads.shift)
            return
        for layer in sorted({matrix.layer for matrix in result.attention}):
            of_layer = {matrix.head: matrix.weights for matrix in result.attention if matrix.layer == layer}
            named: dict[tuple[int, ...], Weights] = {(head,): of_layer[head] for head in of_layer if head is not None}
            if len(named) > 1:
                named[()] = _mean(list(named.values()))
            for heads, weights in named.items():
                for shift in (False, True):
                    yield AlignmentHeads(layer, heads, shift), _links_of_weights(weights, result, shift=shift)


def attention_options(heads: AlignmentHeads | None) -> ScoreOptions:
    """Return the options of a request for the attention of which links are made. None asks for all cross-attention."""
    if heads is None:
        return {"attention": AttentionSelection(kinds=("cross",))}
    if heads.layer is not None:
        selection = AttentionSelection(kinds=("cross",), layers=(heads.layer,), heads=heads.heads, mean_of_heads=True)
        return {"attention": selection}
    if heads.shift:
        return {"attention": AttentionSelection(alignment=True)}
    return {"return_alignment": True}


def links_of(result: ScoreResult, *, shift: bool) -> set[WordLink]:
    """Return the links between the words of the normalised texts of a pair.

    result: with the alignment of the bundle, or with one attention matrix, which counts then
    shift: see `AlignmentHeads`. Needs a matrix
    """
    if not result.attention:
        spans = [(link.source, link.target) for link in result.alignment]
        return word_links(spans, result.normalised_source, result.normalised_target)
    (matrix,) = result.attention
    return matrix_links(matrix, result, shift=shift)


def matrix_links(matrix: AttentionMatrix, result: ScoreResult, *, shift: bool) -> set[WordLink]:
    """Return the links that a matrix of cross-attention makes. See `links_of`."""
    return _links_of_weights(matrix.weights, result, shift=shift)


def _links_of_weights(weights: Weights, result: ScoreResult, *, shift: bool) -> set[WordLink]:
    sources, targets = _without_end(result.source_pieces), _without_end(result.target_pieces)
    rows = weights[shift : shift + len(targets)]
    linked = piece_links(map(strongest, rows), len(sources))
    spans = [(sources[source].span, targets[target].span) for source, target in linked]
    return word_links(spans, result.normalised_source, result.normalised_target)


def _without_end(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Return tokens without the end token, which alone has an empty span. The source of some models has none."""
    begin, end = pieces[-1].span
    return pieces[:-1] if begin == end else pieces


def _mean(matrices: Sequence[Weights]) -> Weights:
    return [[sum(column) / len(matrices) for column in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]


def _score(translator: ListTranslator, pairs: list[TextPair], options: ScoreOptions) -> list[ScoreResult]:
    """Return the results of pairs. A request for more attention than a server returns at once is sent in halves."""
    try:
        return translator.score(pairs, **options)
    except ServerError as error:
        if error.reason != "REQUEST_TOO_LARGE":
            raise
        if len(pairs) == 1:
            return [ScoreResult(error=error)]
        half = len(pairs) // 2
        return _score(translator, pairs[:half], options) + _score(translator, pairs[half:], options)


def _figures(found: LinkCounts) -> tuple[str, ...]:
    rates = (found.error_rate, found.precision, found.recall)
    return (*(f"{rate:.3f}" for rate in rates), str(found.found), str(found.sure))


def _row_values(heads: AlignmentHeads, found: LinkCounts, pairs: int) -> dict[str, Any]:
    """Return a row of the table as a JSON object; without layer and heads it is the bundle's choice, without heads
    all.
    """
    return {
        "layer": heads.layer,
        "heads": list(heads.heads),
        "shift": heads.shift,
        "error_rate": found.error_rate,
        "precision": found.precision,
        "recall": found.recall,
        "links": found.found,
        "sure": found.sure,
        "pairs": pairs,
    }
