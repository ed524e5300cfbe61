"""Pieces of corpora: each is read by itself, and all of them are the blocks of the corpus read from its beginning."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lingon.errors import CorpusError
from lingon.training import text_pieces
from lingon.training.config import Corpus
from lingon.training.parallel_text import read_blocks
from lingon.training.text_pieces import Piece, can_be_cut, cut_corpora


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small file have many chunks and marks."""
    monkeypatch.setattr(text_pieces, "EVERY", 3)
    monkeypatch.setattr(text_pieces, "CHUNK", 70)
    monkeypatch.setattr(text_pieces, "READ_BYTES", 13)


def shuffled(tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
    """Run tasks and yield their results in another order."""
    results = [task() for task in tasks]
    random.Random(3).shuffle(results)
    yield from results


def cut(corpus: Corpus, rows: int) -> list[Piece]:
    return cut_corpora({7: corpus}, rows, shuffled)[7]


LINES = ["ein", "", "zwei drei vier", "fünf " * 30, "x", *(f"Zeile {number}" * (number % 4) for number in range(40))]


def corpus_of(folder: Path, form: str, count: int) -> Corpus:
    """A corpus of this form and number of rows, with an alignment in each row."""
    pairs = [(LINES[row % len(LINES)] if row < count - 1 else "the end", f"{row}\r") for row in range(count)]

    def write(name: str, lines: Iterable[str], end: str = "\n") -> Path:
        (folder / name).write_bytes(("\ufeff" + "\n".join(lines) + end).encode() if count else b"")
        return folder / name

    links = folder / "links"
    links.write_text("".join(f"0-{row}\n" for row in range(count)))
    match form:
        case "lines":
            sources = write("s", (source for source, _ in pairs), end="")
            return Corpus(source=sources, target=write("t", (target for _, target in pairs)), alignment=links)
        case "scored":
            scores = folder / "scores"
            scores.write_text("".join(f"{row}\n" for row in range(count)))
            return Corpus(
                source=write("s", (source for source, _ in pairs)),
                target=write("t", (target for _, target in pairs)),
                scores=scores,
            )
        case "tsv":
            return Corpus(file=write("a.tsv", ("\t".join(pair) for pair in pairs)), alignment=links)
        case "named":
            lines = ["source\tof\ttarget", *(f"{source}\tx\t{target}" for source, target in pairs)]
            (folder / "a.tsv").write_text("\n".join(lines))
            return Corpus(file=folder / "a.tsv", source_column="source", target_column="target", alignment=links)
        case "jsonl":
            rows = (json.dumps({"source": source, "target": target}) for source, target in pairs)
            return Corpus(file=write("a.jsonl", rows))
        case _:
            table = pa.table({"source": [source for source, _ in pairs], "target": [target for _, target in pairs]})
            pq.write_table(table, folder / "a.parquet", row_group_size=7)
            return Corpus(file=folder / "a.parquet", alignment=links)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 100])
@pytest.mark.parametrize("form", ["lines", "scored", "tsv", "named", "jsonl", "parquet"])
def test_pieces_are_the_blocks_of_the_corpus(tmp_path: Path, form: str, count: int) -> None:
    if not count and form in ("parquet", "jsonl"):
        form = "lines"
    corpus = corpus_of(tmp_path, form, count)
    assert can_be_cut(corpus)
    assert [piece.read() for piece in cut(corpus, 10)] == list(read_blocks(corpus, 10))


def test_a_piece_reads_a_bounded_number_of_lines_before_its_own(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, "lines", 100)
    for piece in cut(corpus, 10):
        for line, _ in piece.marks.values():
            assert piece.number * 10 - 3 <= line <= piece.number * 10


@pytest.mark.parametrize("shorter", ["s", "t", "links"])
@pytest.mark.parametrize("count", [40, 37, 12])
def test_a_file_that_ends_too_early_is_told_as_without_pieces(tmp_path: Path, shorter: str, count: int) -> None:
    corpus = corpus_of(tmp_path, "lines", 45)
    lines = (tmp_path / shorter).read_bytes().split(b"\n")
    (tmp_path / shorter).write_bytes(b"".join(line + b"\n" for line in lines[:count]))
    with pytest.raises(CorpusError) as expected:
        list(read_blocks(corpus, 10))
    said = set()
    for piece in cut(corpus, 10):
        try:
            piece.read()
        except CorpusError as error:
            said.add(str(error))
    assert said == {str(expected.value)}


def test_archives_and_memories_have_one_reader(tmp_path: Path) -> None:
    plain = {"source": tmp_path / "s", "target": tmp_path / "t"}
    assert can_be_cut(Corpus(**plain))
    assert not can_be_cut(Corpus(**{**plain, "target": tmp_path / "t.gz"}))
    assert not can_be_cut(Corpus(**plain, alignment=tmp_path / "links.zst"))
    assert not can_be_cut(Corpus(file=tmp_path / "a.tmx"))
    assert not can_be_cut(Corpus(file=tmp_path / "a.tsv.xz"))
